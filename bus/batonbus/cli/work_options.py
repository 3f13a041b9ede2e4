"""The options that the `work` commands share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from batonbus_agents.routes import ROLES, Role

Repo = Annotated[
    Path, typer.Option("--repo", help="The git repository.", file_okay=False, exists=True)
]
Runtimes = Annotated[
    list[str] | None,
    typer.Option(
        "--runtime",
        metavar="ROLE=SPEC",
        help="How a role thinks: command:…, script:FILE or function:MODULE:ATTR; may be repeated.",
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
    """`ROLE=SPEC` options by role. Raises BadParameter."""
    specs: dict[Role, str] = {}
    for text in texts or ():
        role, equals, spec = text.partition("=")
        if not equals or not spec:
            raise typer.BadParameter(f"--runtime {text!r}: write ROLE=SPEC")
        specs[role_named(role)] = spec
    return specs
