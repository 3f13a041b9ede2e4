from datetime import UTC, datetime

import pytest

from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.handoff import StageContext
from batonbus_agents.works.problems import WorksFileError
from batonbus_agents.works.result import (
    Criterion,
    Result,
    parse_result,
    read_result,
    render_result,
)
from batonbus_schemas.context import ContextHandoff, DetailLevel

FILE = "works/WORK-07/TASK-03_result.md"
HEAD = "# TASK-03 Result\n\n> WORK: WORK-07 — A parser\n> Status: **DONE**\n\n"


def contexts(text: str) -> tuple[StageContext, ...]:
    return parse_result(HEAD + text, FILE).contexts


def test_the_full_form_is_written_as_the_seed_has_it() -> None:
    result = Result(
        task="TASK-03",
        work="WORK-07 — A parser",
        completed=datetime(2026, 7, 24, 10, 15, tzinfo=UTC),
        summary="The parser reads tables.",
        checklist=(Criterion("tables are read"), Criterion("lists are read", met=False)),
        verification="- Build: PASS",
        files=(FileEntry("src/a.py", "CREATE", "the parser"), FileEntry("b.py", "MODIFY")),
        contexts=(
            StageContext(
                role="builder", level=DetailLevel.SUMMARY, handoff=ContextHandoff(what="Wrote it.")
            ),
            StageContext(
                role="verifier", handoff=ContextHandoff(what="Ran it.\nTwice.", caution="Slow.")
            ),
        ),
    )
    assert render_result(result, "ja") == (
        "# TASK-03 Result\n\n"
        "> WORK: WORK-07 — A parser\n"
        "> Completed: 2026-07-24T10:15:00Z\n"
        "> Status: **DONE**\n\n"
        "## サマリー\n\nThe parser reads tables.\n\n"
        "## 完了チェックリスト\n\n- [x] tables are read\n- [ ] lists are read\n\n"
        "## 検証結果\n\n- Build: PASS\n\n"
        "## 変更ファイル\n\n### Created\n- `src/a.py` — the parser\n\n### Modified\n- `b.py`\n\n"
        "## コンテキスト引き継ぎ\n\n"
        "### Builder Context (SUMMARY)\n- **what**: Wrote it.\n\n"
        "### Verifier Context (FULL)\n- **what**: Ran it.\n  Twice.\n- **caution**: Slow.\n"
        "- **incomplete**: None\n"
    )


def test_the_direct_form_is_read() -> None:
    text = (
        "# TASK-00 Result\n\n> WORK: WORK-07 — A parser\n> Execution-Mode: direct\n"
        "> Status: **DONE**\n> Commit: `1a2b3c4`\n\n## 요약\nDone.\n\n## 변경 파일\n"
        "- `a.py` — the parser\n\n## 검증\n- Build: PASS (self-check)\n"
    )
    assert parse_result(text, "TASK-00_result.md") == Result(
        task="TASK-00",
        work="WORK-07 — A parser",
        mode="direct",
        commit="1a2b3c4",
        summary="Done.",
        files=(FileEntry("a.py", None, "the parser"),),
        verification="- Build: PASS (self-check)",
    )


def test_a_table_of_files_is_read_by_its_header() -> None:
    text = "## 변경 파일\n| 경로 | 변경 사항 | 라인 |\n|---|---|---|\n| a/b.md | S1 | L3 |\n"
    assert parse_result(HEAD + text, FILE).files == (FileEntry("a/b.md", None, "S1"),)


def test_a_sentence_instead_of_files_is_warned_of() -> None:
    reading = read_result(f"{HEAD}## Files Changed\n**Nothing but checks.**\n", FILE)
    assert reading.whole().files == ()
    assert [it.warning for it in reading.problems] == [True]


def test_a_result_without_a_context_handoff_has_none() -> None:
    result = parse_result(f"{HEAD}## Summary\n\nDone.\n", FILE)
    assert result.contexts == ()
    assert result.context_handoff is None


