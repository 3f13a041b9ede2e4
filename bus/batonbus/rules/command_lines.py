"""Agents' command lines that know their session, one row each; a new one is a row, or a TOML file.

What each program's documentation says, and what it does not:

- claude: `-p`, stdin, `stream-json` (with `--verbose`), `--resume`, `is_error`, `/compact` as a
  prompt with its `compact_boundary`, `contextWindow` by model. The usage of its result is a sum
  over all requests; what the window holds is in the last message of the main agent. Not: the tokens
  after a compaction, which newer versions print. Its sessions belong to the folder they began in.
- codex: `exec --json`, `-` for stdin, `exec resume ID`. Not: how full the window is. What it prints
  is a sum over the whole session; the last request and the window's size stand in the record that
  it keeps below `~/.codex` (by its source alone). No compaction on its command line.
- gemini: stdin, `--output-format json`, `--resume UUID`. By its source alone: `session_id`. Not: a
  compaction on its command line, nor how full the window is (`stats` are sums).
- hermes: `-z PROMPT` prints the answer and nothing else. Not: a session's id on its output, usage.
  So each handoff is a session of its own.
- openclaw: `agent --session-id ID --message TEXT --json`. By use alone: `payloads`, and that an id
  of ours begins a session. Not: a compaction on its command line, nor how full the window is.
"""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from batonbus.rules.errors import BatonbusError
from batonbus_schemas import Violation
from batonbus_schemas.violations import find_violations

Words = tuple[str, ...]
Tokens = Annotated[int, Meta(ge=1)]


class CommandLineError(BatonbusError, ValueError):
    """A text describes no command line of an agent."""


class Place(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where something stands in what a program prints: in the last JSON object that is so.

    Paths are keys with dots between them; `*` stands for every element or value, `{model}` for
    every key that names the model. `where` says what such an object has at other paths; `at` are
    paths, of which the first that leads anywhere counts (for tokens: all, added up).
    """

    at: Annotated[Words, Meta(min_length=1)]
    where: dict[str, str | bool | int | None] = {}


class CommandLine(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a program is asked, and how its answer is read.

    `start` and `resume` are its words: `{session}` is the session's id (in `start` a new one,
    chosen by us), `{text}` the prompt, which else comes on stdin, `{options}` what the user adds.
    Without `resume` every call is a session of its own; without `compact` (a prompt) a compaction
    is a fresh session. `lost` are words of the error of a session that is not there (any more).
    Without `answer` the whole output is the answer. `failed` is an answer that is an error,
    `compacted` what must be printed by a compaction: the tokens after it. `windows` are sizes by
    model, for what the output does not say. `record` is a file pattern below the home folder, with
    more JSON lines of the session.
    """

    start: Annotated[Words, Meta(min_length=1)]
    resume: Words = ()
    compact: str = ""
    lost: Words = ()
    answer: Place | None = None
    session: Place | None = None
    failed: Place | None = None
    compacted: Place | None = None
    tokens: Place | None = None
    model: Place | None = None
    window: Place | None = None
    windows: dict[str, Tokens] = {}
    record: str = ""

    @property
    def name(self) -> str:
        return self.start[0]

    def with_options(self, options: Sequence[str]) -> "CommandLine":
        """With a user's words in place of `{options}`, or at the end."""
        start, resume = _put(self.start, options), _put(self.resume, options)
        return replace(self, start=start, resume=resume if self.resume else ())


def fill(words: Words, *, session: str, text: str) -> Words:
    """The words of one call."""
    values = {"{session}": session, "{text}": text}
    return tuple(values.get(word, word) for word in words)


def parse_command_line(text: str) -> CommandLine:
    """The command line that a TOML file describes. Raises CommandLineError with what is wrong."""
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CommandLineError(f"is no TOML: {error}") from None
    if found := find_violations(tree, CommandLine, "$"):
        raise CommandLineError("; ".join(map(str, found)))
    line = msgspec.convert(tree, CommandLine)
    if line.resume and "{session}" not in line.resume:
        raise CommandLineError(
            str(Violation(path="$.resume", problem="has no word {session}: which one is it?"))
        )
    return line


def _put(words: Words, options: Sequence[str]) -> Words:
    if "{options}" not in words:
        return (*words, *options)
    at = words.index("{options}")
    return (*words[:at], *options, *words[at + 1 :])


_CLAUDE = ("claude", "-p", "--output-format", "stream-json", "--verbose")
_CLAUDE_SAID: dict[str, str | bool | int | None] = {
    "type": "assistant",
    # A message of a subagent stands in a window of its own.
    "parent_tool_use_id": None,
}
_CODEX_COUNTED: dict[str, str | bool | int | None] = {
    "type": "event_msg",
    "payload.type": "token_count",
}

COMMAND_LINES: Mapping[str, CommandLine] = {
    "claude": CommandLine(
        start=(*_CLAUDE, "{options}"),
        resume=(*_CLAUDE, "--resume", "{session}", "{options}"),
        compact="/compact",
        lost=("No conversation found with session ID",),
        answer=Place(where={"type": "result"}, at=("result",)),
        session=Place(where={"type": "result"}, at=("session_id",)),
        failed=Place(
            where={"type": "result", "is_error": True}, at=("errors.*", "result", "subtype")
        ),
        compacted=Place(
            where={"type": "system", "subtype": "compact_boundary"},
            at=("compact_metadata.post_tokens",),
        ),
        tokens=Place(
            where=_CLAUDE_SAID,
            at=(
                "message.usage.input_tokens",
                "message.usage.cache_read_input_tokens",
                "message.usage.cache_creation_input_tokens",
                "message.usage.output_tokens",
            ),
        ),
        model=Place(where=_CLAUDE_SAID, at=("message.model",)),
        window=Place(where={"type": "result"}, at=("modelUsage.{model}.contextWindow",)),
    ),
    "codex": CommandLine(
        start=("codex", "exec", "{options}", "--json", "-"),
        resume=("codex", "exec", "{options}", "--json", "resume", "{session}", "-"),
        lost=("no rollout found for",),
        answer=Place(
            where={"type": "item.completed", "item.type": "agent_message"}, at=("item.text",)
        ),
        session=Place(where={"type": "thread.started"}, at=("thread_id",)),
        failed=Place(where={"type": "turn.failed"}, at=("error.message",)),
        record=".codex/sessions/*/*/*/rollout-*{session}.jsonl",
        tokens=Place(where=_CODEX_COUNTED, at=("payload.info.last_token_usage.total_tokens",)),
        model=Place(where={"type": "turn_context"}, at=("payload.model",)),
        window=Place(where=_CODEX_COUNTED, at=("payload.info.model_context_window",)),
    ),
    "gemini": CommandLine(
        start=("gemini", "--output-format", "json", "{options}"),
        resume=("gemini", "--output-format", "json", "--resume", "{session}", "{options}"),
        lost=("Error resuming session",),
        answer=Place(at=("response",)),
        session=Place(at=("session_id",)),
        failed=Place(at=("error.message",)),
    ),
    "hermes": CommandLine(start=("hermes", "-z", "{text}", "{options}")),
    "openclaw": CommandLine(
        start=(
            *("openclaw", "agent", "--session-id", "{session}", "--message", "{text}"),
            *("--json", "{options}"),
        ),
        resume=(
            *("openclaw", "agent", "--session-id", "{session}", "--message", "{text}"),
            *("--json", "{options}"),
        ),
        answer=Place(at=("payloads.*.text", "result.payloads.*.text")),
    ),
}
"""By the name that a user says."""
