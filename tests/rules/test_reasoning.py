"""Raw reasoning is found as blocks, as items of JSON, and as JSON that a text quotes."""

import json
import time

import pytest

from batonbus.rules.bans import find_bans
from batonbus.rules.reasoning import find_reasoning
from batonbus.rules.secrets import mask

HIDDEN = "first I weigh both"


@pytest.mark.parametrize(
    "text",
    [
        f"<thought>{HIDDEN}</thought>",
        f"<seed:think>{HIDDEN}</seed:think>",
        f"<inner_monologue>{HIDDEN}</inner_monologue>",
        f"[THINK]{HIDDEN}[/THINK]",
        f"◁think▷{HIDDEN}◁/think▷",
        f"<|channel|>analysis<|message|>{HIDDEN}<|end|>",
        f"<|channel|>analysis<|message|>{HIDDEN}<|start|>assistant<|channel|>final",
        f"<|channel|>analysis<|message|>{HIDDEN}",
        json.dumps({"type": "reasoning", "id": "r", "summary": [{"text": HIDDEN}]}),
        json.dumps({"a": {"b": 1}, "text": HIDDEN, "type": "thinking"}),
        json.dumps({"type": "reasoning", "text": HIDDEN}, indent=2),
        json.dumps({"out": json.dumps({"type": "thinking", "thinking": HIDDEN})}),
        json.dumps({"type": "thinking", "thinking": HIDDEN})[:-6],
        json.dumps({"reasoning_content": HIDDEN, "content": "kept"}),
        json.dumps({"thinking": f'{HIDDEN} "so"'})[:-3],
        json.dumps({"reasoning_content": f"用户想要修复登录{HIDDEN}"}, ensure_ascii=False),
    ],
)
def test_it_is_taken_out_of_whatever_a_program_prints(text: str) -> None:
    for whole in (text, f"Before.\n{text}\nAfter."):
        assert HIDDEN[:12] not in mask(whole)
    assert mask(f"Before.\n{text}").startswith("Before.\n")
    assert [it.path for it in find_bans({"brief": text})] == ["$.brief"]


def test_what_stands_beside_an_item_stays() -> None:
    items = [{"type": "thinking", "thinking": HIDDEN}, {"type": "text", "text": "Done."}]
    said = mask(f"one\n{json.dumps({'content': items})}\ntwo")
    assert said == 'one\n{"content": [, {"type": "text", "text": "Done."}]}\ntwo'


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "reasoning"} is how an item begins.',
        '{"type": "thinking", "id": "1", "signature": ""}',
        '{"thinking": {"type": "enabled", "budget_tokens": 1024}, "reasoning": "high"}',
        '{"thinking": "adaptive", "chain_of_thought": ""}',
        "[THINK] is how it begins; <|channel|>final<|message|>Done.",
        "A `[THINK]` without its end, and ◁think▷ alone.",
        'the "type" of reasoning is "thinking"',
        'Items with "type": "thinking" are dropped.',
        'The config is {"a": 1}.\nThe filter skips items of "type": "reasoning" before it counts.',
        "The parser must know `<|channel|>analysis` markers.\nAll tests pass.",
    ],
)
def test_what_only_names_it_stays_as_it_is(text: str) -> None:
    assert list(find_reasoning(text)) == []
    assert mask(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        '{"type":"thinking","a":\n',
        '{"type":"thinking","a":{"b":[1,\n',
        '{"thinking":"a b',
        "[THINK]",
        "<|channel|>analysis",
        '{"type":"thinking","x":[1,\n' * 50 + "1," * 5_000,
    ],
)
def test_a_text_that_is_cut_off_again_and_again_is_looked_through_quickly(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    began = time.perf_counter()
    mask(text)
    assert time.perf_counter() - began < 2


def test_every_item_of_indented_json_is_taken_out() -> None:
    items = [{"type": "reasoning", "summary": f"{HIDDEN} {number}"} for number in range(60)]
    assert HIDDEN not in mask(json.dumps({"output": items}, indent=2))


def test_an_end_without_its_beginning_is_found_behind_a_text_that_names_another_tag() -> None:
    texts = ["the `<analysis>` tag is one", f"{HIDDEN}\n</think>\nThe answer"]
    assert [it.path for it in find_bans(texts)] == ["$[1]"]
