"""The assignment as an agent or a command reads it: Markdown."""

from collections.abc import Sequence

from batonbus_schemas.context import WindowEntry
from batonbus_schemas.envelope import Envelope


def render(envelope: Envelope, window: Sequence[WindowEntry]) -> str:
    """The readable assignment: what to do, and the context from earlier steps."""
    return f"# {envelope.to}: {envelope.work} {envelope.task or ''} attempt {envelope.attempt}\n"
