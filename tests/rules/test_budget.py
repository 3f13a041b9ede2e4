"""The payload budget: exact to the character, shortened in a fixed order, nothing lost."""

from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from batonbus.rules.budget import (
    CONTRACT_LISTS,
    OverBudgetError,
    count_characters,
    fit,
    measure,
    reference_tokens,
)
from batonbus.rules.policy import Budget, Policy
from batonbus_schemas import AgentCard, Dispatch, Envelope, HandoffV1, WindowEntry, render
from batonbus_schemas.context import DetailLevel, Edge

ID = UUID("6f1c3a52-9d5e-4a7b-8b3c-2f4d5e6a7b8c")
HUGE = Budget(characters=10**9, tokens=10**9)


def envelope(**fields: object) -> Envelope:
    body = Dispatch(**{"brief": "Mend it.", **fields})  # type: ignore[arg-type]
    return Envelope(id=ID, sender="scheduler", to="builder", work="WORK-01", body=body)


def entry(distance: int, level: DetailLevel, what: str = "Did it.", **fields: str) -> WindowEntry:
    return WindowEntry(
        distance=distance,
        level=level,
        edge=Edge.TASK,
        from_="builder",
        handoff_id=uuid5(ID, f"{distance}{level}{what[:9]}"),
        what=what,
        **fields,
    )


def limited(characters: int) -> Budget:
    return Budget(characters=characters, tokens=characters)


@pytest.mark.parametrize("letter", ["a", "가", "🛠"])
def test_a_text_of_exactly_the_limit_fits_and_one_more_does_not(letter: str) -> None:
    boundary = letter * 1000
    sent = envelope(permission_boundary=boundary)
    length = len(render(sent))
    assert fit(sent, (), limited(length)).steps == ()
    with pytest.raises(OverBudgetError) as error:
        fit(sent, (), limited(length - 1))
    assert error.value.field == "$.body.permission_boundary"
    assert "1,000" in str(error.value)


