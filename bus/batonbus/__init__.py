"""A durable bus on NATS JetStream by which fleets of AI agents hand work to each other."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batonbus.public import *  # noqa: F403 - its own `__all__` says which names they are


def __getattr__(name: str) -> Any:
    """The public names. They are imported when the first is asked for: the command line needs few
    of them, and whoever presses Ctrl-C meanwhile must find its entry point there."""
    public = import_module("batonbus.public")
    if name == "__all__" or name in public.__all__:
        return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
