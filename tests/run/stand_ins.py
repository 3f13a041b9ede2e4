"""Stand-ins for agents' programs: they print what those document, or something broken."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batonbus.run.session import Session, find_command_line

STAND_IN = """\
#!/bin/sh
cd {folder} || exit 9
n=$(($(cat count 2>/dev/null || echo 0) + 1)); echo $n > count
printf '%s\\0' "$@" > args.$n
cat > asked.$n
while [ -e wait.$n ]; do sleep 0.01; done
[ -e out.$n ] || {{ echo "call $n was not expected" >&2; exit 9; }}
cat err.$n >&2; cat out.$n; exit $(cat code.$n)
"""

Play = Callable[..., "Program"]


@dataclass
class Program:
    """A stand-in that answers its calls in order, and what it was asked."""

    folder: Path

    @property
    def calls(self) -> int:
        return int((self.folder / "count").read_text())

    def words(self, call: int) -> list[str]:
        return (self.folder / f"args.{call}").read_text().split("\0")[:-1]

    def hold(self, call: int) -> None:
        """Let this call wait until it is released."""
        (self.folder / f"wait.{call}").touch()

    def release(self, call: int) -> None:
        (self.folder / f"wait.{call}").unlink()

    def asked(self, call: int) -> str:
        return (self.folder / f"asked.{call}").read_text()


def lines(*events: object) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


def claude(text: str, *, session: str = "s-1", tokens: int = 50_000, window: int = 200_000) -> str:
    """What claude prints for a turn."""
    message = {"model": "opus", "usage": {"input_tokens": tokens, "output_tokens": 0}}
    return lines(
        {"type": "assistant", "parent_tool_use_id": None, "message": message},
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": text,
            "session_id": session,
            "modelUsage": {"opus": {"contextWindow": window}},
        },
    )


def claude_failed(text: str) -> tuple[str, int, str]:
    ended = {"type": "result", "subtype": "error_during_execution", "is_error": True}
    return lines(ended | {"errors": [text], "session_id": "s-new"}), 1, ""


def session_of(spec: str, **options: Any) -> Session:
    return Session(find_command_line(spec), **({"time_limit": 10.0} | options))


CLAUDE = ["-p", "--output-format", "stream-json", "--verbose"]
LOST = "No conversation found with session ID: s-1"
COMPACTED = {
    "type": "system",
    "subtype": "compact_boundary",
    "compact_metadata": {"trigger": "manual", "pre_tokens": 160_000, "post_tokens": 40_000},
}
