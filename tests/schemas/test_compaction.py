"""The ten fields of a compaction handoff as text: written, and read from what models write."""

import json
import time

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
FORM = "\n".join(f"{label}:" for label in LABELS.values())


def _camel(field: str) -> str:
    first, *more = field.split("_")
    return first + "".join(map(str.title, more))


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
        json.dumps({"context_compression": {_camel(it): text for it, text in FIELDS.items()}}),
        f"As {{you}} asked:\n{json.dumps(FIELDS)}\nIs that {{enough}}?",
        # The form is shown, and then filled in, or the other way round.
        f"{FORM}\n\n{PLAIN}",
        f"{PLAIN}\n\n{FORM}",
        f"```\n{PLAIN}\n```\nShall I go on?",
        PLAIN.replace("use / stale context:", "use/stale context:").replace("\n", "\r\n"),
        PLAIN.replace("Do not use / stale context:", "Do not use (stale context):"),
        PLAIN.replace(":", "\uff1a"),
    ],
)
def test_what_models_write_is_read(text: str) -> None:
    assert read_compaction(text) == FIELDS


@pytest.mark.parametrize(
    "text",
    [
        "- the parser\n- Completed work is listed in a.md",
        "- Next safe action: that of a.md\n- My role: as before",
        'It writes {"a": 1} and {"completed": 2} to a file.',
        "It ran\n```\nmake check\n```\nand passed.",
    ],
)
def test_whatever_stands_in_a_text_belongs_to_its_label(text: str) -> None:
    told = {"active_project": "demo", "completed": text, "my_role": "builder"}
    written = f"Active project: demo\nCompleted:\n{text}\nMy role: builder"
    assert read_compaction(written) == told
    assert read_compaction(f"```\n{written}\n```") == told


def test_lists_and_values_of_json_are_text() -> None:
    said = {"completed": ["the parser", "a.md"], "my_role": None, "known_blockers": {"b": 1}}
    assert read_compaction(json.dumps(said)) == {
        "completed": "the parser\na.md",
        "known_blockers": '{"b": 1}',
    }
    assert read_compaction(r'{"completed": "a \ud800"}') == {"completed": "a ?"}


@pytest.mark.parametrize("text", ["", "I would rather not.", "Completed:\n\n", "{}", '{"a": 1}'])
def test_what_is_not_said_is_not_there(text: str) -> None:
    assert read_compaction(text) == {}


lines = st.one_of(
    st.text('abc XYZ.,-_*`#>:{}"/é한\t'),
    st.sampled_from([*(f"{label}: x" for label in LABELS.values()), "```", "- Completed: x"]),
)
texts = st.lists(lines, min_size=1).map(
    lambda them: "\n".join(line.rstrip() for line in them).strip()
)


@given(st.lists(texts.filter(bool), min_size=len(LABELS), max_size=len(LABELS)))
def test_what_is_written_is_read_back(told: list[str]) -> None:
    fields = dict(zip(LABELS, told, strict=True))
    assert read_compaction(write_compaction(CompactionHandoff(**fields))) == fields


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert set(read_compaction(text)) <= set(LABELS)


@pytest.mark.parametrize("text", [" " * 200_000, "*" * 200_000, "{" * 200_000, "1" * 200_000])
def test_a_long_text_is_read_in_no_time(text: str) -> None:
    began = time.process_time()
    assert read_compaction(f"{text}x\nMy role: builder") == {"my_role": "builder"}
    assert time.process_time() - began < 2
