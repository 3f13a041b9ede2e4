"""The options that the `work` commands share."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from batonbus_agents.routes import ROLES, Role
from batonbus_agents.runtimes import RuntimeSpecError, ScriptError, parse_runtime

Repo = Annotated[
    Path, typer.Option("--repo", help="The git repository.", file_okay=False, exists=True)
]
Runtimes = Annotated[
    list[str] | None,
    typer.Option(
        "--runtime",
        metavar="ROLE=SPEC",
        help="How a role thinks: claude, codex … with options, FILE.toml, command:…, "
        "script:FILE or function:MODULE:ATTR; may be repeated.",
        show_default=False,
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help="Environment variable that a runtime's command may see; may be repeated.",
        show_default=False,
    ),
]
OnDone = Annotated[
    str,
    typer.Option(
        help="A command (JSON on stdin) or a URL that is told of each finished task.",
        show_default=False,
    ),
]


def role_named(name: str) -> Role:
    """One of the six roles. Raises BadParameter."""
    for role in ROLES:
        if role == name:
            return role
    raise typer.BadParameter(f"{name!r} is no role: use {', '.join(ROLES)}")


def runtime_specs(texts: list[str] | None) -> Mapping[Role, str]:
    """`ROLE=SPEC` options by role, each one known to be a runtime; a function's module may lie in
    the current folder. Raises BadParameter."""
    # Every process of a run does the same here, and starts in the same folder.
    sys.path.insert(0, str(Path.cwd()))
    specs: dict[Role, str] = {}
    for text in texts or ():
        role, equals, spec = text.partition("=")
        if not equals or not spec:
            raise typer.BadParameter(f"--runtime {text!r}: write ROLE=SPEC")
        specs[role_named(role)] = spec
        try:
            parse_runtime(spec)
        except (RuntimeSpecError, ScriptError) as error:
            raise typer.BadParameter(f"--runtime of the {role}: {error}") from None
    return specs
