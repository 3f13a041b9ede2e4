"""The harness as it is started by `make chaos` and `make mutants`, made short."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.faults

HERE = Path(__file__).parent

SEED = 7
"""Some of everything: kills, cuts, stops, a stall, a trickle, a delay, the server killed."""

ZERO = (
    "unaccounted",
    "double_effects",
    "stale_applied",
    "late_answers",
    "windows_wrong",
    "unsent",
    "other",
)


def start(module: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the object in the last line."""
    paths = (str(HERE), str(HERE.parent / "faults"))
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=110,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_after_kills_and_cuts_every_acknowledged_handoff_is_accounted_for(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    code, found = start(
        "chaos", "--seed", str(SEED), "--handoffs", "100", "--kills", "8", "--keep", str(kept)
    )
    assert {name: found[name] for name in ZERO} == dict.fromkeys(ZERO, 0)
    assert code == 0
    assert found["seed"] == SEED
    assert found["acknowledged"] >= 100
    assert found["kills"] >= 8
    assert set(found["ends"]) == {"settled", "refused", "dead", "cancelled"}
    assert (kept / "acknowledged").exists()


def test_a_bus_without_its_safeguards_is_found_out() -> None:
    code, found = start("mutants", "trim-older", "accepted-before-handler", "--json")
    assert code == 0
    assert [it["killed"] for it in found["mutants"]] == [True, True]
    assert all(it["sound"] == [] for it in found["mutants"])
