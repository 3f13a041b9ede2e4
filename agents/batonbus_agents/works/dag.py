"""Whether tasks and their dependencies can be run: pure checks, before anything starts."""

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from msgspec import Struct


class DagProblem(Struct, frozen=True):
    """What is wrong with the dependencies of one task; `place` is its place in the list."""

    place: int
    task: str
    reason: str


def dag_problems(tasks: Sequence[tuple[str, Iterable[str]]]) -> list[DagProblem]:
    """Everything that keeps a list of (task, what it needs) from being run.

    Found, each by name: a task that stands twice, a task that needs itself or one that is not
    there, and every cycle with its path.
    """
    places = {name: place for place, (name, _) in reversed(list(enumerate(tasks)))}
    needs: dict[str, list[str]] = {name: [] for name in places}
    found: list[DagProblem] = []
    for place, (name, wanted) in enumerate(tasks):
        if places[name] != place:
            found.append(DagProblem(place, name, f"{name} is there twice: give each task its id"))
            continue
        for need in wanted:
            if need == name:
                found.append(DagProblem(place, name, f"{name} needs itself"))
            elif need not in places:
                found.append(DagProblem(place, name, f"{name} needs {need}, which is no task here"))
            else:
                needs[name].append(need)
    found += [DagProblem(places[path[0]], path[0], _told(path)) for path in _cycles(needs)]
    return sorted(found, key=lambda it: it.place)


def _cycles(needs: dict[str, list[str]]) -> Iterable[list[str]]:
    """A cycle's path, again and again with its last step cut, until none is left."""
    while True:
        try:
            TopologicalSorter(needs).prepare()
            return
        except CycleError as error:
            # graphlib gives the path against the edges: each is needed by the next.
            path: list[str] = list(reversed(error.args[1]))
            needs[path[-2]].remove(path[-1])
            yield _from_smallest(path)


def _from_smallest(path: list[str]) -> list[str]:
    ring = path[:-1]
    start = ring.index(min(ring))
    return [*ring[start:], *ring[:start], ring[start]]


def _told(path: list[str]) -> str:
    return f"a cycle: {' needs '.join(path)}"
