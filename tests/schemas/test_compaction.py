"""The ten fields of a compaction handoff as text: written, and read from what models write."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus_schemas import CompactionHandoff
from batonbus_schemas.compaction import HEADING, LABELS, read_compaction, write_compaction

FIELDS = {field: f"Said of {label.lower()}." for field, label in LABELS.items()}
BOLD = "\n".join(f"- **{label}:** {FIELDS[field]}" for field, label in LABELS.items())
HEADINGS = "\n\n".join(f"### {label}\n\n{FIELDS[field]}" for field, label in LABELS.items())
NUMBERED = "\n".join(
    f"{number}. {label.upper()}: {FIELDS[field]}"
    for number, (field, label) in enumerate(LABELS.items(), 1)
)
PLAIN = write_compaction(CompactionHandoff(**FIELDS))


def test_every_field_has_a_label() -> None:
    assert tuple(LABELS) == CompactionHandoff.__struct_fields__
    assert PLAIN.splitlines()[:3] == [HEADING, "", "Active project: Said of active project."]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        BOLD,
        HEADINGS,
        NUMBERED,
        f"Here it is:\n\n```markdown\n{PLAIN}\n```\n",
        json.dumps(FIELDS),
        f"```json\n{json.dumps({LABELS[it]: text for it, text in FIELDS.items()}, indent=2)}\n```",
        # The form is shown, and then filled in.
        "\n".join(f"{label}:" for label in LABELS.values()) + f"\n\n{PLAIN}",
    ],
)
def test_what_models_write_is_read(text: str) -> None:
    assert read_compaction(text) == FIELDS


def test_a_text_of_several_lines_belongs_to_its_label() -> None:
    text = "Completed:\n- the parser\n- Completed work is listed in a.md\nMy role: builder"
    assert read_compaction(text) == {
        "completed": "- the parser\n- Completed work is listed in a.md",
        "my_role": "builder",
    }


@pytest.mark.parametrize("text", ["", "I would rather not.", "Completed:\n\n", "{}", '{"a": 1}'])
def test_what_is_not_said_is_not_there(text: str) -> None:
    assert read_compaction(text) == {}


words = st.text("abc XYZ.,-_/é한\n", min_size=1).map(str.strip).filter(bool)
said = st.lists(words, min_size=len(LABELS), max_size=len(LABELS))


@given(said)
def test_what_is_written_is_read_back(texts: list[str]) -> None:
    fields = {
        field: "\n".join(map(str.rstrip, text.splitlines()))
        for field, text in zip(LABELS, texts, strict=True)
    }
    assert read_compaction(write_compaction(CompactionHandoff(**fields))) == fields


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert set(read_compaction(text)) <= set(LABELS)
