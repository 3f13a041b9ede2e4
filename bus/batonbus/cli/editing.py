"""Changing what a handoff asks in the person's own editor."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import msgspec

from batonbus.rules.errors import BatonbusError
from batonbus_schemas import Body, Envelope, decode


class EditorError(BatonbusError):
    """The editor cannot be used, so nothing was changed or sent."""


def edit_body(body: Body) -> bytes:
    """The JSON of a body as a person leaves it in $VISUAL or $EDITOR. Raises EditorError where
    there is none, or it ends with an error."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise EditorError("no editor is known: set EDITOR, such as EDITOR=vi")
    with tempfile.TemporaryDirectory(prefix="batonbus-") as folder:
        path = Path(folder) / "body.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n")
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)
            return path.read_bytes()
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise EditorError(
                f"the editor {editor!r} failed ({error}): nothing was sent"
            ) from error


def with_body(envelope: Envelope, data: bytes) -> Envelope:
    """The envelope with this body instead of its own. Raises InvalidMessageError with all that is
    wrong."""
    decode(data, dict[str, object])
    tree = {**msgspec.to_builtins(envelope), "body": msgspec.Raw(data)}
    return decode(msgspec.json.encode(tree), Envelope)
