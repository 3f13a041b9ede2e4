"""Where in a text an XML element stands: a model's answer, cut down to the element that it means.

Models put prose, fences, comments and reasoning around what was asked for, and are cut off in the
middle. This finds the elements of one name without a parser, and is strict where a lenient parser
would guess: a stump, a stray tag or one element inside another is an error.
"""

import re
from collections import Counter
from typing import Literal

from batonbus_schemas.codec import InvalidMessageError
from batonbus_schemas.receipts import Violation

Reason = Literal[
    "forbidden", "no-result", "no-dispatch", "truncated", "contradiction", "ambiguous", "invalid"
]

_GRAVITY: tuple[Reason, ...] = ("contradiction", "ambiguous", "invalid")

EXCERPT_LIMIT = 200
"""Characters of a text that an error or a repair repeats."""

XML_SPACE = " \t\r\n"
"""What XML calls white space."""

_REASONING = ("think", "thinking", "reasoning", "analysis")
_DECLARATION = re.compile(r"<!\s*(?:DOCTYPE|ENTITY)", re.IGNORECASE)
_PROLOG = re.compile(r"\ufeff|<\?xml\s[^<>]*\?>")
_NOT_IN_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CDATA_BOUNDARY = re.compile(r"</|<!\[CDATA\[")


class XmlReadingError(InvalidMessageError):
    """A text that does not hold exactly one whole, valid element; `reason` says in which way."""

    def __init__(self, reason: Reason, violations: tuple[Violation, ...]) -> None:
        super().__init__(violations)
        self.reason: Reason = reason

    def __str__(self) -> str:
        return f"{self.reason}: " + "; ".join(map(str, self.violations))


class Findings:
    """What a reading came upon: `repairs` that it made, and problems that forbid a value."""

    def __init__(self) -> None:
        self.repairs: list[str] = []
        self._problems: list[tuple[Reason, Violation]] = []

    def repair(self, what: str) -> None:
        """Note what was read otherwise than it was written."""
        self.repairs.append(what)

    def problem(self, reason: Reason, path: str, problem: str) -> None:
        """Note something that makes the text unreadable, and go on to find the rest."""
        self._problems.append((reason, Violation(path=path, problem=problem)))

    def check(self) -> None:
        """Raise XmlReadingError with all the problems, if there are any. Its reason is the
        gravest: a contradiction before an ambiguity before anything else."""
        if not self._problems:
            return
        reasons: list[Reason] = [reason for reason, _ in self._problems]
        reasons.sort(key=_GRAVITY.index)
        raise XmlReadingError(reasons[0], tuple(violation for _, violation in self._problems))


def refusal(reason: Reason, path: str, problem: str) -> XmlReadingError:
    """An error with one violation."""
    return XmlReadingError(reason, (Violation(path=path, problem=problem),))


def excerpt(text: str) -> str:
    """The first characters of a text, at most `EXCERPT_LIMIT`."""
    text = text.strip()
    return text if len(text) <= EXCERPT_LIMIT else f"{text[: EXCERPT_LIMIT - 1]}…"


def carriable(text: str) -> str:
    """A text as XML 1.0 can carry it: a control character becomes its picture (U+2400 and on),
    anything else that XML cannot hold U+FFFD."""
    return _NOT_IN_XML.sub(_picture, text)


