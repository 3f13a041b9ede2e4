"""`batonbus policy`: the context policy as a file."""

from pathlib import Path
from typing import Annotated

import typer

from batonbus.cli.options import Json, new_app
from batonbus.cli.output import Output, clean
from batonbus.rules.policy import Policy
from batonbus.rules.policy_file import PolicyError, read_policy, write_policy

app = new_app(no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, readable=True)]


@app.callback()
def policy() -> None:
    """The context policy: how full an agent may be, how long its assignment, when it is reset.

    \b
    Examples:
      batonbus policy show > policy.toml
      batonbus policy check policy.toml
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
    """Check a policy file: TOML, or JSON as context policies are written elsewhere. Names every
    key that is wrong, and exits with 1 then.

    \b
    Examples:
      batonbus policy check policy.toml
      batonbus policy check context-policy.json --json
    """
    output = Output(as_json)
    _read(output, file)
    output.show(f"{file}: valid")
    output.emit({"file": str(file), "valid": True, "violations": []})


def _read(output: Output, file: Path) -> Policy:
    try:
        return read_policy(file.read_text(encoding="utf-8"))
    except PolicyError as error:
        violations = error.violations
        output.show(
            f"{file}: {len(violations)} wrong", *(f"  {clean(str(it))}" for it in violations)
        )
    except UnicodeDecodeError as error:
        violations = ()
        output.show(f"{file}: is no text in UTF-8: {error}")
    output.emit({"file": str(file), "valid": False, "violations": violations})
    raise typer.Exit(1)
