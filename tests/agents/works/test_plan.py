import pytest

from batonbus_agents.works.plan import parse_plan, read_plan
from batonbus_agents.works.problems import WorksFileError

HEAD = "# WORK-07: A parser\n\n> Execution-Mode: full\n\n"


def sections(**needs: str) -> str:
    told = (
        f"### {task.replace('_', '-')}: t\n- **Depends on**: {it}\n" for task, it in needs.items()
    )
    return "## Tasks\n\n" + "\n".join(told)


def table(*rows: str, header: str = "| Task ID | Title | Dependencies | Size |") -> str:
    return "\n".join(["## Tasks", "", header, "|---|---|---|---|", *rows, ""])


def drawn(*lines: str) -> str:
    return "\n".join(["## Task Dependency Graph", "```", *lines, "```", ""])


def needs(text: str) -> dict[str, tuple[str, ...]]:
    return {task.id: task.depends_on for task in parse_plan(text).tasks}


def refusals(text: str) -> list[str]:
    with pytest.raises(WorksFileError) as caught:
        parse_plan(text, "works/WORK-07/PLAN.md")
    return [str(problem) for problem in caught.value.problems]


def test_a_plan_without_a_mode_runs_in_full() -> None:
    assert parse_plan("# WORK-07: t\n" + sections(TASK_00="(none)")).mode == "full"


@pytest.mark.parametrize(
    "meta",
    [
        "> Execution-Mode: pipeline\n> Project: p\n> Tech Stack: s\n> Language: ko\n"
        "> Requirement: r",
        "> 실행 모드: pipeline\n> 프로젝트: p\n> 기술 스택: s\n> 언어: ko\n> 요구사항: r",
        "> 実行モード: Pipeline\n> プロジェクト: p\n> 技術スタック: s\n> 言語\uff1ako\n> 要件: r",
    ],
)
def test_the_keys_are_read_in_three_languages(meta: str) -> None:
    plan = parse_plan(f"# WORK-07: t\n\n{meta}\n\n{sections(TASK_00='(none)')}")
    assert (plan.mode, plan.project, plan.tech_stack) == ("pipeline", "p", "s")
    assert (plan.language, plan.requirement) == ("ko", "r")


@pytest.mark.parametrize("heading", ["Goal", "목표", "目標"])
def test_the_goal_is_read_in_three_languages(heading: str) -> None:
    text = f"{HEAD}## {heading}\n\nOne\n\n- two\n\n{sections(TASK_00='(none)')}"
    assert parse_plan(text).goal == "One\n\n- two"


def test_an_unknown_mode_is_refused() -> None:
    text = "# WORK-07: t\n> Execution-Mode: turbo\n\n" + sections(TASK_00="(none)")
    assert refusals(text) == [
        "works/WORK-07/PLAN.md:2: Execution-Mode 'turbo' is none of direct, pipeline, full"
    ]


@pytest.mark.parametrize("title", ["# PLAN WORK-07: t", "# WORK-7: t", "# A plan", "## WORK-07: t"])
def test_a_plan_that_does_not_begin_with_its_work_is_refused(title: str) -> None:
    (refusal,) = refusals(f"{title}\n\n{sections(TASK_00='(none)')}")
    assert "the first heading is not '# WORK-NN: title'" in refusal


def test_dependencies_come_from_the_sections() -> None:
    assert needs(HEAD + sections(TASK_00="(none)", TASK_01="TASK-00")) == {
        "TASK-00": (),
        "TASK-01": ("TASK-00",),
    }


def test_dependencies_come_from_the_column_of_the_table_that_is_called_so() -> None:
    text = HEAD + table("| TASK-01 | a | 없음 | S |", "| TASK-02 | b | TASK-01 | L |", "| | | | |")
    assert needs(text) == {"TASK-01": (), "TASK-02": ("TASK-01",)}


def test_dependencies_come_from_the_graph_where_nothing_else_tells_them() -> None:
    text = HEAD + drawn("TASK-00 ──▶ TASK-01 ──▶ TASK-02")
    assert needs(text) == {"TASK-00": (), "TASK-01": ("TASK-00",), "TASK-02": ("TASK-01",)}


