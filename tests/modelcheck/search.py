"""Every state that can be reached, breadth-first, and what must hold of all of them."""

import time
from collections import deque

from msgspec import Struct
from world import ENDED, Harm, HarmError, Scenario, State, Step, begun, start
from writers import check, steps

LIMIT = 1_000_000
"""States after which a search is cut off."""


class Result(Struct, frozen=True, kw_only=True):
    """What a search found: the harm, the shortest way to it, and how much was looked at.
    `complete` is False where it was cut off: then what can never end is not known."""

    states: int
    moves: int
    seconds: float
    complete: bool
    harm: Harm | None = None
    what: str = ""
    trace: tuple[str, ...] = ()


class Search:
    """The graph of one scenario."""

    def __init__(self, scenario: Scenario, limit: int = LIMIT) -> None:
        self.scenario, self.limit = scenario, limit
        self.at = 0
        """The state that is looked at."""
        self.numbers: dict[State, int] = {}
        self.states: list[State] = []
        self.parents: list[tuple[int, str]] = []
        self.moves: list[list[tuple[int, bool]]] = []
        """From each state: where to, and whether an event is written."""
        self.to_end: list[list[int]] = []
        self.to_serve: list[list[int]] = []

    def run(self) -> Result:
        """Look at everything. The first harm ends it."""
        began = time.perf_counter()
        complete = False
        try:
            complete = self._explore()
            if complete:
                self._check_ends()
            self._check_endless()
        except HarmError as error:
            harm, what, trace = error.harm, error.what, self._trace(self.at)
        else:
            harm, what, trace = None, "", ()
        return Result(
            states=len(self.states),
            moves=sum(map(len, self.moves)),
            seconds=time.perf_counter() - began,
            complete=complete,
            harm=harm,
            what=what,
            trace=trace,
        )

    def _explore(self) -> bool:
        self._number(start(self.scenario), (-1, ""))
        waiting = deque([0])
        while waiting:
            self.at = at = waiting.popleft()
            state = self.states[at]
            check(state, self.scenario)
            for step in steps(state, self.scenario):
                if step.after == state:
                    continue
                known = len(self.states)
                to = self._number(step.after, (at, f"{step.who} {step.does}"))
                if to == known:
                    waiting.append(to)
                self._note(at, to, step)
            if len(self.states) >= self.limit:
                return False
        return True

    def _number(self, state: State, parent: tuple[int, str]) -> int:
        number = self.numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self.parents.append(parent)
            self.moves.append([])
            self.to_end.append([])
            self.to_serve.append([])
        return number

    def _note(self, at: int, to: int, step: Step) -> None:
        self.moves[at].append((to, step.writes))
        if not step.fault and not step.returns:
            self.to_end[to].append(at)
        if not step.fault and not step.gives_up:
            self.to_serve[to].append(at)

    def _check_ends(self) -> None:
        """An end can be reached from every state: without the return of anybody who was killed,
        and, where all return, without giving up."""
        ended = [at for at, state in enumerate(self.states) if self._is_ended(state)]
        self._must_reach(ended, self.to_end, "stuck")
        if self.scenario.returns:
            self._must_reach(ended, self.to_serve, "lost")

    def _is_ended(self, state: State) -> bool:
        return state.sending is None and all(
            chain.stage in ENDED or (number > 0 and not begun(state, number, self.scenario))
            for number, chain in enumerate(state.chains)
        )

    def _must_reach(self, goal: list[int], back: list[list[int]], harm: Harm) -> None:
        reached, waiting = set(goal), list(goal)
        while waiting:
            for before in back[waiting.pop()]:
                if before not in reached:
                    reached.add(before)
                    waiting.append(before)
        for at, state in enumerate(self.states):
            if at not in reached:
                self.at, stages = at, ", ".join(it.stage for it in state.chains)
                raise HarmError(harm, f"no end is reachable from ({stages})")

    def _check_endless(self) -> None:
        """No circle of moves writes an event: every circle is waiting."""
        circle = strong_components([[to for to, _ in it] for it in self.moves])
        for at, moves in enumerate(self.moves):
            for to, writes in moves:
                if writes and circle[at] == circle[to]:
                    self.at = to
                    raise HarmError("endless", "the same events can be written again and again")

    def _trace(self, at: int) -> tuple[str, ...]:
        said: list[str] = []
        while at > 0:
            at, does = self.parents[at]
            said.append(does)
        return tuple(reversed(said))


def strong_components(moves: list[list[int]]) -> list[int]:
    """The number of each node's component (Tarjan's way, without recursion)."""
    index = [-1] * len(moves)
    low = [0] * len(moves)
    component = [-1] * len(moves)
    stack: list[int] = []
    count = 0
    for root in range(len(moves)):
        if index[root] >= 0:
            continue
        path = [(root, iter(moves[root]))]
        index[root] = low[root] = count
        count += 1
        stack.append(root)
        while path:
            node, following = path[-1]
            for to in following:
                if index[to] < 0:
                    index[to] = low[to] = count
                    count += 1
                    stack.append(to)
                    path.append((to, iter(moves[to])))
                    break
                if component[to] < 0:
                    low[node] = min(low[node], index[to])
            else:
                path.pop()
                if path:
                    before = path[-1][0]
                    low[before] = min(low[before], low[node])
                if low[node] == index[node]:
                    while True:
                        member = stack.pop()
                        component[member] = node
                        if member == node:
                            break
    return component
