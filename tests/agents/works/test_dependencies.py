import pytest

from batonbus_agents.works.dependencies import Graph, parse_needs, read_graph
from batonbus_agents.works.markdown import Document


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(none)", ()),
        ("None", ()),
        ("없음", ()),
        ("なし", ()),
        ("—", ()),
        ("(none) — the first one", ()),
        ("TASK-01", ("TASK-01",)),
        ("TASK-01, TASK-02", ("TASK-01", "TASK-02")),
        ("TASK-01 and TASK-02", ("TASK-01", "TASK-02")),
        ("TASK-01, TASK-01", ("TASK-01",)),
        ("`TASK-01`", ("TASK-01",)),
        ("TASK-02 완료 후", ("TASK-02",)),
        ("TASK-01와 TASK-02", ("TASK-01", "TASK-02")),
        ("TASK-02 完了後", ("TASK-02",)),
        ("WORK-01-TASK-00 (required)", ("TASK-00",)),
        ("TASK-00 (required): the agents' parts", ("TASK-00",)),
    ],
)
def test_what_people_write_is_read(text: str, expected: tuple[str, ...]) -> None:
    assert parse_needs(text, "WORK-01") == expected


@pytest.mark.parametrize(
    "text",
    [
        *("TASK-01~04", "TASK-01..TASK-03", "TASK-01 - TASK-03", "all", "the parser", "required"),
        *("TASK-1", "task-01", "TASK-XX", "not TASK-01", "TASK-01 or TASK-02", "none / TASK-01"),
        *("TASK-01 (see TASK-02)", "TASK-01: unless TASK-02 is done", "WORK-02-TASK-01", "TASK 01"),
    ],
)
def test_what_cannot_be_read_is_refused_and_never_taken_for_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r"TASK-|needs"):
        parse_needs(text, "WORK-01")


def graph(*lines: str) -> Graph:
    document = Document("\n".join(["## Graph", "```", *lines, "```"]))
    return read_graph(document, document.sections[1], "WORK-01")


@pytest.mark.parametrize("arrow", ["→", "->", "-->", "──▶", "──→", "=>", "➜"])
def test_every_arrow_of_a_chain_is_read(arrow: str) -> None:
    drawn = graph(f"TASK-00 {arrow} TASK-01 (two) {arrow} WORK-01-TASK-02")
    assert list(drawn.arrows) == [("TASK-00", "TASK-01"), ("TASK-01", "TASK-02")]
    assert drawn.unclear == {}


def test_tasks_that_are_joined_by_a_comma_are_one_group() -> None:
    drawn = graph("TASK-00, TASK-01 → TASK-02 & TASK-03")
    assert drawn.needs("TASK-02") == drawn.needs("TASK-03") == ("TASK-00", "TASK-01")


def test_boxes_on_one_line_are_read() -> None:
    assert list(graph("│ TASK-02 │──▶ │ TASK-03 │").arrows) == [("TASK-02", "TASK-03")]


@pytest.mark.parametrize(
    "line",
    [
        *(
            "├──→ TASK-01",
            "TASK-00 ─┐",
            "   |",
            "TASK-00 TASK-01 → TASK-02",
            "TASK-00 → 01",
            "    v",
        ),
        *("TASK-00 ← TASK-01", "TASK-00 <-> TASK-01", "TASK-00 → done", "TASK-1 → TASK-02"),
    ],
)
def test_what_is_drawn_across_lines_or_to_nowhere_is_unclear(line: str) -> None:
    assert list(graph(line).unclear) == [3]


def test_an_arrow_inside_a_remark_is_none() -> None:
    assert graph("TASK-00 (a -> b)", "the first -- as ever").arrows == {}
