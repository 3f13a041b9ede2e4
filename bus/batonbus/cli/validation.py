"""`batonbus validate`: check messages in files."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer
from msgspec import Struct

from batonbus.cli.options import Json, new_app
from batonbus.cli.output import Output, clean
from batonbus.run.agent import BODY_TYPES
from batonbus.secrecy import find_in, hide_in
from batonbus_schemas import HandoffV1, InvalidMessageError, Violation, decode, read_handoff
from batonbus_schemas.counts import counted
from batonbus_schemas.xml import Reading, read_dispatch, read_result

KINDS = {str(cast("Any", it).__struct_config__.tag): it for it in BODY_TYPES}
"""What a message may say it is."""

XML_READERS: Mapping[str, Callable[[str], Reading[Any]]] = {
    "task-result": read_result,
    "dispatch": read_dispatch,
}
"""By the name of the element."""

XML = "XML "

app = new_app()


class Checked(Struct, frozen=True):
    """A file, what it is meant as, all that is wrong with it, and what was mended in reading it."""

    file: str
    kind: str
    violations: tuple[Violation, ...] = ()
    repairs: tuple[str, ...] = ()


@app.command()
def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="`-` reads stdin.")],
    as_json: Json = False,
) -> None:
    """Check contract v1 documents, envelopes, bodies that say their `kind`, and the XML of
    dispatches and task results, as agents write them.

    Names everything that is wrong, each thing with its path; exits with 1 then.

    \b
    Examples:
      batonbus validate handoff.json
      batonbus validate results/*.json --json
    """
    output = Output(as_json)
    checked = [check(name, _read(name)) for name in files]
    for it in checked:
        output.show(
            f"{it.file}: {it.kind}, {_count(it.violations)}",
            *(f"  {clean(str(violation))}" for violation in it.violations),
            *(f"  mended: {clean(repair)}" for repair in it.repairs),
        )
    valid = not any(it.violations for it in checked)
    output.emit({"valid": valid, "files": checked})
    raise typer.Exit(0 if valid else 1)


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be read: {error.strerror}") from None


def _count(violations: tuple[Violation, ...]) -> str:
    return counted(len(violations), "violation") if violations else "valid"


def check(file: str, data: bytes) -> Checked:
    """What a file is meant as, and everything that is wrong with it."""
    kind = guess_kind(data)
    try:
        if kind.startswith(XML):
            read = XML_READERS[kind.removeprefix(XML)]
            return Checked(file, kind, repairs=read(data.decode(errors="replace")).repairs)
        if kind in KINDS:
            message: object = decode(data, cast("type[Struct]", KINDS[kind]))
        else:
            message = read_handoff(data, sender="validate")
            # A raw document is named by its own paths, not by those of the envelope around it.
            if kind != "envelope" and isinstance(message.body, HandoffV1):
                message = cast("object", message.body.document)
        return Checked(file, kind, tuple(find_in(message)))
    except InvalidMessageError as error:
        # A violation repeats what is wrong.
        return Checked(file, kind, tuple(map(hide_in, error.violations)))


def guess_kind(data: bytes) -> str:
    """A body's own `kind`, else `envelope` or `contract v1` by the keys that only one of them has;
    `XML task-result` or `XML dispatch` (prose around it is no matter), else `unreadable`."""
    try:
        keys = msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        found = [XML + it for it in XML_READERS if f"<{it}".encode() in data.lower()]
        return found[0] if found else "unreadable"
    kind = keys.get("kind")
    if isinstance(kind, str) and kind in KINDS:
        return kind
    is_envelope = "handoff_id" not in keys and {"id", "body"} & keys.keys()
    return "envelope" if is_envelope else "contract v1"
