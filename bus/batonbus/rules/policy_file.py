"""The policy as a file: TOML, or the JSON shapes of seeds 001 and 004 as they stand."""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from batonbus.rules.chain import ATTEMPT_LIMIT
from batonbus.rules.errors import BatonbusError
from batonbus.rules.policy import POLICY_ROLES, TRIGGERS, Policy, contradictions
from batonbus.rules.settings import Settings
from batonbus_schemas import Violation
from batonbus_schemas.context import SHOWN_LINES, SUMMARY_LINES
from batonbus_schemas.contract import contract_limits
from batonbus_schemas.tokens import MESSAGE_LIMIT
from batonbus_schemas.violations import find_violations

_THRESHOLDS = {
    "soft_warning_pct": "soft",
    "hard_compression_pct": "hard",
    "emergency_stop_pct": "emergency",
}
_FIELDS = {
    "compression_target_pct_min": ("compaction", "target_min"),
    "compression_target_pct_max": ("compaction", "target_max"),
    "checkpoint_interval_minutes": ("checkpoints", "interval_minutes"),
    "checkpoint_after_phase": ("checkpoints", "after_phase"),
    "checkpoint_after_fix_review_rounds": ("checkpoints", "after_fix_review_rounds"),
    "fallback_triggers": ("fallback", "triggers"),
}
_MANAGEMENT = {
    "phaseBoundary": "phase_boundary",
    "taskBoundary": "task_boundary",
    "midTask": "mid_task",
}


class PolicyError(BatonbusError):
    """A policy file is wrong; `violations` says everything that is, each with its key."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        self.violations = violations
        super().__init__("the policy is not valid: " + "; ".join(map(str, violations)))


def read_policy(text: str) -> Policy:
    """The policy in a file's text: our own TOML, seed 001's JSON (`soft_warning_pct` …, or
    `defaults` and `agents`), or seed 004's (`contextManagement`). What the text leaves out keeps
    its default. Raises PolicyError with all that is wrong."""
    tree, names = _parse(text.removeprefix("\ufeff"))
    _complete_rows(tree)
    found = [_renamed(it, names) for it in find_violations(tree, Policy, "")]
    if found:
        raise PolicyError(tuple(found))
    policy = msgspec.convert(tree, Policy)
    if wrong := tuple(_renamed(it, names) for it in contradictions(policy)):
        raise PolicyError(wrong)
    return policy


def _complete_rows(tree: dict[str, Any]) -> None:
    """A number that a row leaves out keeps its default, too."""
    defaults = Policy()
    for table, default in (
        ("thresholds", defaults.thresholds_of),
        ("budgets", defaults.budget_of),
    ):
        found: object = tree.get(table)
        if isinstance(found, dict):
            rows = cast("dict[str, object]", found)
            for row in POLICY_ROLES:
                given = rows.get(row)
                if isinstance(given, dict):
                    rows[row] = {**msgspec.to_builtins(default(row)), **given}


def _renamed(violation: Violation, names: Mapping[str, str]) -> Violation:
    """A violation under the name that the key has in the file itself."""
    path = violation.path.removeprefix("$").removeprefix(".") or "$"
    key, bracket, rest = path.partition("[")
    return Violation(path=names.get(key, key) + bracket + rest, problem=violation.problem)


def _parse(text: str) -> tuple[dict[str, Any], Mapping[str, str]]:
    """The file as our own tree, and how its keys are called in the file."""
    if not text.lstrip().startswith("{"):
        try:
            return tomllib.loads(text), {}
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise PolicyError((Violation(path="$", problem=f"is no TOML: {error}"),)) from error
    try:
        found: object = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise PolicyError((Violation(path="$", problem=f"is no JSON: {error}"),)) from error
    reader = _FromJson(cast("dict[str, Any]", found))
    tree, names = reader.read()
    if reader.twice:
        raise PolicyError(tuple(reader.twice))
    return tree, names


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's members. Which of two that are called the same counts, nobody could tell."""
    names = Counter(name for name, _ in members)
    if twice := [name for name, count in names.items() if count > 1]:
        raise PolicyError(tuple(Violation(path=it, problem="stands there twice") for it in twice))
    return dict(members)


