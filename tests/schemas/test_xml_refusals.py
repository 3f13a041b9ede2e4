"""Reading: what is not one whole, valid element is an error with its reason, and never a PASS."""

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonbus_schemas.codec import InvalidMessageError
from batonbus_schemas.xml import XmlReadingError, read_dispatch, read_result
from batonbus_schemas.xml_source import EXCERPT_LIMIT, Findings
from batonbus_schemas.xml_tree import parse

OPEN = '<task-result work="WORK-12" task="TASK-04" agent="builder" status="PASS">'
CLOSE = "</task-result>"
FULL = "<what>w</what><why>y</why><caution>c</caution><incomplete>i</incomplete>"


def result(inner: str, status: str = "PASS") -> str:
    return f"{OPEN.replace('PASS', status)}{inner}{CLOSE}"


def refused(text: str, **expected: Any) -> XmlReadingError:
    with pytest.raises(XmlReadingError) as caught:
        read_result(text, **expected)
    return caught.value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no-result"),
        ("All done, everything passes.", "no-result"),
        ("<\uff5c\uff5cX\uff5c\uff5ccall><\uff5c\uff5cX\uff5c\uff5c name='read'>", "no-result"),
        ('<dispatch to="builder"/>', "no-result"),
        (f"<think>{OPEN}{CLOSE}</think>", "no-result"),
        ("<task-results status='PASS'/>", "no-result"),
        (OPEN + "<summary>Wrote the fi", "truncated"),
        ('<task-result work="WORK-12" task="TASK-04"', "truncated"),
        (OPEN + "<summary>ok</summary></task-resu", "truncated"),
        (f"{OPEN}{CLOSE} {OPEN}<summary>and", "truncated"),
        (f"<think>unsure {OPEN}{CLOSE}", "truncated"),
        (f"{OPEN}<summary>half{OPEN}{CLOSE}", "ambiguous"),
        (result("") + result("", "FAIL"), "ambiguous"),
        (result("<summary>a</summary>") + result("<summary>b</summary>"), "ambiguous"),
        (result("<summary>a</summary><summary>b</summary>"), "ambiguous"),
        (result("").replace("status", 'STATUS="FAIL" status'), "ambiguous"),
        (result('<ref-cache><ref key="k">1</ref><ref key="k">2</ref></ref-cache>'), "ambiguous"),
        (result("<notes>a <!-- </notes><notes> --> b</notes>"), "ambiguous"),
        (result("<notes>`<!--`</notes><notes> --> b</notes>"), "ambiguous"),
        (result(f"<context-handoff>{FULL}</context-handoff>" * 2), "ambiguous"),
        (result(f"<context-handoff from='x'>{FULL}</context-handoff>" * 2), "contradiction"),
        (result(f'<context-handoff from="verifier">{FULL}</context-handoff>'), "contradiction"),
        (result("").replace(' status="PASS"', ""), "invalid"),
        (result("", ""), "invalid"),
        (result("", "PASS|FAIL"), "invalid"),
        (result("", "DONE"), "invalid"),
        (result("", "SKIP"), "invalid"),
        (result("").replace("status", 'status="FAIL" status'), "invalid"),
        (result("").replace('"PASS"', "PASS"), "invalid"),
        (result("<summary>a"), "invalid"),
        (result("<summary>a</notes>"), "invalid"),
        (result("<notes>&#0;</notes>"), "invalid"),
        (result("<notes><![CDATA[a]]> </b> ]]></notes>"), "invalid"),
        (result("<context-handoff><why>y</why></context-handoff>"), "invalid"),
        (result('<verification><check name="a" status="SKIP"/></verification>'), "invalid"),
        (result('<files-changed><file action="moved" path="a"/></files-changed>'), "invalid"),
        (result("<ref-cache><ref>1</ref></ref-cache>"), "invalid"),
        (result("") + CLOSE, "invalid"),
        ('<task-result status="PASS"/><summary>x</summary></task-result>', "invalid"),
        ("<x>" * 300 + "</x>" * 300, "no-result"),
        (result("<x>" * 300 + "</x>" * 300), "invalid"),
    ],
)
def test_what_is_not_one_whole_result_is_an_error_with_its_reason(text: str, reason: str) -> None:
    assert refused(text).reason == reason