def escaped(text: str) -> str:
    """A text as the content of an element."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def find_elements(text: str, root: str, findings: Findings) -> list[str]:
    """The sources of all elements of that name in a text, at least one, in any letter case.

    Left out: what stands around them, comments, and reasoning blocks wherever they stand; CDATA
    sections have become escaped text. Raises XmlReadingError where there is none, where a tag is
    cut or stray, where one stands in another, and where anything declares a DOCTYPE or an ENTITY.
    """
    if _DECLARATION.search(text):
        raise refusal(
            "forbidden", "$", "declares a DOCTYPE or an ENTITY: write `&lt;!` where text is meant"
        )
    clean = carriable(text)
    if clean != text:
        findings.repair("characters that XML cannot carry shown as pictures")
    scanner = _Scanner(clean, root, findings)
    scanner.scan()
    around = _PROLOG.sub("", "".join(scanner.around)).strip()
    if not scanner.elements:
        raise refusal(
            "no-result" if root == "task-result" else "no-dispatch",
            "$",
            f"holds no <{root}>: answer with exactly one; it begins: {excerpt(around)!r}",
        )
    if around:
        findings.repair(f"text around <{root}> left out")
    return scanner.elements


def _picture(found: re.Match[str]) -> str:
    code = ord(found.group())
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def _token(root: str) -> re.Pattern[str]:
    """What a scan stops at. No quantifier can give back, and no tag spans a `<`: time is linear."""
    reasoning = "|".join(_REASONING)
    return re.compile(
        r"(?P<opaque><!--|<!\[CDATA\[)"
        rf"|<(?P<close>/?)(?:(?P<root>{root})|(?:[\w.-]++:)?(?P<block>{reasoning}))(?=[\s/>])"
        r"(?P<rest>(?:[^<>\"']|\"[^\"<]*+\"|'[^'<]*+')*+)>"
        rf"|(?P<cut></?{root}(?![\w.:-]))",
        re.IGNORECASE,
    )


class _Scanner:
    """One pass over a text: what is inside the root's tags, what is around, what is reasoning."""

    def __init__(self, text: str, root: str, findings: Findings) -> None:
        self.elements: list[str] = []
        self.around: list[str] = []
        self._inside: list[str] | None = None
        self._blocks: Counter[str] = Counter()
        self._missing: set[str] = set()
        self._text, self._root, self._findings = text, root, findings

    def scan(self) -> None:
        token, at = _token(self._root), 0
        while found := token.search(self._text, at):
            self._keep(self._text[at : found.start()])
            at = self._take(found)
        self._keep(self._text[at:])
        if self._blocks.total():
            raise refusal("truncated", "$", "a reasoning block is never closed: answer shorter")
        if self._inside is not None:
            raise self._truncated()

    def _keep(self, piece: str) -> None:
        if not self._blocks.total():
            (self.around if self._inside is None else self._inside).append(piece)

    def _take(self, found: re.Match[str]) -> int:
        """Act on one token; the place where the scan goes on."""
        at = found.end()
        if self._is_mentioned(found):
            self._keep(found.group())
        elif found["block"]:
            self._take_reasoning(found)
        elif self._blocks.total():
            pass
        elif found["cut"]:
            raise self._broken_tag(found)
        elif found["root"]:
            self._take_root(found)
        elif found["opaque"] == "<!--":
            at = self._take_comment(at)
        else:
            at = self._take_cdata(at)
        return at

    def _is_mentioned(self, found: re.Match[str]) -> bool:
        """Whether the text only speaks of a tag: it stands alone in `backquotes`."""
        if self._blocks.total() or (found["rest"] or "").strip(" /"):
            return False
        if found["opaque"] and self._inside is not None:
            return False
        around = (
            self._text[max(found.start() - 1, 0) : found.start()],
            self._text[found.end() : found.end() + 1],
        )
        return around == ("`", "`")

    def _take_reasoning(self, found: re.Match[str]) -> None:
        name = found["block"].lower()
        self._findings.repair("reasoning left out")
        if not found["close"]:
            self._blocks[name] += 0 if found["rest"].endswith("/") else 1
        elif self._blocks[name]:
            self._blocks[name] -= 1
        elif not self._blocks.total():
            # Some models begin inside a block that their prompt opened: all before is reasoning.
            self.elements.clear()
            self.around.clear()
            self._inside = None

    def _take_root(self, found: re.Match[str]) -> None:
        if found["root"] != self._root:
            self._findings.repair(f"<{found['root']}> read as <{self._root}>")
        if found["close"]:
            self._close()
            return
        if self._inside is not None:
            raise refusal(
                "ambiguous",
                "$",
                f"a <{self._root}> stands inside another: write &lt;{self._root}&gt; in text",
            )
        self._inside = [f"<{self._root}{found['rest']}>"]
        if found["rest"].endswith("/"):
            self._finish(self._inside)

    def _close(self) -> None:
        if self._inside is None:
            raise refusal("invalid", "$", f"a </{self._root}> closes nothing")
        self._inside.append(f"</{self._root}>")
        self._finish(self._inside)

    def _finish(self, pieces: list[str]) -> None:
        self.elements.append("".join(pieces))
        self._inside = None

    def _take_comment(self, start: int) -> int:
        end = self._find("-->", start)
        if end < 0:
            return self._take_literally("<!--", start)
        if self._inside is not None and "</" in self._text[start:end]:
            raise refusal("ambiguous", "$", "a comment holds tags: leave it out, or write &lt;!--")
        self._findings.repair("comments left out")
        return end + len("-->")

    def _take_cdata(self, start: int) -> int:
        """Keep a section of the element as escaped text. One whose text holds `]]>` itself goes on
        to the last `]]>` before the next tag closes or the next section begins."""
        end = self._find("]]>", start) if self._inside is not None else -1
        if end < 0:
            return self._take_literally("<![CDATA[", start)
        while (later := self._find("]]>", end + len("]]>"))) > 0:
            if _CDATA_BOUNDARY.search(self._text, end, later):
                break
            self._findings.repair("a CDATA section holds `]]>`")
            end = later
        self._keep(escaped(self._text[start:end]))
        return end + len("]]>")

    def _take_literally(self, mark: str, start: int) -> int:
        """Keep as text what would begin a comment or a section, if it only ended somewhere."""
        if self._inside is not None:
            self._findings.repair(f"{mark} taken as text")
        self._keep(escaped(mark))
        return start

    def _find(self, mark: str, start: int) -> int:
        """Where the mark stands next, or -1; a mark that is missing is looked for only once."""
        found = -1 if mark in self._missing else self._text.find(mark, start)
        if found < 0:
            self._missing.add(mark)
        return found

    def _broken_tag(self, found: re.Match[str]) -> XmlReadingError:
        if ">" not in self._text[found.end() :]:
            return self._truncated()
        return refusal("invalid", "$", f"the tag {found.group()} is not well-formed")

    def _truncated(self) -> XmlReadingError:
        return refusal(
            "truncated",
            "$",
            f"cut after {len(self._text):,} characters, before </{self._root}>: answer shorter",
        )
