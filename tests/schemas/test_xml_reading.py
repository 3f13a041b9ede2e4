"""Reading: the shapes of seeds 000 and 002, and what models make of them."""

import pytest

from batonbus_schemas.bodies import Check, FileChange, PreviousResult, TaskResult
from batonbus_schemas.context import DetailLevel, Edge
from batonbus_schemas.xml import read_dispatch, read_result

OPEN = '<task-result work="WORK-12" task="TASK-04" agent="builder" status="PASS">'
CLOSE = "</task-result>"


def result(inner: str, status: str = "PASS") -> str:
    return f"{OPEN.replace('PASS', status)}{inner}{CLOSE}"


def read(text: str) -> TaskResult:
    return read_result(text).value


# Seed 002


def test_the_result_of_seed_002_is_read_exactly() -> None:
    reading = read_result(
        """<task-result work="WORK-12" task="TASK-04" agent="builder" status="PASS">
  <summary>The parser takes time zones.</summary>
  <files-changed>
    <file action="created" path="src/zones.py">names to offsets</file>
    <file action="modified" path="src/parse.py">asks zones.py</file>
    <file action="deleted" path="src/old.py"></file>
  </files-changed>
  <verification>
    <check name="build" status="PASS">ok</check>
    <check name="lint" status="N/A"/>
  </verification>
  <notes>Leap seconds are left alone.</notes>
  <ref-cache>                                        <!-- optional -->
    <ref key="shared-prompt-sections"># Shared
</ref>
    <ref key="house-style">short</ref>
  </ref-cache>
</task-result>"""
    )
    assert reading.value == TaskResult(
        status="PASS",
        summary="The parser takes time zones.",
        work="WORK-12",
        task="TASK-04",
        agent="builder",
        files_changed=(
            FileChange(action="created", path="src/zones.py", description="names to offsets"),
            FileChange(action="modified", path="src/parse.py", description="asks zones.py"),
            FileChange(action="deleted", path="src/old.py"),
        ),
        verification=(
            Check(name="build", status="PASS", output="ok"),
            Check(name="lint", status="N/A"),
        ),
        notes="Leap seconds are left alone.",
        ref_cache={"shared-prompt-sections": "# Shared\n", "house-style": "short"},
    )
    assert reading.repairs == ("comments left out",)


def test_the_dispatch_of_seed_002_is_read_exactly() -> None:
    reading = read_dispatch(
        """<dispatch to="builder" work="WORK-12" task="TASK-04" execution-mode="pipeline">
  <ref-cache>
    <ref key="context-policy">| Step | Level |</ref>
  </ref-cache>
  <references-dir>/srv/references</references-dir>
  <context>
    <project>calendar</project>
    <language>de</language>
    <plan-file>works/WORK-12/PLAN.md</plan-file>
  </context>
  <task-spec>
    <file>works/WORK-12/TASK-04.md</file>
    <title>Time zones</title>
    <action>implement</action>
    <description>Read the offset after the time.</description>
  </task-spec>
  <previous-results>
    <result task="TASK-02" status="PASS">Dates are read.</result>
    <result task="TASK-03" status="SKIP">No locale is needed.</result>
  </previous-results>
  <cache-hint sections="build commands, conventions"/>
</dispatch>"""
    )
    value, body = reading.value, reading.value.body
    assert (value.to, value.work, value.task) == ("builder", "WORK-12", "TASK-04")
    assert (body.title, body.brief) == ("Time zones", "Read the offset after the time.")
    assert (body.action, body.execution_mode) == ("implement", "pipeline")
    assert (body.project, body.language) == ("calendar", "de")
    assert body.plan_file == "works/WORK-12/PLAN.md"
    assert body.task_file == "works/WORK-12/TASK-04.md"
    assert body.references_dir == "/srv/references"
    assert body.ref_cache == {"context-policy": "| Step | Level |"}
    assert body.cache_hint == ("build commands", "conventions")
    assert body.previous_results == (
        PreviousResult(task="TASK-02", status="PASS", summary="Dates are read."),
        PreviousResult(task="TASK-03", status="SKIP", summary="No locale is needed."),
    )
    assert value.window == ()
    assert reading.repairs == ()


def test_an_execution_mode_that_is_left_out_is_full() -> None:
    assert read_dispatch('<dispatch to="scheduler"/>').value.body.execution_mode == "full"