def test_a_graph_that_cannot_be_read_is_refused_where_nothing_else_tells() -> None:
    (refusal,) = refusals(HEAD + drawn("TASK-00", "   ├──→ TASK-01"))
    assert refusal.startswith("works/WORK-07/PLAN.md:8: an arrow does not stand between tasks")


def test_a_graph_that_is_drawn_across_lines_does_not_stand_against_the_sections() -> None:
    text = HEAD + drawn("TASK-00", "   +---> TASK-01") + sections(TASK_00="-", TASK_01="TASK-00")
    assert needs(text)["TASK-01"] == ("TASK-00",)


def test_sections_and_table_that_disagree_are_refused_naming_both() -> None:
    text = f"{HEAD}## Tasks\n| Task | Deps |\n|---|---|\n| TASK-01 | TASK-00 |\n\n"
    text += "### TASK-00: a\n- Depends on: (none)\n### TASK-01: b\n- Depends on: (none)\n"
    (refusal,) = refusals(text)
    assert (
        "TASK-01 needs nothing (its section, line 13), and TASK-00 (the task table, line 8)"
        in refusal
    )


def test_an_arrow_that_no_section_tells_of_is_refused_naming_both() -> None:
    text = HEAD + drawn("TASK-00 → TASK-01") + sections(TASK_00="(none)", TASK_01="(none)")
    (refusal,) = refusals(text)
    assert (
        ":7: the graph draws TASK-00 → TASK-01, and TASK-01 needs nothing (its section" in refusal
    )


def test_a_dependency_that_a_readable_graph_does_not_draw_is_refused() -> None:
    text = HEAD + drawn("TASK-00", "TASK-01") + sections(TASK_00="(none)", TASK_01="TASK-00")
    (refusal,) = refusals(text)
    assert "TASK-01 needs TASK-00 (its section" in refusal
    assert "the graph (line 7) draws no way from TASK-00" in refusal


def test_a_dependency_may_be_drawn_by_way_of_another_task() -> None:
    text = HEAD + drawn("TASK-00 → TASK-01 → TASK-02")
    text += sections(TASK_00="-", TASK_01="TASK-00", TASK_02="TASK-00, TASK-01")
    assert needs(text)["TASK-02"] == ("TASK-00", "TASK-01")


def test_a_graph_that_draws_a_task_that_is_none_is_refused() -> None:
    (refusal,) = refusals(HEAD + drawn("TASK-00", "TASK-09") + sections(TASK_00="(none)"))
    assert ":8: the graph draws TASK-09, which is no task of this plan" in refusal


@pytest.mark.parametrize("said", ["the parser first", "TASK-00~02", "TASK-1", "TASK-00 or TASK-01"])
def test_a_dependency_that_cannot_be_read_is_refused_with_file_and_line(said: str) -> None:
    (refusal,) = refusals(HEAD + sections(TASK_00=said))
    assert refusal.startswith("works/WORK-07/PLAN.md:8: TASK-00: ")


def test_a_column_of_tasks_with_a_name_that_is_not_known_is_refused() -> None:
    header = "| Task ID | Title | Comes behind | Size |"
    (refusal,) = refusals(
        HEAD + table("| TASK-01 | a | | S |", "| TASK-02 | b | TASK-01 | S |", header=header)
    )
    assert "column 'Comes behind' names tasks and is not known: call it Dependencies" in refusal


def test_a_label_of_tasks_that_is_not_known_is_refused() -> None:
    (refusal,) = refusals(
        f"{HEAD}## Tasks\n### TASK-00: a\n### TASK-01: b\n- **Behind**: TASK-00\n"
    )
    assert ":8: 'Behind' is not known here: write 'Depends on'" in refusal