def test_a_failed_check_does_not_vanish_in_the_output_of_another() -> None:
    text = result(
        '<verification><check name="build" status="PASS">ok'
        '<check name="tests" status="FAIL">1 red</check></verification>'
    )
    assert "close that first" in str(refused(text))


def test_a_broken_check_does_not_vanish_as_stray_text() -> None:
    text = result('<verification><check name="a<b" status="FAIL"/></verification>')
    assert refused(text).reason == "invalid"


def test_no_beginning_of_a_result_is_read_as_a_result() -> None:
    whole = result("<summary>a & b</summary><notes><![CDATA[<x>]]></notes><!-- c -->")
    for length in range(len(whole)):
        assert refused(whole[:length]).reason in {"truncated", "no-result"}


def test_all_violations_come_in_one_answer() -> None:
    error = refused(
        '<task-result work="WORK 12" task="TASK-4" state="DONE">'
        '<files-changed><file action="moved" path=" "/></files-changed>'
        '<verification><check status="SKIP"/></verification></task-result>'
    )
    assert {violation.path for violation in error.violations} == {
        "$.status",
        "$.work",
        "$.task",
        "$.files_changed[0].action",
        "$.files_changed[0].path",
        "$.verification[0].name",
        "$.verification[0].status",
    }
    assert isinstance(error, InvalidMessageError)


@pytest.mark.parametrize("other", [{"work": "WORK-13"}, {"task": "TASK-05"}, {"agent": "verifier"}])
def test_ids_that_contradict_what_was_asked_are_an_error(other: dict[str, str]) -> None:
    expected = {"work": "WORK-12", "task": "TASK-04", "agent": "builder"} | other
    error = refused(
        result("<summary>ok</summary>"),
        **{f"expected_{name}": value for name, value in expected.items()},
    )
    assert error.reason == "contradiction"
    (name,) = other
    assert [violation.path for violation in error.violations] == [f"/task-result/@{name}"]


def test_the_agent_of_the_context_handoff_must_be_the_expected_one_too() -> None:
    context = f'<context-handoff from="x">{FULL}</context-handoff>'
    text = f'<task-result status="PASS">{context}</task-result>'
    assert refused(text, expected_agent="builder").reason == "contradiction"


@pytest.mark.parametrize("task", ["WORK-01-TASK-03", "work-01_task-03", "WORK-01/TASK-03"])
def test_the_work_has_no_place_in_the_task(task: str) -> None:
    hint = 'the WORK prefix must not be included: write work="WORK-01" task="TASK-03"'
    for place in ("work='x' status='PASS'", "status='PASS'"):
        assert hint in str(refused(f"<task-result {place} task='{task}'/>"))
    for xml in (
        f"<dispatch to='builder' task='{task}'/>",
        f"<dispatch to='builder'><previous-results><result task='{task}' status='PASS'/>"
        "</previous-results></dispatch>",
    ):
        with pytest.raises(XmlReadingError, match="WORK prefix must not be included") as caught:
            read_dispatch(xml)
        assert len(caught.value.violations) == 1


@pytest.mark.parametrize(
    "xml",
    [
        "<dispatch/>",
        '<dispatch to="two words"/>',
        '<dispatch to="builder" execution-mode="fast"/>',
        '<dispatch to="x"><context-handoff from="x"><what>w</what></context-handoff></dispatch>',
        '<dispatch to="x"><previous-results><result status="PASS"/></previous-results></dispatch>',
    ],
)
def test_a_dispatch_that_lacks_or_breaks_something_is_an_error(xml: str) -> None:
    with pytest.raises(XmlReadingError) as caught:
        read_dispatch(xml)
    assert caught.value.reason == "invalid"


