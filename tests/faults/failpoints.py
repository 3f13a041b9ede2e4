"""Run a program with failpoints: named steps of a hop at which it is hit, once for each arming.

`python failpoints.py -m batonbus agent …`, or with a script in place of `-m MODULE`. FAULTS_ARMED
names a folder in which a file named like a step arms it; the file's text is the action. Who reaches
the step takes the file away, leaves one line in the file that FAULTS_FIRED names, and does it.

Steps, with KIND the kind of an event (`sent`, `delivered` …):

    before-KIND      encoded, not published      read      the window manager has it in hand
    unanswered-KIND  stored, its writer is not told        received  an agent has it in hand
    after-KIND       stored, nothing else done   effect    the handler's effect is done
    sent-on          between two sends of a handler        acked     the message is acked

Actions: `kill` (-9), `stop SECONDS` (SIGSTOP, then SIGCONT), `delay SECONDS`, `raise`, and at
`read` and `received` also `duplicate`: the server hands the message out again at once.
"""

import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import fault_agents
from nats.aio.msg import Msg

from batonbus import Context, Sent
from batonbus.run.compaction import Compactor
from batonbus.run.handling import Handling, Lease
from batonbus.run.window_manager import WindowManager
from batonbus.wire.feed import Received
from batonbus.wire.ledger import Draft, Ledger
from batonbus.wire.publisher import NOT_WAITING, Publisher
from batonbus.wire.subjects import Subject

ARMED = "FAULTS_ARMED"
FIRED = "FAULTS_FIRED"


class FailpointError(Exception):
    """Raised on purpose."""


def take(step: str) -> list[str]:
    """The words of the action that this step is armed with, which disarms it; [] if it is not."""
    armed = Path(os.environ[ARMED]) / step
    taken = armed.with_name(f".{step}.{os.getpid()}")
    try:
        armed.rename(taken)
    except FileNotFoundError:
        return []
    action = taken.read_text()
    taken.unlink()
    fault_agents.write_line(os.environ[FIRED], f"{armed.parent.name} {step} {action}")
    return action.split()


def strike(step: str, action: list[str]) -> float:
    """Do what can be done at once; returns the seconds that the step is to be delayed."""
    match action:
        case ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["stop", seconds]:
            # Somebody must be left to wake us.
            wake = f"sleep {seconds}; kill -CONT {os.getpid()}"
            subprocess.Popen(["/bin/sh", "-c", wake])
            os.kill(os.getpid(), signal.SIGSTOP)
        case ["delay", seconds]:
            return float(seconds)
        case ["raise"]:
            raise FailpointError(f"raised at {step}")
        case _:
            pass
    return 0.0


async def reach(step: str, received: Received | None = None) -> None:
    """A step is reached."""
    action = take(step)
    if received is not None and action == ["duplicate"]:
        await received.nak(0)
    await anyio.sleep(strike(step, action))


def set_failpoints() -> None:
    """Make every step of this process a place where it can be hit."""
    _set_on_writes()
    _set_on_messages()
    _set_on_handlers()


def _set_on_writes() -> None:
    append, on_answer = Ledger.append, Publisher._on_answer

    async def append_(self: Ledger, draft: Draft, *, tail: int) -> int:
        await reach(f"before-{draft.subject.kind}")
        sequence = await append(self, draft, tail=tail)
        await reach(f"after-{draft.subject.kind}")
        return sequence

    async def on_answer_(self: Publisher, message: Msg) -> None:
        number = message.subject[len(self._prefix) :]
        subject = Subject.parse(self._waiting.get(number, NOT_WAITING)[2])
        if subject is not None:
            await reach(f"unanswered-{subject.kind}")
        await on_answer(self, message)

    Ledger.append = append_  # type: ignore[method-assign]
    Publisher._on_answer = on_answer_  # type: ignore[method-assign]


def _set_on_messages() -> None:
    on_event, accept, ack = WindowManager._on_event, Handling.accept, Received.ack

    async def on_event_(self: WindowManager, received: Received) -> bool:
        await reach("read", received)
        return await on_event(self, received)

    async def accept_(self: Handling, received: Received, session: Compactor) -> Lease | None:
        await reach("received", received)
        return await accept(self, received, session)

    async def ack_(self: Received) -> None:
        await ack(self)
        await reach("acked")

    WindowManager._on_event = on_event_  # type: ignore[method-assign]
    Handling.accept = accept_  # type: ignore[method-assign]
    Received.ack = ack_  # type: ignore[method-assign]


def _set_on_handlers() -> None:
    note_effect, send = fault_agents.note_effect, Context.send

    def note_effect_(ctx: Context) -> None:
        note_effect(ctx)
        time.sleep(strike("effect", take("effect")))

    async def send_(self: Context, *arguments: Any, **options: Any) -> Sent:
        sent = await send(self, *arguments, **options)
        await reach("sent-on")
        return sent

    fault_agents.note_effect = note_effect_
    Context.send = send_  # type: ignore[method-assign]


def run(command: list[str]) -> None:
    """Run `-m MODULE …` or `SCRIPT …` in this process."""
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    set_failpoints()
    run(sys.argv[1:])