@pytest.mark.parametrize("letter", ["a", "가", "🛠"])
def test_tokens_are_a_quarter_of_the_characters_rounded_up(letter: str) -> None:
    assert [reference_tokens(letter * count) for count in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_a_line_end_counts_once() -> None:
    assert reference_tokens("abc\r\n") == reference_tokens("abc\n") == 1


def test_the_limit_of_tokens_counts_too() -> None:
    sent = envelope()
    tokens = reference_tokens(render(sent))
    assert fit(sent, (), Budget(characters=9999, tokens=tokens)).tokens == tokens
    with pytest.raises(OverBudgetError):
        fit(sent, (), Budget(characters=9999, tokens=tokens - 1))


def test_an_exact_tokenizer_is_held_to_the_same_limit() -> None:
    sent = envelope()
    with pytest.raises(OverBudgetError):
        fit(sent, (), Budget(characters=9999, tokens=100), count_tokens=len)


def test_the_steps_come_in_their_order() -> None:
    sent = envelope(brief="b" * 900, attention="a" * 400, skills=("s" * 300, "t" * 300))
    window = (
        entry(1, DetailLevel.FULL, why="w" * 500, incomplete="i" * 500),
        entry(2, DetailLevel.FULL, why="x" * 500, incomplete="j" * 500),
        entry(2, DetailLevel.SUMMARY, "m" * 600),
    )
    whole = fit(sent, window, HUGE)
    taken: list[str] = []
    limit = whole.characters
    while True:
        try:
            fitted = fit(sent, window, limited(limit))
        except OverBudgetError:
            break
        assert fitted.steps[: len(taken)] == tuple(taken)
        taken, limit = list(fitted.steps), fitted.characters - 1
    kinds = [it.split(" of ")[0].split(" by ")[0] for it in taken]
    assert kinds == [
        "brief cut to 320 characters",
        "brief cut to 240 characters",
        "brief cut to 160 characters",
        "attention",
        "skills",
        "summary",
        "why",
        "why",
        "incomplete",
        "incomplete",
    ]
    near, far = str(window[0].handoff_id)[:8], str(window[1].handoff_id)[:8]
    assert [far in it for it in taken[6:]] == [True, False, True, False]
    assert near in taken[7]


def test_one_long_line_of_an_agent_that_is_gone_does_not_end_the_line() -> None:
    long = "w" * 3000
    window = (
        entry(1, DetailLevel.FULL, long, caution="c" * 200),
        entry(2, DetailLevel.SUMMARY, "s" * 900),
    )
    fitted = fit(envelope(), window, limited(1200))
    assert fitted.steps[-1].endswith("cut to 320 characters")
    assert "w" * 320 in fitted.text
    assert "c" * 200 in fitted.text
    assert long in {it.text for it in fitted.references}


def test_a_task_that_needs_eight_others_fits_into_a_builders_budget() -> None:
    text = "One line about what was done, of about seventy characters in length.\n" * 5
    window = tuple(
        entry(1, DetailLevel.FULL, f"{number} {text}", why=text, incomplete=text)
        for number in range(8)
    )
    budget = Policy().limits_of_role("builder").budget
    fitted = fit(envelope(brief="b" * 300), window, budget)
    assert fitted.characters <= budget.characters
    assert {it.text for it in fitted.references} >= {text}


def test_caution_boundary_and_evidence_are_never_left_out() -> None:
    kept = {"permission_boundary": "p" * 200, "expected_evidence": ("e" * 200,)}
    sent = envelope(brief="b" * 2000, **kept)
    window = (entry(1, DetailLevel.FULL, "w" * 200, caution="c" * 200, why="y" * 900),)
    fitted = fit(sent, window, limited(1800))
    for letter in "pewc":
        assert letter * 200 in fitted.text
    with pytest.raises(OverBudgetError):
        fit(sent, window, limited(900))


@given(
    brief=st.text(alphabet="ab 가🛠\n", min_size=1, max_size=1500).filter(str.strip),
    why=st.text(alphabet="cd\n", max_size=900),
    summary=st.text(alphabet="ef", min_size=1, max_size=900),
)
def test_all_that_is_taken_out_stands_in_a_reference_that_the_text_names(
    brief: str, why: str, summary: str
) -> None:
    window = (entry(1, DetailLevel.FULL, why=why), entry(2, DetailLevel.SUMMARY, summary))
    fitted = fit(envelope(brief=brief), window, limited(1400))
    assert fitted.characters == len(fitted.text) <= 1400
    texts = {it.text for it in fitted.references}
    assert texts <= {brief, why, summary}
    for reference in fitted.references:
        assert reference.path in fitted.text
    if not any("brief" in it for it in fitted.steps):
        assert brief.strip().splitlines()[0].strip() in fitted.text


def test_a_chain_of_long_contexts_stays_inside_every_roles_budget() -> None:
    """Three kilobytes from each upstream agent, as seed 001's policy roles count them."""
    lines = "\n".join("x" * 60 for _ in range(12))
    window = (
        entry(1, DetailLevel.FULL, lines, why=lines, caution=lines, incomplete=lines),
        entry(2, DetailLevel.SUMMARY, "\n".join(lines.splitlines()[:3])),
    )
    for role in ("planner", "builder", "verifier", "committer"):
        budget = Policy().limits_of_role(role).budget
        fitted = fit(envelope(brief="b" * 300), window, budget)
        assert fitted.characters <= budget.characters
        assert fitted.tokens <= budget.tokens


def test_a_document_gives_its_lists_up_before_its_goal_and_its_constraints() -> None:
    text = "What is known of it. " * 14
    bundle = {
        "progress": {"summary": "Half done.", "completed_steps": [text]},
        "decisions": [{"decision": text, "rationale": "It was shorter."}],
        "artifacts": [{"artifact_id": "a", "name": text}],
        "memory": [{"key": "m", "summary": text, "provenance": "run-1"}],
        "open_questions": [text],
        "constraints": {"must_not_change": [text]},
    }
    document = {
        "handoff_id": str(ID),
        "from_agent": {"agent_id": "a", "runtime": "claude"},
        "to_agent": {"agent_id": "builder"},
        "objective": {"goal": "Mend it."},
        "bundle": bundle,
    }
    sent = Envelope(id=ID, sender="a", to="builder", body=HandoffV1(document=document))
    fitted = fit(sent, (), limited(1000))
    assert [it.split(" ")[0] for it in fitted.steps] == list(CONTRACT_LISTS)
    assert "Mend it." in fitted.text
    assert text.strip() in fitted.text
    for reference in fitted.references:
        assert reference.path in fitted.text
        assert text.strip() in reference.text
    with pytest.raises(OverBudgetError) as error:
        fit(sent, (), limited(500))
    assert error.value.field == "$.body.document.bundle.constraints.must_not_change[0]"


def test_the_form_that_an_agent_reads_is_the_one_that_counts() -> None:
    sent = envelope(brief="<b> & <i> " * 20)
    sizes = {form: len(render(sent, (), form)) for form in ("markdown", "xml")}
    assert sizes["xml"] > sizes["markdown"]
    for form in ("markdown", "xml"):
        fitted = fit(sent, (), HUGE, form)
        assert (fitted.text, fitted.characters) == (render(sent, (), form), sizes[form])


def test_an_inline_ref_cache_is_given_whole_and_counted_apart() -> None:
    cached = envelope(ref_cache={"xml-schema": "# XML " * 500})
    fitted = fit(cached, (), limited(400), "xml")
    assert "# XML " * 500 in fitted.text
    assert fitted.characters == len(render(envelope(), (), "xml"))


def card(id: str, role: str, **fields: object) -> AgentCard:
    return AgentCard(id=id, role=role, **fields)  # type: ignore[arg-type]


def test_a_role_is_measured_in_the_longest_form_of_its_agents() -> None:
    sent = envelope(brief="<b> & <i> " * 20)
    both = [card("builder-1", "builder"), card("builder-2", "builder", text_form="xml")]
    size = measure(sent, (), Policy(), both)
    assert (size.row, size.form, size.max_characters, size.max_tokens) == (
        "implementer",
        "xml",
        2800,
        700,
    )
    assert size.characters == len(render(sent, (), "xml"))
    assert measure(sent, (), Policy(), both[:1]).form == "markdown"
    assert measure(sent, (), Policy(), []).form == "markdown"


def test_an_agent_that_is_addressed_by_its_id_has_its_own_limits() -> None:
    sent = replace(envelope(), to="builder-1")
    listening = [card("builder-1", "builder", policy_role="reviewer")]
    assert measure(sent, (), Policy(), listening).max_characters == 2400
    assert measure(sent, (), Policy(), []).max_characters == 2200


@pytest.mark.parametrize(
    ("text", "characters", "tokens"),
    [
        ("x" * 2729, 2729, 683),
        ("x" * 2728 + "\r\n", 2729, 683),
        ("가" * 2800, 2800, 700),
        ("🛠" * 2801, 2801, 701),
    ],
)
def test_sizes_are_counted_as_the_loop_protocol_publishes_them(
    text: str, characters: int, tokens: int
) -> None:
    """Its example dispatch to an implementer has 2,729 characters, so 683 reference tokens."""
    assert (count_characters(text), reference_tokens(text)) == (characters, tokens)
    budget = Policy().limits_of_role("builder").budget
    inside = characters <= budget.characters and tokens <= budget.tokens
    assert inside == (characters <= 2800)
