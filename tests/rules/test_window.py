"""What an agent sees of the steps before it, by distance."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus.rules.lineage import LineageError, Position, Record, place
from batonbus.rules.window import build_window, second_parents
from batonbus_schemas.context import ContextHandoff, Cut, DetailLevel, Edge, WindowEntry
from batonbus_schemas.envelope import Parent

Seen = tuple[tuple[WindowEntry, ...], tuple[Cut, ...]]


@dataclass
class Ledger:
    """Settles one handoff after another, and looks at windows as the window manager does."""

    records: dict[UUID, Record] = field(default_factory=dict[UUID, Record])
    reads: int = 0

    def settle(
        self,
        role: str,
        *after: Record,
        task: str | None = None,
        what: str = "Did it",
        silent: bool = False,
    ) -> Record:
        position = self.position(role, *after, task=task)
        number = len(self.records) + 1
        record = Record(
            id=UUID(int=number),
            sequence=10 * number,
            work="WORK-01",
            task=task,
            from_=role,
            opener=position.opener,
            context=None if silent else ContextHandoff(what=what, why="Because", caution="Mind"),
            stage_parents=position.stage_parents,
            task_parents=position.task_parents,
        )
        self.records[record.id] = record
        return record

    def task(self, name: str, *after: Record) -> Record:
        """The final record of a task of three stages."""
        builder = self.settle("builder", *after, task=name)
        verifier = self.settle("verifier", builder, task=name)
        return self.settle("committer", verifier, task=name)

    def position(self, role: str, *after: Record, task: str | None = None) -> Position:
        return place(work="WORK-01", task=task, to=role, records=after)

    def window(self, role: str, *after: Record, task: str | None = None) -> Seen:
        position = self.position(role, *after, task=task)
        first = self.read(position.parents_shown())
        second = self.read(second_parents(position, first))
        return build_window(position, [*first, *second])

    def read(self, parents: Sequence[Parent]) -> list[Record]:
        self.reads += len(parents)
        return [self.records[parent.handoff_id] for parent in parents]


def shown(seen: Seen) -> list[tuple[str, str | None, str]]:
    return [(entry.from_, entry.task, entry.level.value) for entry in seen[0]]


def cut(seen: Seen) -> list[tuple[int, int, str]]:
    return [(c.handoff_id.int, c.distance, c.level.value) for c in seen[1]]


# The three dispatches that seed 000 writes out.


def test_golden_the_verifier_sees_the_builder_in_full() -> None:
    ledger = Ledger()
    builder = ledger.settle("builder", task="TASK-01", what="Changes made")
    window, _ = ledger.window("verifier", builder, task="TASK-01")
    assert msgspec.to_builtins(window) == (
        {
            "distance": 1,
            "level": "FULL",
            "edge": "stage",
            "from": "builder",
            "handoff_id": "00000000-0000-0000-0000-000000000001",
            "what": "Changes made",
            "task": "TASK-01",
            "why": "Because",
            "caution": "Mind",
            "incomplete": "None",
        },
    )


def test_golden_the_committer_sees_the_verifier_in_full_and_of_the_builder_a_summary() -> None:
    ledger = Ledger()
    needed = ledger.task("TASK-00")
    builder = ledger.settle("builder", needed, task="TASK-01", what="Changes made\n\nA\nB\nC")
    verifier = ledger.settle("verifier", builder, task="TASK-01", what="Verification results")
    window, _ = ledger.window("committer", verifier, task="TASK-01")
    assert msgspec.to_builtins(window) == (
        {
            "distance": 1,
            "level": "FULL",
            "edge": "stage",
            "from": "verifier",
            "handoff_id": "00000000-0000-0000-0000-000000000005",
            "what": "Verification results",
            "task": "TASK-01",
            "why": "Because",
            "caution": "Mind",
            "incomplete": "None",
        },
        {
            "distance": 2,
            "level": "SUMMARY",
            "edge": "stage",
            "from": "builder",
            "handoff_id": "00000000-0000-0000-0000-000000000004",
            "what": "Changes made\nA\nB",
            "task": "TASK-01",
        },
    )


def test_golden_the_next_builder_sees_one_task_in_full_and_of_the_one_before_a_summary() -> None:
    ledger = Ledger()
    oldest = ledger.task("TASK-00")
    older = ledger.task("TASK-01", oldest)
    newer = ledger.task("TASK-02", older)
    window, _ = ledger.window("builder", newer, task="TASK-03")
    assert msgspec.to_builtins(window) == (
        {
            "distance": 1,
            "level": "FULL",
            "edge": "task",
            "from": "committer",
            "handoff_id": "00000000-0000-0000-0000-000000000009",
            "what": "Did it",
            "task": "TASK-02",
            "why": "Because",
            "caution": "Mind",
            "incomplete": "None",
        },
        {
            "distance": 2,
            "level": "SUMMARY",
            "edge": "task",
            "from": "committer",
            "handoff_id": "00000000-0000-0000-0000-000000000006",
            "what": "Did it",
            "task": "TASK-01",
        },
    )


# Distances.


def test_after_nothing_there_is_nothing_to_see() -> None:
    assert Ledger().window("builder") == ((), ())


def test_a_line_of_plain_handoffs_is_seen_stage_by_stage() -> None:
    ledger = Ledger()
    first = ledger.settle("researcher")
    second = ledger.settle("writer", first)
    third = ledger.settle("editor", second)
    seen = ledger.window("printer", third)
    assert shown(seen) == [("editor", None, "FULL"), ("writer", None, "SUMMARY")]
    assert cut(seen) == [(3, 1, "FULL"), (2, 2, "SUMMARY"), (1, 3, "DROP")]


def test_a_rebuild_sees_the_stages_before_it_and_the_tasks_it_needs() -> None:
    ledger = Ledger()
    older = ledger.task("TASK-00")
    needed = ledger.task("TASK-01", older)
    builder = ledger.settle("builder", needed, task="TASK-02")
    verifier = ledger.settle("verifier", builder, task="TASK-02")
    assert shown(ledger.window("builder", verifier, task="TASK-02")) == [
        ("verifier", "TASK-02", "FULL"),
        ("builder", "TASK-02", "SUMMARY"),
        ("committer", "TASK-01", "FULL"),
        ("committer", "TASK-00", "SUMMARY"),
    ]


def test_after_a_rebuild_the_verifier_sees_stages_only_and_the_first_build_no_more() -> None:
    ledger = Ledger()
    needed = ledger.task("TASK-00")
    build = ledger.settle("builder", needed, task="TASK-01")
    verdict = ledger.settle("verifier", build, task="TASK-01")
    rebuild = ledger.settle("builder", verdict, task="TASK-01")
    seen = ledger.window("verifier", rebuild, task="TASK-01")
    assert shown(seen) == [("builder", "TASK-01", "FULL"), ("verifier", "TASK-01", "SUMMARY")]
    assert cut(seen)[-1] == (build.id.int, 3, "DROP")


def test_in_a_diamond_the_common_ancestor_stands_once() -> None:
    ledger = Ledger()
    top = ledger.task("TASK-00")
    left, right = ledger.task("TASK-01", top), ledger.task("TASK-02", top)
    assert shown(ledger.window("builder", left, right, task="TASK-03")) == [
        ("committer", "TASK-02", "FULL"),
        ("committer", "TASK-01", "FULL"),
        ("committer", "TASK-00", "SUMMARY"),
    ]


def test_a_task_needed_directly_and_through_another_is_one_step_away() -> None:
    ledger = Ledger()
    base = ledger.task("TASK-00")
    middle = ledger.task("TASK-01", base)
    seen = ledger.window("builder", base, middle, task="TASK-02")
    assert [(e.task, e.distance) for e in seen[0]] == [("TASK-01", 1), ("TASK-00", 1)]
    assert len(seen[1]) == 2
    assert ledger.reads == 2


def test_a_task_is_as_far_as_its_shortest_path_however_long_the_others_are() -> None:
    ledger = Ledger()
    base = ledger.task("TASK-00")
    far = ledger.task("TASK-02", ledger.task("TASK-01", base))
    near = ledger.task("TASK-03", base)
    seen = ledger.window("builder", far, near, task="TASK-04")
    assert [(e.task, e.distance) for e in seen[0]] == [
        ("TASK-03", 1),
        ("TASK-02", 1),
        ("TASK-01", 2),
        ("TASK-00", 2),
    ]
    assert not [c for c in seen[1] if c.level is DetailLevel.DROP]


def test_of_two_records_of_one_task_the_later_one_speaks_for_it() -> None:
    ledger = Ledger()
    builder = ledger.settle("builder", task="TASK-00")
    committer = ledger.settle("committer", builder, task="TASK-00")
    seen = ledger.window("builder", committer, builder, task="TASK-01")
    assert shown(seen) == [("committer", "TASK-00", "FULL")]
    assert cut(seen) == [(committer.id.int, 1, "FULL")]


def test_the_nearer_record_of_a_task_speaks_for_it_though_a_later_one_is_farther() -> None:
    ledger = Ledger()
    early = ledger.settle("builder", task="TASK-00")
    late = ledger.settle("committer", early, task="TASK-00")
    through = ledger.task("TASK-01", late)
    seen = ledger.window("builder", through, early, task="TASK-02")
    assert [e.handoff_id for e in seen[0]] == [through.id, early.id]


def test_unnamed_tasks_are_told_apart_by_their_records() -> None:
    ledger = Ledger()
    one, two = ledger.settle("researcher"), ledger.settle("planner")
    assert shown(ledger.window("builder", one, two, task="TASK-00")) == [
        ("planner", None, "FULL"),
        ("researcher", None, "FULL"),
    ]


def test_tasks_of_the_same_name_in_two_works_are_two_tasks() -> None:
    ledger = Ledger()
    here, there = ledger.settle("builder", task="TASK-00"), ledger.settle("builder", task="TASK-00")
    there = ledger.records[there.id] = msgspec.structs.replace(there, work="WORK-02")
    assert len(ledger.window("builder", here, there, task="TASK-01")[0]) == 2


def test_a_task_that_comes_back_to_itself_over_another_stands_as_stages_only() -> None:
    ledger = Ledger()
    builder = ledger.settle("builder", task="TASK-00")
    other = ledger.settle("builder", builder, task="TASK-01")
    assert shown(ledger.window("builder", builder, other, task="TASK-00")) == [
        ("builder", "TASK-00", "FULL"),
        ("builder", "TASK-01", "FULL"),
    ]


# Records that said nothing.


def test_a_silent_stage_takes_no_place_in_the_window() -> None:
    ledger = Ledger()
    builder = ledger.settle("builder", task="TASK-01")
    silent = ledger.settle("linter", builder, task="TASK-01", silent=True)
    verifier = ledger.settle("verifier", silent, task="TASK-01")
    assert shown(ledger.window("verifier", silent, task="TASK-01")) == [
        ("builder", "TASK-01", "FULL")
    ]
    assert shown(ledger.window("committer", verifier, task="TASK-01")) == [
        ("verifier", "TASK-01", "FULL"),
        ("builder", "TASK-01", "SUMMARY"),
    ]


def test_a_rebuild_after_a_silent_build_still_sees_the_tasks_it_needs() -> None:
    ledger = Ledger()
    needed = ledger.task("TASK-00")
    silent = ledger.settle("builder", needed, task="TASK-01", silent=True)
    verifier = ledger.settle("verifier", silent, task="TASK-01")
    assert shown(ledger.window("builder", verifier, task="TASK-01")) == [
        ("verifier", "TASK-01", "FULL"),
        ("committer", "TASK-00", "FULL"),
    ]


def test_a_task_whose_last_stage_was_silent_stands_by_the_stage_before() -> None:
    ledger = Ledger()
    needed = ledger.task("TASK-00")
    builder = ledger.settle("builder", needed, task="TASK-01")
    silent = ledger.settle("committer", builder, task="TASK-01", silent=True)
    assert shown(ledger.window("builder", silent, task="TASK-02")) == [
        ("builder", "TASK-01", "FULL"),
        ("committer", "TASK-00", "SUMMARY"),
    ]


# What was cut.


def test_cuts_say_how_many_bytes_of_each_ancestor_are_left() -> None:
    ledger = Ledger()
    first = ledger.settle("builder", what="one\ntwo\nthree\nfour")
    second = ledger.settle("verifier", first, what="a\nb\nc\nd")
    third = ledger.settle("committer", second)
    _, cuts = ledger.window("reporter", third)
    size = {r.id: len(msgspec.json.encode(r.context)) for r in (first, second, third)}
    left = len(msgspec.json.encode({"what": "a\nb\nc"}))
    assert [(c.handoff_id, c.bytes_before, c.bytes_after) for c in cuts] == [
        (third.id, size[third.id], size[third.id]),
        (second.id, size[second.id], left),
        (first.id, size[first.id], 0),
    ]


def test_a_dropped_ancestor_is_known_without_reading_it() -> None:
    ledger = Ledger()
    line = ledger.settle("one")
    for role in ("two", "three", "four", "five"):
        line = ledger.settle(role, line)
    seen = ledger.window("six", line)
    assert ledger.reads == 2
    assert cut(seen) == [(5, 1, "FULL"), (4, 2, "SUMMARY"), (3, 3, "DROP")]


def test_an_ancestor_that_drops_out_of_both_windows_is_recorded_once() -> None:
    ledger = Ledger()
    root = ledger.settle("writer")
    stage = ledger.settle("editor", ledger.settle("editor", root))
    task = ledger.task("TASK-01", ledger.task("TASK-00", root))
    seen = ledger.window("writer", stage, task)
    assert [c for c in cut(seen) if c[1] == 3] == [(root.id.int, 3, "DROP")]


def test_what_one_window_still_shows_is_not_dropped_from_the_other() -> None:
    ledger = Ledger()
    root = ledger.settle("writer")
    stage = ledger.settle("editor", ledger.settle("editor", root))
    task = ledger.task("TASK-00", root)
    seen = ledger.window("writer", stage, task)
    assert (root.id.int, 2, "SUMMARY") in cut(seen)
    assert len(seen[1]) == 4


def test_a_hop_costs_and_weighs_the_same_after_fifty_steps_as_after_three() -> None:
    ledger = Ledger()
    line: tuple[Record, ...] = ()
    sizes: list[int] = []
    for number in range(50):
        window, cuts = ledger.window("worker", *line)
        sizes.append(len(msgspec.json.encode((window, cuts))))
        what = f"Step {number:02}\n" + "".join(f"line {n:03}\n" for n in range(320))
        line = (ledger.settle("worker", *line, what=what),)
    reads = ledger.reads
    seen = ledger.window("worker", *line)
    assert ledger.reads - reads == 2
    assert [(e.handoff_id.int, e.level) for e in seen[0]] == [
        (50, DetailLevel.FULL),
        (49, DetailLevel.SUMMARY),
    ]
    assert seen[0][1].what == "Step 48\nline 000\nline 001"
    assert len(set(sizes[3:])) == 1
    assert 3_000 < sizes[-1] < 4_600


# Parents that are not what the ledger holds.


def test_a_missing_parent_is_an_error_never_an_empty_window() -> None:
    ledger = Ledger()
    builder = ledger.settle("builder")
    position = ledger.position("verifier", builder)
    with pytest.raises(LineageError, match="at sequence 10 was not found"):
        second_parents(position, [])
    with pytest.raises(LineageError, match="at sequence 10 was not found"):
        build_window(position, [])


def test_a_missing_grandparent_is_an_error_too() -> None:
    ledger = Ledger()
    builder = ledger.settle("builder")
    verifier = ledger.settle("verifier", builder)
    with pytest.raises(LineageError) as caught:
        build_window(ledger.position("committer", verifier), [verifier])
    assert caught.value.parent == builder.parent()


def test_a_record_at_another_place_in_the_ledger_is_not_the_parent() -> None:
    ledger = Ledger()
    builder = ledger.settle("builder")
    position = ledger.position("verifier", builder)
    moved = msgspec.structs.replace(builder, sequence=11)
    with pytest.raises(LineageError, match="at sequence 10 stands at sequence 11"):
        build_window(position, [moved])


def test_a_parent_without_a_context_is_an_error() -> None:
    ledger = Ledger()
    builder = ledger.settle("builder")
    position = ledger.position("verifier", builder)
    with pytest.raises(LineageError, match="has no context handoff"):
        build_window(position, [msgspec.structs.replace(builder, context=None)])


# The whole rule, against a search of the whole graph.


@dataclass(frozen=True)
class Step:
    """One handoff of a made-up history; `after` are indices of earlier ones."""

    role: str
    task: str | None
    silent: bool
    after: tuple[int, ...]


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Long enough, and narrow enough, for most to reach farther back than a window does."""
    steps: list[Step] = []
    for number in range(draw(st.integers(4, 14))):
        earlier = range(max(0, number - 3), number)
        after = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=3)) if earlier else []
        steps.append(
            Step(
                role=draw(st.sampled_from(["builder", "verifier"])),
                task=draw(st.sampled_from([None, "TASK-00", "TASK-01", "TASK-02"])),
                silent=draw(st.sampled_from([False, False, False, True])),
                after=tuple(after),
            )
        )
    return steps