def test_a_text_without_a_dispatch_says_so() -> None:
    with pytest.raises(XmlReadingError) as caught:
        read_dispatch(result(""))
    assert caught.value.reason == "no-dispatch"


def test_an_excerpt_is_short_and_holds_no_reasoning() -> None:
    error = refused("<think>SECRET</think>" + "words " * 1000)
    assert error.reason == "no-result"
    assert "words words" in str(error)
    assert "SECRET" not in str(error)
    assert len(str(error)) < EXCERPT_LIMIT + 100


# Hardening

BOMB = '<!DOCTYPE r [<!ENTITY a "{}"><!ENTITY b "&a;&a;&a;">]>' + result("<notes>&b;</notes>")


@pytest.mark.parametrize(
    "text",
    [
        BOMB.format("x" * 100),
        "<!doctype html>" + result(""),
        result("<notes><!ENTITY a 'b'></notes>"),
        result("<notes><![CDATA[<!DOCTYPE html>]]></notes>"),
    ],
)
def test_a_doctype_or_an_entity_is_refused_before_anything_is_parsed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonbus_schemas.xml_reading.parse", None)
    error = refused(text)
    assert error.reason == "forbidden"
    assert "DOCTYPE" in str(error)


def test_an_external_entity_opens_no_file_and_no_socket(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("canary")
    refused("")  # whatever is imported or compiled on first use is there now
    opened: list[tuple[str, tuple[Any, ...]]] = []
    watching = True

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if watching and (event == "open" or event.startswith("socket.")):
            opened.append((event, args))

    sys.addaudithook(watch)
    for address in (secret.as_uri(), "http://127.0.0.1:9/x"):
        text = f'<!DOCTYPE r [<!ENTITY x SYSTEM "{address}">]>' + result("<notes>&x;</notes>")
        assert refused(text).reason == "forbidden"
    assert read_result(result("<notes>ok</notes>")).value.notes == "ok"
    seen = list(opened)
    secret.read_text()
    watching = False
    assert seen == []
    assert opened, "the hook must be able to see an opened file"


def test_the_parser_itself_reads_no_external_entity(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("canary")
    source = (
        f'<!DOCTYPE task-result [<!ENTITY x SYSTEM "{secret.as_uri()}">]>'
        "<task-result status='PASS'><notes>&x;</notes></task-result>"
    )
    try:
        tree = parse(source, Findings())
    except XmlReadingError:
        return
    assert "canary" not in "".join(map(str, tree.itertext()))


_PIECES = [
    *(OPEN, CLOSE, "<task-result", "<summary>", "</summary>", "<notes>", "</notes>", "<check "),
    *(
        "<think>",
        "</think>",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "&",
        "<",
        "`",
        '"',
        "\x00",
        "\ud800",
    ),
    *(
        "<verification>",
        "</verification>",
        "<why>",
        "status='FAIL'",
        "/>",
        ">",
        "text",
        "\n",
        "<?x?>",
    ),
]


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_result_or_a_typed_error(text: str) -> None:
    for reader in (read_result, read_dispatch):
        with suppress(XmlReadingError):
            assert reader(text).value


@pytest.mark.parametrize(
    "text",
    [
        "<task-result " * 40_000,
        OPEN + "<!--" * 100_000 + CLOSE,
        OPEN + "<![CDATA[" * 50_000 + CLOSE,
        OPEN + '<summary "' * 40_000 + CLOSE,
        OPEN + "<summary>" * 40_000 + CLOSE,
        OPEN + "<summary>&" * 40_000 + "</notes>" + CLOSE,
        "<think>" * 60_000 + "</analysis>" * 30_000,
        "`<think>`" * 40_000,
        "<a" * 200_000,
        "<" + "a" * 400_000,
        OPEN + "<![CDATA[]]>" * 30_000 + CLOSE,
    ],
)
def test_the_time_grows_with_the_text_alone(text: str) -> None:
    before = time.process_time()
    with pytest.raises(XmlReadingError):
        read_result(text.replace(" status=", " state="))
    assert time.process_time() - before < 5
