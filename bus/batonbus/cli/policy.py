"""`batonbus policy`: the context policy as a file."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, clean
from batonbus.cli.running import run, start_logs
from batonbus.rules.chain import OPERATOR
from batonbus.rules.policy import Policy
from batonbus.rules.policy_file import PolicyError, write_policy
from batonbus.rules.policy_file import read_policy as parse_policy
from batonbus.run.discovery import find_fleet, find_url
from batonbus.wire.agreed import read_policy, read_settings, store_policy
from batonbus.wire.connection import connect
from batonbus_schemas import Violation

app = new_app(no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, readable=True)]


@app.callback()
def policy() -> None:
    """The context policy: how full an agent may be, how long its assignment, when it is reset.

    \b
    Examples:
      batonbus policy show > policy.toml
      batonbus policy check policy.toml
      batonbus policy set policy.toml
    """


@app.command()
def show(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", exists=True, dir_okay=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the default policy with comments, or that of a file completed by the defaults.

    \b
    Examples:
      batonbus policy show
      batonbus policy show context-policy.json > policy.toml
    """
    output = Output(as_json)
    found = _read(output, file) if file else Policy()
    output.show(write_policy(found).rstrip())
    output.emit(found.completed())


@app.command()
def check(file: File, as_json: Json = False) -> None:
    """Check a policy file: every key that is wrong is named, and the exit code is 1 then.

    It is TOML, or JSON as context policies are written elsewhere.

    \b
    Examples:
      batonbus policy check policy.toml
      batonbus policy check context-policy.json --json
    """
    output = Output(as_json)
    _read(output, file)
    output.show(f"{file}: valid")
    output.emit({"file": str(file), "valid": True, "violations": []})


@app.command("set")
def set_(
    file: File,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Store a policy with the fleet's ledger.

    It is in force at once for what starts from now on, and within seconds in
    every running window manager, keeper, agent and sender.

    \b
    Examples:
      batonbus policy set policy.toml
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    name = fleet or find_fleet()
    raise typer.Exit(run(output, partial(_set, output, url, name, _read(output, file))))


async def _set(output: Output, url: str | None, fleet: str, policy: Policy) -> int:
    async with connect(url or find_url(), OPERATOR) as connection:
        await store_policy(connection, fleet, policy)
        settings = await read_settings(connection, fleet)
    within = 2 * settings.policy_interval
    output.show(
        f"stored with the fleet {fleet!r}: in force within {within:g} s in all that runs, at once "
        "in what starts"
    )
    output.emit({"fleet": fleet, "stored": True, "in_force_within_s": within})
    return 0


@app.command()
def get(
    url: Url = None, fleet: Fleet = None, as_json: Json = False, log_level: LogLevel = None
) -> None:
    """Print the policy that is stored with the fleet's ledger.

    \b
    Examples:
      batonbus policy get > policy.toml
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    raise typer.Exit(run(output, partial(_get, output, url, fleet or find_fleet())))


async def _get(output: Output, url: str | None, fleet: str) -> int:
    async with connect(url or find_url(), OPERATOR) as connection:
        found = await read_policy(connection, fleet)
    output.show(write_policy(found).rstrip())
    output.emit(found.completed())
    return 0


def _read(output: Output, file: Path) -> Policy:
    try:
        return parse_policy(file.read_text(encoding="utf-8"))
    except PolicyError as error:
        violations = error.violations
    except UnicodeDecodeError as error:
        violations = (Violation(path="$", problem=f"is no text in UTF-8: {error}"),)
    output.show(f"{file}: {len(violations)} wrong", *(f"  {clean(str(it))}" for it in violations))
    output.emit({"file": str(file), "valid": False, "violations": violations})
    raise typer.Exit(1)
