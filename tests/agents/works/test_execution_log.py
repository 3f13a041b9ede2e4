from datetime import UTC, datetime

import pytest

from batonbus_agents.works.execution_log import (
    LogEntry,
    read_log,
    render_entry,
    render_log,
)
from batonbus_agents.works.problems import WorksFileError

ENTRY = LogEntry(
    written=datetime(2026, 7, 24, 10, 15, 30, tzinfo=UTC),
    summary="tables are read",
    phase="implement",
    did="Wrote the reader.\n- and its tests",
    checks="pytest: 12 passed",
    next="TASK-03: read lists, from src/table.py",
    context="cleared: phase boundary",
)
TEXT = """### 2026-07-24T10:15:30Z — tables are read

- **Phase**: implement
- **Did**: Wrote the reader.
  - and its tests
- **Checks**: pytest: 12 passed
- **Next**: TASK-03: read lists, from src/table.py
- **Context**: cleared: phase boundary
"""


def test_an_entry_is_written_and_read_in_the_seeds_form() -> None:
    assert render_entry(ENTRY) == TEXT
    assert read_log(render_log("WORK-07", (ENTRY, ENTRY))).whole() == (ENTRY, ENTRY)


def test_other_sections_and_labels_of_a_log_are_passed_over() -> None:
    text = (
        "---\nphase: implementation\n---\n\n# Execution Log\n\n## Phase transitions\n\n| Phase |\n"
        "|---|\n| design |\n\n## Progress entries\n\n### 2026-07-24T19:15:30+09:00 – s\n\n"
        "- **Phase:** implement\n- **Did:** a\n  b\n- **Checkpoint/tests:** c\n- **Next:** d\n"
        "- **Blockers:** none\n- **Context:** e\n\n## Review cycles\n\nNone.\n"
    )
    assert read_log(text).whole() == (
        LogEntry(
            written=ENTRY.written,
            summary="s",
            phase="implement",
            did="a\nb",
            checks="c",
            next="d",
            context="e",
        ),
    )


@pytest.mark.parametrize("label", ["Phase", "Did", "Checks", "Next", "Context"])
def test_an_entry_that_lacks_a_field_is_refused(label: str) -> None:
    lines = [it for it in TEXT.splitlines() if not it.startswith((f"- **{label}**", "  - and"))]
    with pytest.raises(WorksFileError) as caught:
        read_log("\n".join(lines)).whole()
    assert str(caught.value) == (
        f"execution-log.md:1: {label} is empty: this entry is no checkpoint"
    )


@pytest.mark.parametrize("empty", ["", "None", "—", "없음"])
def test_an_entry_without_its_next_step_is_refused(empty: str) -> None:
    text = TEXT.replace("TASK-03: read lists, from src/table.py", empty)
    with pytest.raises(WorksFileError, match="Next is empty"):
        read_log(text).whole()


def test_an_entry_whose_moment_has_no_zone_is_refused_and_is_none() -> None:
    reading = read_log(TEXT.replace("30Z", "30") + "\n" + TEXT)
    assert reading.value == (ENTRY,)
    assert [str(it) for it in reading.problems] == [
        "execution-log.md:1: '2026-07-24T10:15:30' has no zone: add it, as in 2026-07-24T10:15:30Z"
    ]