def edges(history: list[Step]) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """For each step, the steps it has as parents: those of its task, and those of other tasks."""
    stage: dict[int, set[int]] = {}
    task: dict[int, set[int]] = {}
    for number, step in enumerate(history):
        stage[number], task[number] = set(), set()
        for before in step.after:
            spoke = stage[before] if history[before].silent else {before}
            if history[before].task == step.task:
                stage[number] |= spoke
                task[number] |= task[before]
            else:
                task[number] |= spoke or task[before]
        task[number] -= stage[number]
    return stage, task


def distances(start: int, graph: dict[int, set[int]]) -> dict[int, int]:
    """Breadth first, to the very end of the graph."""
    found: dict[int, int] = {}
    front, distance = graph[start], 0
    while front := front - found.keys():
        distance += 1
        found |= dict.fromkeys(front, distance)
        front = {parent for step in front for parent in graph[step]}
    return found


def openers(history: list[Step]) -> list[str]:
    found: list[str] = []
    for step in history:
        same = [before for before in step.after if history[before].task == step.task]
        found.append(found[min(same)] if same else step.role)
    return found


def expected(history: list[Step], number: int) -> dict[int, tuple[str, int]]:
    """The steps that step `number` must see: their edge and distance."""
    stage, task = edges(history)
    visible = {
        step: ("stage", distance)
        for step, distance in distances(number, stage).items()
        if distance <= 2
    }
    rebuild = openers(history)[number] == history[number].role
    if stage[number] and not rebuild:
        return visible
    nearest: dict[object, tuple[int, int]] = {}
    for step, distance in distances(number, task).items():
        who = history[step].task or step
        nearest[who] = min(nearest.get(who, (99, 0)), (distance, -step))
    staged = {history[step].task or step for step in visible}
    for who, (distance, negative) in nearest.items():
        if distance <= 2 and who not in staged:
            visible[-negative] = ("task", distance)
    return visible


