"""Is the harness worth its name? `python -m mutants`, or `make mutants`.

Switches the bus's safeguards off, one at a time. For each a short scenario must turn red, which is
green with all of them. The exit code is 1 where a mutant survives, or a scenario is red by itself.
"""

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
from mutations import MUTATIONS, NONE
from scenarios import HITS, Scenario, play

from batonbus.logs import configure

WIDTH = 100
"""Characters of a complaint that the table shows."""


class Outcome(NamedTuple):
    """What one mutant turned red, what of it was expected, and what is wrong without the mutant."""

    mutant: str
    scenario: str
    red: list[str]
    expected: list[str]
    sound: list[str]
    seconds: float

    @property
    def killed(self) -> bool:
        return bool(self.expected) and not self.sound

    def as_json(self) -> dict[str, object]:
        return {**self._asdict(), "killed": self.killed}


def try_mutant(mutant: str, sound: dict[Scenario, list[str]]) -> Outcome:
    """`sound` are the scenarios that were run without any mutant."""
    began = time.monotonic()
    scenario, says = HITS[mutant]
    if scenario not in sound:
        sound[scenario] = run(scenario, NONE)
    red = run(scenario, mutant)
    seconds = round(time.monotonic() - began, 1)
    expected = [it for it in red if says in it]
    return Outcome(mutant, scenario.__name__, red, expected, sound[scenario], seconds)


def run(scenario: Scenario, mutant: str) -> list[str]:
    """All that is wrong after a scenario."""
    with tempfile.TemporaryDirectory(prefix="batonbus-mutant-") as folder:
        return anyio.run(partial(play, scenario, Path(folder), mutant))


def tell(outcome: Outcome) -> None:
    """One row of the table."""
    if outcome.sound:
        what = f"red without it, too: {outcome.sound[0]}"
    elif outcome.expected:
        what = outcome.expected[0]
    else:
        what = f"SURVIVED: {'; '.join(outcome.red) or 'all green'}"
    print(f"{outcome.mutant:<24} {what[:WIDTH]:<{WIDTH}} {outcome.seconds:>5.1f}", flush=True)  # noqa: T201


def main(arguments: list[str]) -> int:
    """Try all mutants, or those that are named; returns the exit code."""
    parser = argparse.ArgumentParser(prog="mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="MUTANT", help=f"of {', '.join(MUTATIONS)}")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(MUTATIONS):
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    configure("ERROR")
    print(f"{'switched off':<24} {'what turned red':<{WIDTH}} {'s':>5}", flush=True)  # noqa: T201
    sound: dict[Scenario, list[str]] = {}
    outcomes: list[Outcome] = []
    for name in given.names or MUTATIONS:
        outcomes.append(try_mutant(name, sound))
        tell(outcomes[-1])
    killed = sum(it.killed for it in outcomes)
    print(f"{killed} of {len(outcomes)} mutants killed")  # noqa: T201
    if given.json:
        print(json.dumps({"killed": killed, "mutants": [it.as_json() for it in outcomes]}))  # noqa: T201
    return 0 if killed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
