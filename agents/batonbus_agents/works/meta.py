"""The block quote under a file's first heading: `> Key: value`."""

from collections.abc import Iterable

from batonbus_agents.works.markdown import Document, one_line, split_label
from batonbus_agents.works.problems import Problems
from batonbus_agents.works.words import Words, is_nothing, key_of


class Meta:
    """The quoted lines by the key of their row in `words`. A key that stands twice is refused."""

    def __init__(self, document: Document, words: Words, problems: Problems) -> None:
        self._found: dict[str, tuple[int, str]] = {}
        for section in document.sections:
            for entry in section.quoted() if section.level < 2 else ():
                label = split_label(entry.text)
                key = key_of(label[1], words) if label else None
                if label is not None and key is not None:
                    self._keep(key, label[2].strip(), entry.line, problems)

    def _keep(self, key: str, value: str, line: int, problems: Problems) -> None:
        first, known = self._found.setdefault(key, (line, value))
        if known != value:
            problems.refuse(line, f"{value!r} contradicts {known!r} of line {first}: keep one")

    def value(self, key: str) -> str:
        """What stands behind a key; nothing where it is absent, `N/A` or `(none)`."""
        value = self._found[key][1] if key in self._found else ""
        return "" if is_nothing(value) else value

    def line(self, key: str) -> int:
        return self._found[key][0] if key in self._found else 1


def render_meta(lines: Iterable[tuple[str, str]]) -> str:
    """The block quote; a key without a value is left out."""
    told = [(key, one_line(value)) for key, value in lines]
    return "\n".join(f"> {key}: {value}" for key, value in told if value)