def settle_all(history: list[Step]) -> tuple[Ledger, list[Record], list[Seen]]:
    ledger, records, windows = Ledger(), list[Record](), list[Seen]()
    for step in history:
        after = [records[number] for number in step.after]
        windows.append(ledger.window(step.role, *after, task=step.task))
        records.append(ledger.settle(step.role, *after, task=step.task, silent=step.silent))
    return ledger, records, windows


@given(histories())
def test_every_window_is_what_a_search_of_the_whole_graph_finds(history: list[Step]) -> None:
    _, _, windows = settle_all(history)
    for number, (window, _) in enumerate(windows):
        found = {e.handoff_id.int - 1: (e.edge.value, e.distance) for e in window}
        assert found == expected(history, number)
        order = [(e.edge is Edge.TASK, e.distance, -e.handoff_id.int) for e in window]
        assert order == sorted(order)
        for e in window:
            assert (e.distance, e.level, e.why, e.caution, e.incomplete) in [
                (1, DetailLevel.FULL, "Because", "Mind", "None"),
                (2, DetailLevel.SUMMARY, None, None, None),
            ]


@given(histories())
def test_every_ancestor_at_distance_three_is_dropped_once_and_none_behind(
    history: list[Step],
) -> None:
    _, _, windows = settle_all(history)
    stage, task = edges(history)
    for number, (window, cuts) in enumerate(windows):
        walks = [distances(number, stage)]
        if not stage[number] or openers(history)[number] == history[number].role:
            walks.append(distances(number, task))
        nearest = {
            step: min(walk[step] for walk in walks if step in walk)
            for walk in walks
            for step in walk
        }
        dropped = [c.handoff_id.int - 1 for c in cuts if c.level is DetailLevel.DROP]
        assert sorted(dropped) == sorted(s for s, distance in nearest.items() if distance == 3)
        assert [c.handoff_id for c in cuts[: len(window)]] == [e.handoff_id for e in window]
        assert len(cuts) == len(window) + len(dropped)


@given(histories())
def test_records_that_are_no_near_ancestors_change_nothing(history: list[Step]) -> None:
    _, records, windows = settle_all(history)
    for step, seen in zip(history, windows, strict=True):
        after = [records[number] for number in step.after]
        position = place(work="WORK-01", task=step.task, to=step.role, records=after)
        assert build_window(position, reversed(records)) == seen


@given(st.lists(st.booleans(), min_size=1, max_size=10))
def test_silent_steps_in_a_line_might_as_well_not_have_been(silences: list[bool]) -> None:
    ledger = Ledger()
    with_all: tuple[Record, ...] = ()
    spoken: list[Record] = []
    for silent in silences:
        with_all = (ledger.settle("worker", *with_all, silent=silent),)
        if not silent:
            spoken.append(with_all[0])
    window, _ = ledger.window("reader", *with_all)
    assert [e.handoff_id for e in window] == [r.id for r in reversed(spoken[-2:])]