@pytest.mark.parametrize(
    ("spec", "brief"),
    [
        ("<file>f.md</file><title>T</title><description>D</description>", "D"),
        ("<file>f.md</file><title>T</title><description> </description>", "T"),
        ("<file>f.md</file><action>verify</action>", "f.md"),
        ("<action>verify</action>", "verify"),
        ("", "TASK-04"),
    ],
)
def test_a_dispatch_without_a_description_has_the_next_best_brief(spec: str, brief: str) -> None:
    xml = f'<dispatch to="verifier" task="TASK-04"><task-spec>{spec}</task-spec></dispatch>'
    assert read_dispatch(xml).value.body.brief == brief


def test_single_quotes_and_an_empty_element_are_xml_too() -> None:
    single = "<dispatch to='committer' work='WORK-12' task='TASK-04' execution-mode='direct'/>"
    double = single.replace("'", '"').replace("/>", "></dispatch>")
    assert read_dispatch(single) == read_dispatch(double)
    assert read_dispatch(single).value.body.execution_mode == "direct"


# Seed 000


@pytest.mark.parametrize("agent", ["builder", "verifier"])
def test_the_outputs_of_seed_000_are_read(agent: str) -> None:
    value = read(
        f"""<task-result status="FAIL">
  <context-handoff from="{agent}" detail-level="FULL">
    <what>Ran the tests.</what><why>They were asked for.</why>
    <caution>One is slow.</caution><incomplete></incomplete>
  </context-handoff>
</task-result>"""
    )
    assert (value.status, value.agent, value.work, value.task) == ("FAIL", agent, None, None)
    assert value.context_handoff is not None
    assert value.context_handoff.what == "Ran the tests."
    assert value.context_handoff.why == "They were asked for."
    assert value.context_handoff.caution == "One is slow."
    assert value.context_handoff.incomplete == "None"


FULL = "<what>w</what><why>y</why><caution>c</caution><incomplete>i</incomplete>"


def window(text: str) -> list[tuple[str, ...]]:
    return [
        (it.edge.value, it.from_, it.level.value, it.task or "", it.what, it.why or "")
        for it in read_dispatch(text).value.window
    ]


def test_the_verifier_sees_its_builder_whole() -> None:
    assert window(
        f"""<!-- Verifier: Builder FULL -->
<dispatch to="verifier">
  <context-handoff from="builder" detail-level="FULL">{FULL}</context-handoff>
</dispatch>"""
    ) == [("stage", "builder", "FULL", "", "w", "y")]


def test_the_committer_sees_verifier_whole_and_builder_in_summary() -> None:
    assert window(
        f"""<dispatch to="committer">
  <context-handoff from="verifier" detail-level="FULL">{FULL}</context-handoff>
  <context-handoff from="builder" detail-level="SUMMARY"><what>short</what></context-handoff>
</dispatch>"""
    ) == [
        ("stage", "verifier", "FULL", "", "w", "y"),
        ("stage", "builder", "SUMMARY", "", "short", ""),
    ]


def test_the_next_builder_sees_tasks_by_their_distance() -> None:
    xml = f"""<dispatch to="builder" task="TASK-05">
  <previous-results>
    <context-handoff from="prev-task" task="TASK-04" detail-level="FULL">{FULL}</context-handoff>
    <context-handoff from="prev-prev-task" task="TASK-03" detail-level="SUMMARY">
      <what>short</what>
    </context-handoff>
    <context-handoff from="older" task="TASK-01" detail-level="DROP"/>
  </previous-results>
</dispatch>"""
    assert window(xml) == [
        ("task", "prev-task", "FULL", "TASK-04", "w", "y"),
        ("task", "prev-prev-task", "SUMMARY", "TASK-03", "short", ""),
    ]
    assert read_dispatch(xml).repairs == ("a context-handoff of level DROP left out",)


def test_a_stage_is_of_the_dispatchs_own_task() -> None:
    xml = (
        '<dispatch to="verifier" task="TASK-04"><context-handoff from="builder"'
        ' detail-level="SUMMARY"><what>x</what></context-handoff></dispatch>'
    )
    (context,) = read_dispatch(xml).value.window
    assert (context.edge, context.level) == (Edge.STAGE, DetailLevel.SUMMARY)
    assert (context.task, context.why) == ("TASK-04", None)


# What models write


