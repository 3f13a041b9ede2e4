import pytest

from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.problems import WorksFileError
from batonbus_agents.works.task import TaskSpec, parse_task, read_task, render_task

TEXT = """# TASK-02: Read tables

## WORK
WORK-07: A parser

## Dependencies
- TASK-01 (required): the lexer

## Scope
Tables are read.

### Not in it
Lists.

## Files
| Path | Action | Description |
|------|--------|-------------|
| `src/table.py` | CREATE | the reader \\| its errors |
| `src/old.py` | 삭제 | |

## Acceptance Criteria
- [ ] a table is read
- [x] an empty table
  is read as well

## Verify
```bash
pytest -k table
# twice
```

and

```
ruff check
```
"""


def test_a_task_is_read_with_its_commands_verbatim() -> None:
    assert parse_task(TEXT, "TASK-02.md") == TaskSpec(
        id="TASK-02",
        title="Read tables",
        work="WORK-07: A parser",
        depends_on=("TASK-01",),
        scope="Tables are read.\n\n### Not in it\nLists.",
        files=(
            FileEntry("src/table.py", "CREATE", "the reader | its errors"),
            FileEntry("src/old.py", "DELETE"),
        ),
        acceptance_criteria=("a table is read", "an empty table is read as well"),
        verify=("pytest -k table\n# twice", "ruff check"),
    )


@pytest.mark.parametrize("language", ["en", "ko", "ja"])
def test_it_is_written_so_that_it_reads_the_same(language: str) -> None:
    spec = parse_task(TEXT, "TASK-02.md")
    assert parse_task(render_task(spec, language), "TASK-02.md") == spec


def test_the_older_heading_is_read() -> None:
    text = "# WORK-01-TASK-02: t\n\n## Dependencies\n- WORK-01-TASK-00 (required)\n"
    spec = parse_task(text, "WORK-01-TASK-02.md")
    assert (spec.id, spec.work, spec.depends_on) == ("TASK-02", "WORK-01", ("TASK-00",))


def test_dependencies_may_stand_in_the_overview_table() -> None:
    text = (
        "# TASK-03: t\n\n## Task 개요\n| 항목 | 내용 |\n|---|---|\n| 의존관계 | TASK-02 완료 후 |\n"
    )
    assert parse_task(text, "TASK-03.md").depends_on == ("TASK-02",)


def test_a_task_that_says_nothing_of_dependencies_leaves_them_to_the_plan() -> None:
    assert parse_task("# TASK-03: t\n", "TASK-03.md").depends_on is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("## Dependencies\n- the lexer\n", "TASK-03.md:4: cannot read what 'the lexer' needs"),
        ("## Dependencies\n- TASK-3\n", "TASK-03.md:4: 'TASK-3' is not the one spelling"),
        (
            "## Files\n| Path | Action |\n|---|---|\n| `/a.py` | CREATE |\n",
            ":6: '/a.py' is absolute",
        ),
        (
            "## Files\n| Path | Action |\n|---|---|\n| `a.py` | READ |\n",
            ":6: Action 'READ' is none",
        ),
        ("## Files\n| Name |\n|---|\n| `a.py` |\n", ":4: the table of files has no column Path"),
        ("## Files\nWhatever is needed.\n", ":4: 'Whatever is needed.' names no file"),
    ],
)
def test_what_cannot_be_read_is_refused_with_file_and_line(text: str, told: str) -> None:
    with pytest.raises(WorksFileError) as caught:
        parse_task(f"# TASK-03: t\n\n{text}", "TASK-03.md")
    assert told in str(caught.value)


def test_everything_that_is_wrong_with_a_file_comes_at_once() -> None:
    text = "# TASK-1: t\n\n## Dependencies\n- all\n\n## Files\n- `../a`\n- `b/`\n"
    with pytest.raises(WorksFileError) as caught:
        parse_task(text, "TASK-01.md")
    assert [problem.line for problem in caught.value.problems] == [1, 4, 7, 8]


def test_checks_without_commands_are_warned_of() -> None:
    reading = read_task("# TASK-03: t\n\n## Verify\n- It works in the browser.\n", "TASK-03.md")
    assert [str(it) for it in reading.problems] == [
        "TASK-03.md:3: warning: Verify has no fenced block of commands: nothing will be run"
    ]
    assert read_task("# TASK-03: t\n\n## Verify\nN/A\n", "TASK-03.md").problems == ()


def test_an_unsafe_path_is_not_written() -> None:
    spec = TaskSpec(id="TASK-03", files=(FileEntry("/etc/passwd", "MODIFY"),))
    with pytest.raises(ValueError, match="absolute"):
        render_task(spec)
