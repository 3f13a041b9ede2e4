"""A stand-in for Claude Code whose session outlives its process: how full it is, and a log of what
it was asked. The first time that it gets the deadly brief it kills the agent that asked.

`python played_claude.py FOLDER [--resume ID …]`.
"""

import json
import os
import signal
import sys
from pathlib import Path
from uuid import uuid4

from batonbus_schemas import CompactionHandoff
from batonbus_schemas.compaction import write_compaction

WINDOW = 200_000
GROWTH = 30_000
FRESH = 40_000
DEADLY = 17
"""The number of the brief that is deadly."""
TOLD = write_compaction(
    CompactionHandoff(**dict.fromkeys(CompactionHandoff.__struct_fields__, "said"))
)


def main() -> None:
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    session = words[words.index("--resume") + 1] if "--resume" in words else f"s-{uuid4().hex}"
    prompt = sys.stdin.read()
    usage = folder / session
    tokens = int(usage.read_text()) if usage.exists() else FRESH
    kind = kind_of(prompt)
    note(folder / "log", f"{kind} {'--resume' in words} {TOLD in prompt}")
    if f"number {DEADLY}." in prompt and kind == "work" and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    tokens = FRESH if kind == "compact" else tokens + GROWTH * (kind == "work")
    usage.write_text(str(tokens))
    if kind == "compact":
        say({"type": "system", "subtype": "compact_boundary", "compact_metadata": {}})
    model = {"model": "opus", "usage": {"input_tokens": tokens}}
    say({"type": "assistant", "parent_tool_use_id": None, "message": model})
    say(
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": TOLD if kind == "ask" else "Done.",
            "session_id": session,
            "modelUsage": {"opus": {"contextWindow": WINDOW}},
        }
    )


def kind_of(prompt: str) -> str:
    if prompt == "/compact":
        return "compact"
    if prompt.startswith("Begin nothing yet."):
        return "measure"
    return "ask" if prompt.startswith("Your context is about to be") else "work"


def note(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


def say(event: object) -> None:
    sys.stdout.write(f"{json.dumps(event)}\n")


if __name__ == "__main__":
    main()
