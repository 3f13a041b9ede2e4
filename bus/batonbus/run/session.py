"""An agent's session with a program that knows its own: Claude Code, Codex and others.

    session = Session(find_command_line("claude --model opus"), variables=["ANTHROPIC_API_KEY"])
    answer = await session.run(text)      # a fresh session; later calls go on with it
    answer.text, answer.usage             # usage: measured, estimated, or unknown; never guessed
    await session.reset("compact")        # -> what was done: "compact", or "clear" as the way out

Whatever goes wrong, the next call begins fresh: a session that failed, ran out of time or was
cancelled in the middle is not gone on with, and one that its program does not know any more is
replaced at once, in the same call. So a session can be lost, a handoff cannot. `session.id` is None
where the next call begins fresh, `session.usage` is the last one known. Nothing runs between calls;
a process that is started again begins fresh, too.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from batonbus.logs import log
from batonbus.rules.command_lines import (
    COMMAND_LINES,
    CommandLine,
    CommandLineError,
    fill,
    parse_command_line,
)
from batonbus.rules.compaction import Verb
from batonbus.rules.transcripts import Reading, read_transcript, usage_of
from batonbus.run.program import (
    CommandFailedError,
    Ended,
    ProgramError,
    end_of,
    run_program,
)
from batonbus_schemas import ContextUsage

OUTPUT_LIMIT = 64_000_000
"""Bytes that a session may print in one call: every step stands in it, with what it read."""

RECORD_READ = 4_000_000
"""Bytes from the end of a program's own record that are read."""


class Answer(Struct, frozen=True, kw_only=True):
    """What a session said at the end of a call, and how full the model's window is after it."""

    text: str
    usage: ContextUsage


class _SessionLostError(CommandFailedError):
    """The program does not know the session (any more)."""


