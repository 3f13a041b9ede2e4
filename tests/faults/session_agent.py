"""A builder that is a program with a session, and is killed with -9 around the steps of a reset.

`python session_agent.py`: FAULTS_SESSION names the folder where the session is kept, its log, and a
file for each crash that is not to happen (again).
"""

import os
import sys
from pathlib import Path

import anyio
from gate_agent import FOLDER, set_crash_points
from msgspec.structs import replace

from batonbus import CommandLine, Session, find_command_line
from batonbus.run.bus import serve
from batonbus.run.session_agent import session_agent

PROGRAM = str(Path(__file__).parent / "played_claude.py")


def command_line() -> CommandLine:
    """That of Claude Code, but for the program's name."""
    line = find_command_line("claude")
    played = (sys.executable, PROGRAM, str(FOLDER))
    return replace(line, start=(*played, *line.start[1:]), resume=(*played, *line.resume[1:]))


if __name__ == "__main__":
    set_crash_points()
    agent = session_agent("builder", Session(command_line()), id="builder-1")
    anyio.run(lambda: serve(agent, os.environ["BATONBUS_URL"], fleet=os.environ["BATONBUS_FLEET"]))
