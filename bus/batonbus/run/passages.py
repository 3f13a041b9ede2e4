"""What the dispatches of each work said: what stands in one should not be pasted into the next."""

from collections import OrderedDict

from batonbus.rules.pastes import find_pastes, passages_of
from batonbus_schemas import Envelope, Violation

KNOWN_WORKS = 1_000
"""Works whose passages are remembered; the one that was used longest ago is forgotten first."""

KNOWN_PASSAGES = 1_000
"""Passages that are remembered of each."""


class Passages:
    """The passages that one window manager let through since its start. It is a check of style and
    no promise: several window managers side by side each know their own."""

    def __init__(self) -> None:
        self._works: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()

    def find_pastes(self, envelope: Envelope) -> list[Violation]:
        """All that an assignment pastes, also from an earlier dispatch of its work."""
        return find_pastes(envelope, passages=self._works.get(envelope.work))

    def note(self, envelope: Envelope) -> None:
        """Remember what this dispatch says."""
        passages = passages_of(envelope)
        if not passages:
            return
        known = self._works.setdefault(envelope.work, OrderedDict())
        self._works.move_to_end(envelope.work)
        known.update(passages)
        while len(known) > KNOWN_PASSAGES:
            known.popitem(last=False)
        while len(self._works) > KNOWN_WORKS:
            self._works.popitem(last=False)