def test_a_plan_with_a_table_of_seven_columns_and_a_graph_of_boxes_is_read() -> None:
    text = """# WORK-56: 문서 현행화

> Language: ko

## 작업 목록
| Task ID | 제목 | 의존관계 | Phase | 우선순위 | 매핑 FR/NFR | 예상 규모 |
|---------|------|----------|-------|----------|-------------|-----------|
| TASK-01 | 첫째 | 없음 | 1 | Must | FR-01 | M |
| TASK-02 | 둘째 | TASK-01 완료 후 | 2 | Must | FR-02 | L |
| TASK-03 | 셋째 | 없음 | 1 | Should | NFR-01 | S |

## Task 의존성 그래프
```
Phase 1              Phase 2
┌─────────┐        ┌─────────┐
│ TASK-01 │──────▶ │ TASK-02 │ (직렬)
└─────────┘        └─────────┘
┌─────────┐
│ TASK-03 │
└─────────┘
```

## 추적성 매트릭스
| FR/NFR | Task |
|--------|------|
| FR-01 | TASK-01 |
"""
    assert needs(text) == {"TASK-01": (), "TASK-02": ("TASK-01",), "TASK-03": ()}
    assert [task.title for task in parse_plan(text).tasks] == ["첫째", "둘째", "셋째"]


def test_cycles_unknown_and_double_tasks_come_in_one_answer_with_their_lines() -> None:
    text = HEAD + sections(
        TASK_01="TASK-03",
        TASK_02="TASK-01",
        TASK_03="TASK-02",
        TASK_04="TASK-04",
        TASK_05="TASK-99",
    )
    found = refusals(text + "### TASK-05: again\n- Depends on: (none)\n")
    assert [it.split(":", 2)[1:] for it in found] == [
        ["7", " a cycle: TASK-01 needs TASK-03 needs TASK-02 needs TASK-01"],
        ["16", " TASK-04 needs itself"],
        ["19", " TASK-05 needs TASK-99, which is no task here"],
        ["21", " TASK-05 is there twice: give each task its id"],
    ]


def test_a_heading_that_means_a_task_and_does_not_spell_it_is_refused() -> None:
    found = refusals(f"{HEAD}## Tasks\n### TASK-1: a\n### Task 2: b\n### TASK-03: c\n")
    assert ["write TASK-01" in found[0], "write 'TASK-NN: title'" in found[1]] == [True, True]


def test_a_plan_without_tasks_is_refused() -> None:
    (refusal,) = refusals(HEAD + "## Goal\n\nNothing yet.\n")
    assert "the plan names no task" in refusal


def test_scope_and_files_are_kept_whole() -> None:
    text = (
        f"{HEAD}## Tasks\n### WORK-07-TASK-00: a\n- **Depends on**: (none)\n"
        "- **Scope**: One\n  two\n- **Files**:\n  - `src/a.py` — MODIFY\n  - `b.py` — the rest\n"
        "- **Verify**:\n  ```bash\n  - **Scope**: no\n  ```\n"
    )
    (task,) = parse_plan(text).tasks
    assert (task.id, task.scope) == ("TASK-00", "One\ntwo")
    assert [(file.path, file.action) for file in task.files] == [
        ("src/a.py", "MODIFY"),
        ("b.py", None),
    ]


@pytest.mark.parametrize("path", ["../a.py", "/a.py", "src/*.py", "src/", "src\\a.py"])
def test_a_file_that_may_not_be_declared_is_refused_with_its_line(path: str) -> None:
    (refusal,) = refusals(f"{HEAD}## Tasks\n### TASK-00: a\n- **Files**:\n  - `{path}`\n")
    assert refusal.startswith(f"works/WORK-07/PLAN.md:8: {path!r}")


def test_a_plan_with_a_bom_and_crlf_reads_the_same() -> None:
    text = HEAD + sections(TASK_00="(none)", TASK_01="TASK-00")
    assert parse_plan("\ufeff" + text.replace("\n", "\r\n")) == parse_plan(text)


def test_a_day_that_is_none_is_warned_of_and_refuses_nothing() -> None:
    reading = read_plan("# WORK-07: t\n> Created: soon\n\n" + sections(TASK_00="(none)"))
    assert [str(it) for it in reading.problems] == [
        "PLAN.md:2: warning: Created 'soon' is no day: write it as 2026-07-24"
    ]
    assert reading.whole().created is None
