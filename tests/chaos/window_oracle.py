"""What each agent should have seen, computed a second time: from the ledger's messages alone.

FULL one step back, SUMMARY (three lines) two steps back, nothing older. It knows what the senders
of this harness do: lines by `then`, and fans with `after`, outside of any task.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from ledger_checker import Chains, Message, handed_on

Entry = dict[str, Any]
FIELDS = ("what", "why", "caution", "incomplete")
UNSAID = {"incomplete": "None"}


def wrong_windows(chains: Chains) -> list[str]:
    """One line for each delivered handoff that shows anything but what it should."""
    problems: list[str] = []
    oracle = Oracle(chains)
    for handoff, chain in chains.items():
        for message in chain:
            if message.kind == "delivered":
                shown, expected = _shown(message), oracle.window(handoff)
                if shown != expected:
                    said = f"shows {_in_words(shown)}, and should show {_in_words(expected)}"
                    problems.append(f"{handoff}: {said}")
    return problems


class Oracle:
    """The steps before each handoff."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        self._handed_on = handed_on(chains)
        self._accepted = {
            message.sequence: handoff
            for handoff, chain in chains.items()
            for message in chain
            if message.kind == "accepted"
        }
        self._known: dict[UUID, set[UUID]] = {}

    def parents(self, handoff: UUID) -> set[UUID]:
        """The handoffs one step back."""
        if handoff not in self._known:
            self._known[handoff] = self._find_parents(handoff)
        return self._known[handoff]

    def _find_parents(self, handoff: UUID) -> set[UUID]:
        if handoff in self._handed_on:
            return {self._handed_on[handoff].handoff}
        sent = self._chains[handoff][0]
        after = sent.payload.get("after")
        under = sent.marks.get("accepted")
        if not after and under is not None:
            # Sent from inside a handler, which is transparent.
            return self.parents(self._accepted[under])
        return {UUID(it) for it in after or ()}

    def window(self, handoff: UUID) -> dict[UUID, Entry]:
        """What its receiver should see, by handoff."""
        near = self.parents(handoff)
        far = {it for parent in near for it in self.parents(parent)} - near
        return {
            **{it: {"distance": 1, "level": "FULL", **self._said(it)} for it in near},
            **{it: {"distance": 2, "level": "SUMMARY", **self._in_short(it)} for it in far},
        }

    def _said(self, handoff: UUID) -> Mapping[str, str]:
        for message in self._chains[handoff]:
            if message.kind == "settled":
                said = message.payload["result"]["context_handoff"]
                return {name: said.get(name, UNSAID.get(name, "")) for name in FIELDS}
        return {}

    def _in_short(self, handoff: UUID) -> Mapping[str, str]:
        lines = [it for it in self._said(handoff).get("what", "").splitlines() if it.strip()]
        return {"what": "\n".join(lines[:3])}


def _shown(delivered: Message) -> dict[UUID, Entry]:
    return dict(_entries(delivered.payload.get("window", [])))


def _entries(window: list[Entry]) -> Iterator[tuple[UUID, Entry]]:
    for entry in window:
        kept = {name: entry[name] for name in ("distance", "level", *FIELDS) if name in entry}
        yield UUID(entry["handoff_id"]), kept


def _in_words(entries: Mapping[UUID, Entry]) -> str:
    """Enough to find the difference."""
    return (
        " and ".join(
            f"{str(handoff)[:8]} as {entry['level']} at {entry['distance']} "
            f"({sum(len(entry.get(it, '')) for it in FIELDS)} characters)"
            for handoff, entry in entries.items()
        )
        or "nothing"
    )