class _FromJson:
    """The seeds' JSON, moved to our own keys; whatever is not theirs keeps its name, and is then
    found to be unknown."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found
        self._tree: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self.twice: list[Violation] = []
        """Keys that say what another one says already."""

    def read(self) -> tuple[dict[str, Any], Mapping[str, str]]:
        """The tree, and the names of its keys in the file."""
        for key, value in self._found.items():
            match key:
                case "contextManagement":
                    self._management(value, "contextManagement.")
                case "defaults" if isinstance(value, dict):
                    self._defaults(cast("dict[str, Any]", value), "defaults.")
                case "agents" if isinstance(value, dict):
                    self._agents(cast("dict[str, Any]", value))
                case _:
                    self._defaults({key: value}, "")
        return self._tree, self._names

    def _put(self, path: tuple[str, ...], name: str, value: object) -> None:
        table = self._tree
        for part in path[:-1]:
            inner: object = table.setdefault(part, {})
            if not isinstance(inner, dict):
                return  # what stands there is wrong, and will be found to be
            table = cast("dict[str, Any]", inner)
        key = ".".join(path)
        if path[-1] in table:
            other = next((it for ours, it in self._names.items() if ours.startswith(key)), key)
            problem = f"says what {other} says, too: leave one of them out"
            self.twice.append(Violation(path=name, problem=problem))
            return
        table[path[-1]] = value
        self._names[key] = name

    def _defaults(self, values: dict[str, Any], prefix: str) -> None:
        for key, value in values.items():
            name = prefix + key
            if key in _THRESHOLDS:
                # The thresholds of seed 001's JSON are the implementer's row.
                self._put(("thresholds", "implementer", _THRESHOLDS[key]), name, value)
            elif key in _FIELDS:
                self._put(_FIELDS[key], name, value)
            elif key in _MANAGEMENT or key == "enabled":
                self._management({key: value}, prefix)
            else:
                self._put((key,), name, value)

    def _agents(self, agents: dict[str, Any]) -> None:
        for agent, values in agents.items():
            if not isinstance(values, dict):
                self._put(("agents", agent), f"agents.{agent}", values)
                continue
            for key, value in cast("dict[str, Any]", values).items():
                ours = _THRESHOLDS.get(key, key)
                self._put(("agents", agent, ours), f"agents.{agent}.{key}", value)

    def _management(self, values: object, prefix: str) -> None:
        if not isinstance(values, dict):
            self._put(("context_management",), prefix.rstrip("."), values)
            return
        found = dict(cast("dict[str, Any]", values))
        enabled = found.pop("enabled", True)
        if not isinstance(enabled, bool):
            self._put(("context_management", "enabled"), f"{prefix}enabled", enabled)
        for key, value in found.items():
            ours = _MANAGEMENT.get(key, key)
            self._put(("context_management", ours), prefix + key, value)
        if enabled is False:
            table: object = self._tree.setdefault("context_management", {})
            if isinstance(table, dict):
                cast("dict[str, object]", table).update(dict.fromkeys(_MANAGEMENT.values(), "off"))


def write_policy(policy: Policy) -> str:
    """A policy as TOML, each number with what it means. `read_policy` reads it back."""
    lines = [
        "# The context policy of a Batonbus fleet.",
        "# batonbus policy check FILE says what is wrong with a changed copy.",
        "",
        "# Percent of a model's context in use. soft: finish the current small operation; hard:",
        "# nothing new is begun or dispatched; emergency: no command, no verdict.",
    ]
    for row in POLICY_ROLES:
        it = policy.thresholds_of(row)
        lines += [f"[thresholds.{row}]", f"soft = {it.soft:g}", f"hard = {it.hard:g}"]
        lines += [f"emergency = {it.emergency:g}", ""]
    lines += [
        "# The longest assignment: Unicode characters, and reference tokens, ceil(characters / 4)",
        "# unless an agent counts them exactly; the lower of both limits counts.",
    ]
    for row in POLICY_ROLES:
        budget = policy.budget_of(row)
        lines += [f"[budgets.{row}]", f"characters = {budget.characters}"]
        lines += [f"tokens = {budget.tokens}", ""]
    lines += ["# By which row a role is judged; a role that is not named here: other."]
    lines += ["[policy_roles]"]
    lines += [f'{role} = "{row}"' for role, row in policy.completed().policy_roles.items()]
    lines += _further_tables(policy)
    lines += _overlays(policy)
    lines += _fixed()
    return "\n".join(lines) + "\n"


def _further_tables(policy: Policy) -> list[str]:
    compaction, checkpoints, management = (
        policy.compaction,
        policy.checkpoints,
        policy.context_management,
    )
    triggers = ",\n".join(f'    "{it}"' for it in policy.fallback.triggers)
    return [
        "",
        "# Percent in use after a compaction; above target_max there was no gain, and the agent",
        "# stays closed; below target_min more was dropped than need be, which is logged.",
        "[compaction]",
        f"target_min = {compaction.target_min:g}",
        f"target_max = {compaction.target_max:g}",
        "",
        "# When a Checkpoint is written, beside those that a reset demands.",
        "[checkpoints]",
        f"interval_minutes = {checkpoints.interval_minutes:g}",
        f"after_phase = {str(checkpoints.after_phase).lower()}",
        f"after_fix_review_rounds = {checkpoints.after_fix_review_rounds}",
        "",
        "# Which reset a session gets: phase and task boundary clear, compact or off; in the",
        "# middle of a task compact or off, never clear.",
        "[context_management]",
        f'phase_boundary = "{management.phase_boundary}"',
        f'task_boundary = "{management.task_boundary}"',
        f'mid_task = "{management.mid_task}"',
        "",
        f"# Where the usage is not known, these force a compaction. Known: {len(TRIGGERS)}.",
        "[fallback]",
        f"triggers = [\n{triggers},\n]" if triggers else "triggers = []",
        "",
        "# What is a secret here, beside what is one everywhere: patterns are regular expressions",
        "# without * and +, names those of variables and members that hold one, such as",
        "# patterns = ['acme-[0-9a-f]{32}']",
        "# names = ['acme_pin']",
        "[secrets]",
        f"patterns = {_strings(policy.secrets.patterns)}",
        f"names = {_strings(policy.secrets.names)}",
    ]


def _fixed() -> list[str]:
    """The numbers of the seeds that no policy changes."""
    shown = ", ".join(f"{name} {count}" for name, count in SHOWN_LINES.items())
    settings: dict[str, float] = msgspec.to_builtins(Settings())
    return [
        "",
        "# Fixed, for reading: an agent sees the work one step back in full, of that two steps",
        f"# back {SUMMARY_LINES} lines, nothing older. Lines shown of each field of a context:",
        f"# {shown}.",
        f"# A message has at most {MESSAGE_LIMIT:,} bytes, a task {ATTEMPT_LIMIT} attempts.",
        "# A handoff contract v1 has at most:",
        *(f"#   {path}: {most:,} {unit}" for path, (most, unit) in contract_limits().items()),
        "# The settings of a fleet stay as its bus was made; in seconds, the limits are counts:",
        *(f"#   {name} = {value:g}" for name, value in settings.items()),
    ]


def _strings(values: tuple[str, ...]) -> str:
    """As TOML; JSON's strings are TOML's, but for one character."""
    return json.dumps(values, ensure_ascii=False).replace("\x7f", "\\u007f")


def _overlays(policy: Policy) -> list[str]:
    lines = [
        "",
        "# Overlays by role or agent may only be stricter:",
        "# [roles.builder]",
        "# hard = 60",
        '# [agents."builder-1"]',
        "# characters = 2000",
    ]
    for table in ("roles", "agents"):
        for name, overlay in getattr(policy, table).items():
            lines += ["", f'[{table}."{name}"]']
            values: dict[str, float | None] = msgspec.to_builtins(overlay)
            lines += [f"{key} = {it:g}" for key, it in values.items() if it is not None]
    return lines