def test_bare_ampersands_are_text_and_the_result_is_marked() -> None:
    reading = read_result(result("<summary>make &amp;& make test, Q&A, AT&T;</summary>"))
    assert reading.value.summary == "make && make test, Q&A, AT&T;"
    assert reading.repairs == ("bare & or < taken as text",)


def test_entities_are_decoded_once() -> None:
    reading = read_result(result("<notes>a &amp;&amp; b, &amp;lt;i&amp;gt;, &#233;&#xE9;</notes>"))
    assert reading.value.notes == "a && b, &lt;i&gt;, éé"
    assert reading.repairs == ()


def test_a_repair_leaves_entities_and_cdata_as_they_are() -> None:
    xml = result("<summary>a & b &lt;c&gt; &amp;amp;</summary><notes><![CDATA[<x> &amp;]]></notes>")
    assert read(xml).summary == "a & b <c> &amp;"
    assert read(xml).notes == "<x> &amp;"


@pytest.mark.parametrize(
    "text", ["List<String> is <b>gone</b>", "if a < b: <br/>", "x <- y", "a <!-- b", "<![CDATA[ c"]
)
def test_bare_less_than_signs_are_text(text: str) -> None:
    reading = read_result(result(f"<summary>{text}</summary>"))
    assert reading.value.summary == text
    assert reading.repairs


def test_an_attribute_may_hold_a_bare_ampersand_and_a_greater_than_sign() -> None:
    xml = result('<files-changed><file action="created" path="R&D/a>b.md"/></files-changed>')
    assert read(xml).files_changed[0].path == "R&D/a>b.md"


def test_a_repair_leaves_empty_elements_as_they_are() -> None:
    xml = result(
        '<verification><check name="a" status="PASS" />'
        '<check name="b" status="FAIL">x & y</check></verification>'
    )
    assert [(it.name, it.output) for it in read(xml).verification] == [("a", ""), ("b", "x & y")]


@pytest.mark.parametrize("fence", ["```xml\n{}\n```", "```\n{}\n```", "~~~ xml\n{}\n~~~"])
def test_a_fence_is_left_out(fence: str) -> None:
    reading = read_result(fence.format(result("<summary>ok</summary>")))
    assert reading.value.summary == "ok"
    assert reading.repairs == ("text around <task-result> left out",)


def test_a_declaration_of_xml_is_no_repair() -> None:
    text = '\ufeff<?xml version="1.0" encoding="UTF-8"?>\n' + result("<summary>ok</summary>")
    assert read_result(text).repairs == ()


def test_prose_around_the_result_is_left_out_even_where_it_names_the_tag() -> None:
    text = f"Now the `<task-result>`, & it < all:\n{result('', 'FAIL')}\nThat was `</task-result>`."
    assert read(text).status == "FAIL"


def test_reasoning_is_left_out_even_nested_and_with_a_draft_in_it() -> None:
    reading = read_result(
        f"<think>so <think>{result('<summary>draft</summary>')}</think> no</think>"
        f"<Analysis>hm</Analysis><thinking kind='x'>{OPEN}</thinking>"
        + result("<summary>2<reasoning>SECRET</reasoning> are red</summary>", "FAIL")
    )
    assert (reading.value.status, reading.value.summary) == ("FAIL", "2 are red")
    assert reading.repairs == ("reasoning left out",)


def test_what_precedes_the_end_of_a_block_that_the_prompt_opened_is_reasoning() -> None:
    text = f"perhaps {result('')} or not</think>\n{result('', 'FAIL')}"
    assert read(text).status == "FAIL"


def test_a_reasoning_block_that_hides_its_end_in_cdata_hides_no_draft() -> None:
    text = f"<think><![CDATA[</think>{result('')}]]></think>{result('', 'FAIL')}"
    assert read(text).status == "FAIL"


def test_escaped_reasoning_tags_are_text() -> None:
    xml = result("<notes>&lt;think&gt;x&lt;/think&gt; and `<think>`</notes>")
    assert read(xml).notes == "<think>x</think> and `<think>`"


def test_a_commented_draft_is_no_result() -> None:
    text = f"<!-- {result('')} -->{result('', 'FAIL')}"
    assert read(text).status == "FAIL"