class Session:
    """One session of one agent: calls and resets run one after the other.

    Each call may take `time_limit` seconds, and sees a scrubbed environment with those of our
    variables that `variables` names.
    """

    def __init__(
        self, line: CommandLine, *, time_limit: float = 3600.0, variables: Sequence[str] = ()
    ) -> None:
        self.name = line.name
        self.id: str | None = None
        self.usage = ContextUsage()
        self._line = line
        self._time_limit = time_limit
        self._variables = tuple(variables)
        self._cwd: Path | None = None
        self._windows: dict[str, int] = {}
        self._lock = anyio.Lock()

    async def run(
        self, text: str, *, cwd: Path | None = None, extra: Mapping[str, str] | None = None
    ) -> Answer:
        """Ask, and wait for the answer. `cwd` is the folder to work in, `extra` are environment
        variables. Raises CommandFailedError for an error or no answer, ProgramError for a program
        that cannot be run to its end."""
        async with self._lock:
            session, self._cwd = self._leave(), cwd
            try:
                reading = await self._call(text, session, extra)
            except _SessionLostError as error:
                log.warning("session.lost", runtime=self.name, session=session, error=str(error))
                reading = None
            reading = reading or await self._call(text, None, extra)
            if reading.answer is None:
                raise CommandFailedError(f"{self.name} ended with exit code 0 and gave no answer")
            self._resume_with(reading)
            self.usage = self._measured(reading)
            return Answer(text=reading.answer, usage=self.usage)

    async def reset(self, verb: Verb) -> Verb:
        """Compact the session, or clear it: the next call begins fresh. What was done is returned:
        where the program cannot compact, or fails to, the session is cleared."""
        async with self._lock:
            session = self._leave()
            if verb == "clear" or session is None or not self._line.compact:
                return "clear"
            try:
                reading = await self._call(self._line.compact, session, None)
            except (CommandFailedError, ProgramError) as error:
                log.warning("session.not_compacted", runtime=self.name, error=str(error))
                return "clear"
            if self._line.compacted and not reading.is_compacted:
                log.warning("session.not_compacted", runtime=self.name, error="it does not say so")
                return "clear"
            self._resume_with(reading)
            window = min(self._windows.values(), default=None)
            self.usage = usage_of(reading.tokens_after, window, is_estimate=True)
            return "compact"

    def _leave(self) -> str | None:
        """The session to go on with, which is gone until a call has ended well."""
        session, self.id, self.usage = self.id, None, ContextUsage()
        return session

    def _resume_with(self, reading: Reading) -> None:
        self.id = (reading.session or None) if self._line.resume else None

    def _measured(self, reading: Reading) -> ContextUsage:
        """Percent by the smallest window that was ever said of the model."""
        if reading.window is not None:
            known = self._windows.get(reading.model, reading.window)
            self._windows[reading.model] = min(known, reading.window)
        window = self._windows.get(reading.model)
        usage = usage_of(reading.tokens, window)
        # A program that never says it need not be reported each time.
        if usage.source == "unknown" and self._line.tokens:
            log.warning(
                "usage.unknown",
                runtime=self.name,
                model=reading.model,
                tokens=reading.tokens,
                window=window,
            )
        return usage

    async def _call(
        self, prompt: str, session: str | None, extra: Mapping[str, str] | None
    ) -> Reading:
        words = self._line.resume if session else self._line.start
        chosen = session or str(uuid4())
        ended = await run_program(
            fill(words, session=chosen, text=prompt),
            text="" if "{text}" in words else prompt,
            cwd=self._cwd,
            time_limit=self._time_limit,
            variables=self._variables,
            extra=extra,
            output_limit=OUTPUT_LIMIT,
        )
        # Where the words hold an id in any case, it is the session's; else the program says it.
        fixed = chosen if "{session}" in self._line.start else session or ""
        reading = await to_thread.run_sync(_read, self._line, ended, fixed)
        self._check(ended, reading, session)
        return reading

    def _check(self, ended: Ended, reading: Reading, session: str | None) -> None:
        if ended.code == 0 and reading.failure is None:
            return
        stderr = ended.stderr.strip()
        said = end_of(reading.failure or stderr or ended.stdout)
        if session and any(it in f"{reading.failure} {stderr}" for it in self._line.lost):
            raise _SessionLostError(said)
        raise CommandFailedError(f"{self.name} ended with exit code {ended.code}: {said}")


def find_command_line(spec: str) -> CommandLine:
    """The command line of a name and further words, such as `claude --model opus`, or of a TOML
    file, such as `./my-runtime.toml`. Raises CommandLineError where it names none."""
    try:
        words = shlex.split(spec)
    except ValueError as error:
        raise CommandLineError(f"{spec!r}: {error}") from None
    name = words[0] if words else ""
    if name.endswith(".toml"):
        try:
            line = parse_command_line(Path(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise CommandLineError(f"{name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise CommandLineError(f"{name} is no text in UTF-8: {error}") from None
        except CommandLineError as error:
            raise CommandLineError(f"{name}: {error}") from None
    elif name in COMMAND_LINES:
        line = COMMAND_LINES[name]
    else:
        known = ", ".join(COMMAND_LINES)
        raise CommandLineError(f"{name!r} is no known program: use {known}, or a file NAME.toml")
    return line.with_options(words[1:])


def _read(line: CommandLine, ended: Ended, session: str) -> Reading:
    """What a call has said, with the program's own record of it."""
    reading = read_transcript(line, ended.stdout)
    session = reading.session or session
    if session and (record := _record(line, session)):
        reading = read_transcript(line, ended.stdout, record)
    return replace(reading, session=session)


def _record(line: CommandLine, session: str) -> str:
    """The end of the newest record of a session; blank where there is none."""
    if not line.record:
        return ""
    try:
        paths = list(Path.home().glob(line.record.replace("{session}", session)))
        path = max(paths, key=lambda it: it.stat().st_mtime)
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - RECORD_READ, 0))
            return file.read().decode(errors="replace")
    except (OSError, ValueError, RuntimeError):
        return ""
