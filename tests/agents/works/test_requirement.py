import pytest

from batonbus_agents.works.problems import WorksFileError
from batonbus_agents.works.requirement import Requirement, parse_requirement, render_requirement

TEXT = """# Requirement — WORK-07

## Original Request
> Read the tables,
>
> and the lists.

## Functional Requirements
- FR-01: tables
- FR-03: lists

## Non-Functional Requirements
- NFR-01: fast

## Acceptance Criteria
- [ ] a table is read
"""


def test_a_requirement_is_read_word_for_word() -> None:
    assert parse_requirement(TEXT) == Requirement(
        work="WORK-07",
        request="Read the tables,\n\nand the lists.",
        functional=("FR-01: tables", "FR-03: lists"),
        non_functional=("NFR-01: fast",),
        acceptance_criteria=("a table is read",),
    )


def test_the_headings_are_written_in_the_language() -> None:
    text = render_requirement(parse_requirement(TEXT), "ko")
    assert "## 원본 요청\n\n> Read the tables,\n>\n> and the lists." in text
    assert parse_requirement(text) == parse_requirement(TEXT)


def test_a_request_without_a_quote_is_read_too() -> None:
    text = "# Requirement -- WORK-07\n\n## Original Request\nRead the tables.\n"
    assert parse_requirement(text).request == "Read the tables."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# Requirement — WORK-07\n", "no request"),
        ("# WORK-07\n\n## Original Request\n> a\n", "the first heading is not"),
        ("# Requirement — WORK-7\n\n## Original Request\n> a\n", "write WORK-07"),
    ],
)
def test_a_requirement_without_its_work_or_request_is_refused(text: str, told: str) -> None:
    with pytest.raises(WorksFileError, match=told):
        parse_requirement(text)