@pytest.mark.parametrize(
    ("cdata", "text"),
    [
        ("<![CDATA[if x[y[0]]>2: pass]]>", "if x[y[0]]>2: pass"),
        ("<![CDATA[a <![CDATA[b]]> c]]>", "a <![CDATA[b]]> c"),
        ("<![CDATA[a]]]]><![CDATA[>b]]>", "a]]>b"),
        ("a <![CDATA[<b>]]> & <![CDATA[</notes>]]>", "a <b> & </notes>"),
        ("<![CDATA[<task-result status='FAIL'/><think>]]>", "<task-result status='FAIL'/><think>"),
    ],
)
def test_cdata_is_read_whole(cdata: str, text: str) -> None:
    assert read(result(f"<notes>{cdata}</notes>")).notes == text


def test_names_and_values_are_known_in_any_letter_case() -> None:
    reading = read_result(
        '<Task-Result WORK="WORK-12" Task="task-04" Agent="BUILDER" STATUS="fail">'
        "<SUMMARY>a & b</Summary><Verification><Check Name='Lint' Status='n/a'/></Verification>"
        "</TASK-RESULT>"
    )
    assert reading.value == TaskResult(
        status="FAIL",
        summary="a & b",
        work="WORK-12",
        task="TASK-04",
        agent="builder",
        verification=(Check(name="Lint", status="N/A"),),
    )
    assert "status 'fail' read as FAIL" in reading.repairs
    assert "task 'task-04' read as TASK-04" in reading.repairs
    assert "<Verification> read as <verification>" in reading.repairs


def test_known_values_of_a_dispatch_are_folded_too() -> None:
    xml = (
        '<dispatch to="Verifier" task="task-04" execution-mode="Pipeline"><task-spec>'
        "<action> Verify </action></task-spec><context-handoff from='Builder' detail-level='full'>"
        "<what>x</what></context-handoff></dispatch>"
    )
    value = read_dispatch(xml).value
    assert (value.to, value.task, value.body.action) == ("verifier", "TASK-04", "verify")
    assert (value.window[0].from_, value.window[0].level) == ("builder", DetailLevel.FULL)
    assert value.body.execution_mode == "pipeline"


def test_space_around_text_counts_only_where_the_element_says_so() -> None:
    plain = read(result("<summary>\n  one\n    two\n</summary>"))
    kept = read(result('<summary xml:space="preserve">\n  one\n</summary>'))
    assert plain.summary == "one\n    two"
    assert kept.summary == "\n  one\n"


def test_a_namespace_changes_nothing() -> None:
    xml = result("<summary>ok</summary>").replace(" work", ' xmlns="urn:example" work', 1)
    assert read(xml).summary == "ok"


def test_raw_terminal_output_is_shown_as_pictures() -> None:
    reading = read_result(result("<notes>\x1b[31mred\x1b[0m\x00</notes>"))
    assert reading.value.notes == "␛[31mred␛[0m␀"
    assert reading.repairs == ("characters that XML cannot carry shown as pictures",)


def test_a_self_check_counts_as_verification() -> None:
    xml = result(
        '<self-check><check name="build" status="PASS"/></self-check>'
        '<verification><check name="tests" status="FAIL">1 red</check></verification>'
    )
    assert [check.name for check in read(xml).verification] == ["tests", "build"]


def test_unknown_parts_are_named_and_left_out() -> None:
    reading = read_result(
        result(
            "Stray.<reason>progress.md not found</reason>"
            '<commit><hash>ab12</hash></commit><summary mood="good">ok</summary>'
        )
    )
    assert reading.value.summary == "ok"
    assert reading.repairs == (
        "text directly in <task-result> left out: 'Stray.'",
        "unknown <reason> in <task-result> left out: 'progress.md not found'",
        "unknown <commit> in <task-result> left out: 'ab12'",
        "unknown attribute mood of <summary> left out",
    )


def test_the_same_result_twice_is_one() -> None:
    reading = read_result(result("<summary>ok</summary>") + result("<summary> ok </summary>"))
    assert reading.value.summary == "ok"
    assert "<task-result> stood 2 times, always the same" in reading.repairs


def test_ids_may_be_left_out_or_differ_in_letter_case() -> None:
    expected = {"expected_work": "Work-12", "expected_agent": "Builder-1"}
    assert read_result('<task-result status="PASS"/>', **expected).value.work is None
    reading = read_result(
        '<task-result work="WORK-12" agent="builder-1" status="PASS"/>', **expected
    )
    assert (reading.value.work, reading.value.agent) == ("Work-12", "Builder-1")
    assert "work 'WORK-12' read as Work-12" in reading.repairs
