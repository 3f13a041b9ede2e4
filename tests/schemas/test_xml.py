"""Writing: what is written is read again exactly, in the shapes of seeds 000 and 002."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonbus_schemas.bodies import (
    Check,
    Dispatch,
    FileChange,
    PreviousResult,
    Question,
    TaskResult,
)
from batonbus_schemas.context import ContextHandoff, DetailLevel, Edge, WindowEntry
from batonbus_schemas.envelope import Envelope
from batonbus_schemas.xml import (
    XmlContext,
    assignment_to_xml,
    dispatch_to_xml,
    read_dispatch,
    read_result,
    resolve_ref,
    result_to_xml,
)

ID = UUID("018f6a2c-0000-7000-8000-000000000001")

# All that XML 1.0 can carry, and the pieces at which a careless writer or reader would break.
_NASTY = [
    *("&", "<", ">", "&amp;", "&lt;b&gt;", "&#13;", "<b>", "</summary>", "<why>", "</task-result>"),
    *("<task-result status='PASS'/>", "<think>", "</think>", "<!--", "-->", "<!DOCTYPE x>", "```"),
    *(
        "<![CDATA[",
        "]]>",
        "]]",
        "\r",
        "\r\n",
        "\n",
        "\t",
        " ",
        '"',
        "'",
        "`<think>`",
        "\x85",
        "\xa0",
    ),
]
_letters = st.characters(
    exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff", include_characters="\t\r\n"
)
_texts = st.lists(st.text(_letters, max_size=8) | st.sampled_from(_NASTY), max_size=5).map("".join)
_said = _texts.filter(lambda text: bool(text.strip()))
_tokens = st.from_regex(r"[A-Z0-9_-]{1,12}", fullmatch=True)  # no case of a role that is known
_tasks = st.integers(0, 200).map("TASK-{:02}".format)
_refs = st.dictionaries(_texts, _texts, max_size=3)
_lists = st.lists(_texts, max_size=3).map(tuple)
_modes = st.sampled_from(["direct", "pipeline", "full"])
_sections = st.from_regex(r"[a-zåß§.]+( [0-9]+)?", fullmatch=True)

_previous = st.builds(
    PreviousResult, task=_tasks, status=st.sampled_from(["PASS", "FAIL", "SKIP"]), summary=_texts
)
_dispatches = st.builds(
    Dispatch,
    brief=_said,
    title=_texts,
    action=st.sampled_from(["implement", "verify", "translate", ""]),
    execution_mode=_modes,
    project=_texts,
    language=_texts,
    plan_file=_texts,
    task_file=_texts,
    references_dir=_texts,
    previous_results=st.lists(_previous, max_size=3).map(tuple),
    cache_hint=st.lists(_sections, max_size=3).map(tuple),
    ref_cache=_refs,
    permission_boundary=_texts,
    expected_evidence=_lists,
    attention=_texts,
    context_pack=_texts,
    skills=_lists,
    refs=_lists,
)
_handoffs = st.builds(ContextHandoff, what=_said, why=_texts, caution=_texts, incomplete=_texts)
_results = st.builds(
    TaskResult,
    status=st.sampled_from(["PASS", "FAIL"]),
    summary=_texts,
    work=st.none() | _tokens,
    task=st.none() | _tasks,
    agent=_tokens | st.just(""),
    files_changed=st.lists(
        st.builds(
            FileChange,
            action=st.sampled_from(["created", "modified", "deleted"]),
            path=_said,
            description=_texts,
        ),
        max_size=3,
    ).map(tuple),
    verification=st.lists(
        st.builds(
            Check, name=_said, status=st.sampled_from(["PASS", "FAIL", "N/A"]), output=_texts
        ),
        max_size=3,
    ).map(tuple),
    notes=_texts,
    context_handoff=st.none() | _handoffs,
    ref_cache=_refs,
)


def entry(edge: Edge, level: DetailLevel, **fields: Any) -> WindowEntry:
    distance = 1 if level is DetailLevel.FULL else 2
    values = {"from_": "builder", "what": "Did it.", **fields}
    return WindowEntry(distance=distance, level=level, edge=edge, handoff_id=ID, **values)


def envelope(body: Dispatch, *, to: str = "builder", task: str | None = "TASK-02") -> Envelope:
    return Envelope(id=ID, sender="scheduler", to=to, work="WORK-07", task=task, body=body)


@given(_results)
@settings(max_examples=150, deadline=None)
def test_a_result_comes_back_exactly(result: TaskResult) -> None:
    reading = read_result(result_to_xml(result))
    assert reading.value == result
    assert reading.repairs == ()


@given(_dispatches, _tokens, _tokens, st.none() | _tasks)
@settings(max_examples=150, deadline=None)
def test_a_dispatch_comes_back_exactly(
    body: Dispatch, to: str, work: str, task: str | None
) -> None:
    sent = Envelope(id=ID, sender="scheduler", to=to, work=work, task=task, body=body)
    reading = read_dispatch(dispatch_to_xml(sent))
    assert reading.value.body == body
    assert (reading.value.to, reading.value.work, reading.value.task) == (to, work, task)
    assert reading.repairs == ()


@given(_said, _texts, st.none() | _texts, _tokens, _tasks, st.just("TASK-02") | _tasks)
@settings(max_examples=80, deadline=None)
def test_a_window_comes_back_exactly(
    what: str, why: str, caution: str | None, from_: str, task: str, stage_task: str
) -> None:
    full = entry(
        Edge.STAGE,
        DetailLevel.FULL,
        from_=from_,
        task=stage_task,
        what=what,
        why=why,
        caution=caution,
    )
    summary = entry(Edge.TASK, DetailLevel.SUMMARY, from_=from_, task=task, what=what)
    xml = dispatch_to_xml(envelope(Dispatch(brief="Go on.")), [full, summary])
    assert read_dispatch(xml).value.window == tuple(
        XmlContext(
            edge=it.edge,
            level=it.level,
            from_=it.from_,
            task=it.task,
            what=it.what,
            why=it.why,
            caution=it.caution,
            incomplete=it.incomplete,
            handoff_id=it.handoff_id,
        )
        for it in (full, summary)
    )


def test_what_xml_cannot_carry_is_written_as_a_picture() -> None:
    result = TaskResult(status="FAIL", summary="\x1b[31mred\x1b[0m \x00 \ud800 \uffff")
    assert read_result(result_to_xml(result)).value.summary == "␛[31mred␛[0m ␀ \ufffd \ufffd"


def test_a_dispatch_is_written_in_the_elements_of_the_seed() -> None:
    body = Dispatch(
        brief="Hold a sending back.",
        title="Outbox",
        action="implement",
        project="mailer",
        language="en",
        plan_file="works/WORK-07/PLAN.md",
        task_file="works/WORK-07/TASK-02.md",
        references_dir="/srv/references",
        previous_results=(
            PreviousResult(task="TASK-01", status="PASS", summary="Store is there."),
        ),
        cache_hint=("build", "test"),
        ref_cache={"xml-schema": "# XML\n"},
    )
    window = [
        entry(Edge.TASK, DetailLevel.FULL, task="TASK-01", why="", caution="", incomplete="None"),
        entry(Edge.STAGE, DetailLevel.SUMMARY, from_="verifier", task="TASK-02"),
        entry(Edge.STAGE, DetailLevel.DROP, from_="planner"),
    ]
    assert dispatch_to_xml(envelope(body), window).splitlines() == [
        '<dispatch to="builder" work="WORK-07" task="TASK-02" execution-mode="full">',
        "<ref-cache>",
        '<ref key="xml-schema"># XML',
        "</ref>",
        "</ref-cache>",
        "<references-dir>/srv/references</references-dir>",
        "<context>",
        "<project>mailer</project>",
        "<language>en</language>",
        "<plan-file>works/WORK-07/PLAN.md</plan-file>",
        "</context>",
        "<task-spec>",
        "<file>works/WORK-07/TASK-02.md</file>",
        "<title>Outbox</title>",
        "<action>implement</action>",
        "<description>Hold a sending back.</description>",
        "</task-spec>",
        f'<context-handoff from="verifier" detail-level="SUMMARY" handoff="{ID}">',
        "<what>Did it.</what>",
        "</context-handoff>",
        "<previous-results>",
        '<result task="TASK-01" status="PASS">Store is there.</result>',
        f'<context-handoff from="builder" task="TASK-01" detail-level="FULL" handoff="{ID}">',
        "<what>Did it.</what>",
        "<why></why>",
        "<caution></caution>",
        "<incomplete>None</incomplete>",
        "</context-handoff>",
        "</previous-results>",
        '<cache-hint sections="build,test"/>',
        "</dispatch>",
    ]


def test_another_body_is_written_as_an_element_a_section() -> None:
    body = Question(text="Which port?", options=("80", "8080 & <up>"))
    asked = Envelope(
        id=ID, sender="builder", to="operator", work="WORK-07", task="TASK-02", attempt=2, body=body
    )
    window = [
        entry(Edge.STAGE, DetailLevel.FULL, task="TASK-02"),
        entry(Edge.TASK, DetailLevel.DROP),
    ]
    assert assignment_to_xml(asked, window).splitlines() == [
        '<assignment to="operator" work="WORK-07" task="TASK-02" from="builder" attempt="2"'
        f' handoff="{ID}">',
        "<question>Which port?</question>",
        "<options>- 80",
        "- 8080 &amp; &lt;up&gt;</options>",
        f'<context-handoff from="builder" task="TASK-02" detail-level="FULL" handoff="{ID}">',
        "<what>Did it.</what>",
        "</context-handoff>",
        "</assignment>",
    ]


def test_only_a_dispatch_has_the_xml_of_one() -> None:
    asked = Envelope(id=ID, sender="builder", to="operator", body=Question(text="Which port?"))
    with pytest.raises(TypeError, match="not a Question"):
        dispatch_to_xml(asked)


@pytest.mark.parametrize("name", ["a,b", "", " a"])
def test_a_section_that_commas_cannot_join_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cache-hint cannot name the section"):
        dispatch_to_xml(envelope(Dispatch(brief="Go on.", cache_hint=(name,))))


def test_a_reference_in_the_cache_is_used_and_no_file_read() -> None:
    def read(path: str) -> str:
        raise AssertionError(f"{path} was read")

    assert resolve_ref("xml-schema", {"xml-schema": ""}, "/srv/references", read) == ""


def test_a_missing_reference_is_read_from_the_folder() -> None:
    files = {"/srv/references/context-policy.md": "# Window"}
    found = resolve_ref(
        "context-policy", {"xml-schema": "x"}, "/srv/references/", files.__getitem__
    )
    assert found == "# Window"


@pytest.mark.parametrize("key", ["../secret", "a/b", "", ".hidden", "a\\b"])
def test_a_reference_cannot_name_a_file_elsewhere(key: str) -> None:
    with pytest.raises(ValueError, match="not read from disk"):
        resolve_ref(key, {}, "/srv/references", lambda path: path)


def test_a_missing_reference_without_a_folder_is_an_error() -> None:
    with pytest.raises(ValueError, match="no references-dir"):
        resolve_ref("xml-schema", {}, "", lambda path: path)