@pytest.mark.parametrize(
    "heading", ["Context Handoff", "컨텍스트 핸드오프", "コンテキスト引き継ぎ", "context handoff"]
)
@pytest.mark.parametrize(
    "stage",
    [
        *("Verifier Context (FULL)", "Verifier Context", "verifier context — full"),
        *(
            "Verifier Context \uff08FULL\uff09",
            "검증자 컨텍스트 (FULL)",
            "検証者コンテキスト (FULL)",
        ),
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        "- **what**: A\n- **why**: B\n- **caution**: C\n- **incomplete**: D\n",
        "**what**: A\n\n**why**: B\n\n**caution**: C\n\n**incomplete**: D\n",
        "**what**: A\n**why**: B\n**caution**: C\n**incomplete**: D\n",
        "- what: A\n- why: B\n- caution: C\n- incomplete: D\n",
        "- **What:** A\n- **Why:** B\n- **Caution:** C\n- **Incomplete:** D\n",
        "A\n\n**Why**: B\n\n**Caution**\uff1aC\n\n**Incomplete**: D\n",
        "- **무엇**: A\n- **이유**: B\n- **주의**: C\n- **미완료**: D\n",
        "- **何を**: A\n- **理由**: B\n- **注意**: C\n- **未完了**: D\n",
    ],
)
def test_a_context_is_read_in_every_form(heading: str, stage: str, fields: str) -> None:
    assert contexts(f"## {heading}\n\n### {stage}\n\n{fields}") == (
        StageContext(
            role="verifier",
            handoff=ContextHandoff(what="A", why="B", caution="C", incomplete="D"),
        ),
    )


def test_fields_of_several_lines_are_kept_whole() -> None:
    text = (
        "## Context Handoff\n\n### Builder Context (FULL)\n- **what**: One\n  two\n\n"
        "  - **why**: of two\n  ```\n  # code\n  ```\n- **why**: Because\nof it\n"
        "- **Note**: kept\n\n## Issues Encountered\n\nNone\n"
    )
    (context,) = contexts(text)
    assert context.handoff.what == "One\ntwo\n\n- **why**: of two\n```\n# code\n```"
    assert context.handoff.why == "Because\nof it\n- **Note**: kept"


def test_a_label_inside_code_is_no_label() -> None:
    text = "## Context Handoff\n\n### Builder Context\n**what**: A\n\n```\n**why**: no\n```\n"
    (context,) = contexts(text)
    assert context.handoff.what == "A\n\n```\n**why**: no\n```"
    assert context.handoff.why == ""


def test_prose_alone_is_what_was_done() -> None:
    (context,) = contexts("## Context Handoff\n\n### Builder Context (SUMMARY)\nOne.\nTwo.\n")
    assert (context.level, context.handoff.what) == (DetailLevel.SUMMARY, "One.\nTwo.")


def test_the_four_fields_may_stand_without_a_stage() -> None:
    (context,) = contexts("## Context Handoff\n\n- **what**: A\n- **why**: B\n")
    assert (context.role, context.handoff.why) == ("", "B")


def test_a_section_that_says_none_is_none() -> None:
    assert contexts("## Context Handoff\n\nNone\n") == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("## Context Handoff\n", ":6: the context handoff is empty"),
        ("## Context Handoff\n\n### Notes\nA\n", ":8: 'Notes' in the context handoff is not"),
        (
            "## Context Handoff\n### Builder Context (FULL)\n",
            ":7: 'Builder Context (FULL)' does not",
        ),
        (
            "## Context Handoff\n### Builder Context\n- **why**: B\n",
            ":7: 'Builder Context' does not say what was done",
        ),
        (
            "## Context Handoff\n### Builder Context\n- **what**: A\n- **what**: B\n",
            ":9: 'what' stands twice in 'Builder Context'",
        ),
    ],
)
def test_a_context_that_is_there_and_cannot_be_read_is_refused(text: str, told: str) -> None:
    with pytest.raises(WorksFileError) as caught:
        contexts(text)
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{FILE}{told}")


def test_the_tasks_context_is_the_builders_with_the_verifiers_cautions_joined() -> None:
    stages = (
        ContextHandoff(what="Wrote it.", why="Asked.", caution="Slow.", incomplete="None"),
        ContextHandoff(what="Ran it.", why="Read it.", caution="Flaky.", incomplete="No browser."),
    )
    result = Result(
        task="TASK-03",
        contexts=tuple(
            StageContext(role=role, handoff=it)
            for role, it in zip(("builder", "verifier"), stages, strict=True)
        ),
    )
    assert result.context_handoff == ContextHandoff(
        what="Wrote it.", why="Asked.", caution="Slow.\nFlaky.", incomplete="No browser."
    )
