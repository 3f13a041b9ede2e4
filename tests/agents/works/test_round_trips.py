"""What is written is read back as the same value, in every language, whatever the text."""

from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st

from batonbus_agents.works.execution_log import LogEntry, read_log, render_log
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.handoff import StageContext
from batonbus_agents.works.plan import Plan, parse_plan, read_plan, render_plan
from batonbus_agents.works.plan_tasks import PlanTask
from batonbus_agents.works.problems import Reading
from batonbus_agents.works.progress import Progress, parse_progress, read_progress, render_progress
from batonbus_agents.works.requirement import Requirement, parse_requirement, render_requirement
from batonbus_agents.works.result import (
    Criterion,
    Result,
    parse_result,
    read_result,
    render_result,
)
from batonbus_agents.works.task import TaskSpec, parse_task, read_task, render_task
from batonbus_agents.works.words import action_of, is_nothing
from batonbus_agents.works.work_list import (
    WorkEntry,
    WorkList,
    parse_work_list,
    read_work_list,
    render_work_list,
)
from batonbus_schemas.context import ContextHandoff, DetailLevel

LANGUAGES = st.sampled_from(["en", "ko", "ja", "ko-KR", "fr"])
LETTERS = st.characters(exclude_categories=("Cc", "Cs"))
HOSTILE = st.sampled_from(
    [
        *("# heading", "### Builder Context (FULL)", "## Verify", "- **why**: no", "**what**: no"),
        *("```", "````bash", "~~~", "<!--", "---", "===", "> quote", "    code", "\ttab"),
        *("| a | b |", "|---|---|", "- item", "1. one", "[ref]: /x", "TASK-99", "Status: DONE"),
        *("", "  ", "<think>", "\\", "*", "내용은 그대로", "内容はそのまま", "None"),
    ]
)
LINES = st.lists(HOSTILE | st.text(LETTERS, max_size=12), max_size=6)
FREE = LINES.map(lambda lines: "\n".join(lines).strip())
SAID = FREE.map(lambda text: "said" if is_nothing(text) else text)
LINE = (HOSTILE | st.text(LETTERS, max_size=20)).map(lambda text: " ".join(text.split()))
TITLE = LINE.map(lambda text: text.lstrip(":—–-\uff1a ")).map(
    lambda text: "titled" if is_nothing(text) else text
)

IDS = st.integers(0, 120).map(lambda number: f"TASK-{number:02d}")
WORKS = st.integers(0, 120).map(lambda number: f"WORK-{number:02d}")
MOMENTS = st.datetimes(datetime(1971, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=0)
)
DAYS = st.dates(date(1971, 1, 1))
STEPS = st.sampled_from(
    ["src", ".github", "[id]", "my file.py", "a-b_c.ts", "가.md", "x(1)", "Makefile"]
)
PATHS = st.lists(STEPS, min_size=1, max_size=3).map("/".join)
ACTIONS = st.sampled_from(["CREATE", "MODIFY", "DELETE"])
ABOUT = TITLE.filter(lambda text: not any(action_of(word) for word in text.split()[:1]))
FILES = st.lists(
    st.builds(FileEntry, PATHS, ACTIONS, st.just("") | ABOUT),
    max_size=4,
    unique_by=lambda file: file.path,
).map(tuple)
HANDOFFS = st.builds(ContextHandoff, what=SAID, why=FREE, caution=FREE, incomplete=SAID)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    ids = draw(st.lists(IDS, min_size=1, max_size=5, unique=True))
    tasks = [
        PlanTask(
            id=task,
            title=draw(TITLE),
            depends_on=tuple(draw(st.lists(st.sampled_from(ids[:place]), unique=True)))
            if place
            else (),
            scope=draw(FREE),
            files=draw(FILES),
        )
        for place, task in enumerate(ids)
    ]
    return Plan(
        work=draw(WORKS),
        title=draw(TITLE),
        goal=draw(FREE),
        mode=draw(st.sampled_from(["direct", "pipeline", "full"])),
        project=draw(TITLE),
        requirement=draw(TITLE),
        tech_stack=draw(TITLE),
        language=draw(LANGUAGES),
        created=draw(st.none() | DAYS),
        tasks=tuple(tasks),
    )


@given(plans())
def test_a_plan_is_read_as_it_was_written(plan: Plan) -> None:
    assert parse_plan(render_plan(plan)) == plan


@given(
    st.builds(
        TaskSpec,
        id=IDS,
        title=TITLE,
        work=WORKS.map(lambda work: f"{work}: a title"),
        depends_on=st.none() | st.lists(IDS, unique=True, max_size=3).map(tuple),
        scope=FREE,
        files=FILES,
        acceptance_criteria=st.lists(TITLE, max_size=3).map(tuple),
        verify=st.lists(FREE, max_size=2).map(tuple),
    ),
    LANGUAGES,
)
def test_a_task_is_read_as_it_was_written(spec: TaskSpec, language: str) -> None:
    assert parse_task(render_task(spec, language), f"{spec.id}.md") == spec


@given(
    st.builds(
        Progress,
        task=IDS,
        status=st.sampled_from(["PENDING", "STARTED", "IN_PROGRESS", "COMPLETED"]),
        started=st.none() | MOMENTS,
        updated=st.none() | MOMENTS,
        files=FILES,
        attempts=st.dictionaries(
            st.sampled_from(["retry_builder_attempts", "retry_committer_attempts", "attempts"]),
            st.integers(0, 9),
        ),
    )
)
def test_a_progress_is_read_as_it_was_written(progress: Progress) -> None:
    assert parse_progress(render_progress(progress), f"{progress.task}_progress.md") == progress


@st.composite
def contexts(draw: st.DrawFn) -> tuple[StageContext, ...]:
    roles = draw(st.lists(st.sampled_from(["builder", "verifier", "auditor"]), unique=True))
    levels = [draw(st.sampled_from([DetailLevel.FULL, DetailLevel.SUMMARY])) for _ in roles]
    return tuple(
        StageContext(
            role=role,
            level=level,
            handoff=draw(
                HANDOFFS if level is DetailLevel.FULL else st.builds(ContextHandoff, what=SAID)
            ),
        )
        for role, level in zip(roles, levels, strict=True)
    )


@given(
    st.builds(
        Result,
        task=IDS,
        work=WORKS.map(lambda work: f"{work} — a title"),
        completed=st.none() | MOMENTS,
        status=st.sampled_from(["DONE", "FAILED"]),
        mode=st.sampled_from(["", "direct"]),
        commit=st.sampled_from(["", "1a2b3c4"]),
        summary=FREE,
        checklist=st.lists(st.builds(Criterion, TITLE, st.booleans()), max_size=3).map(tuple),
        verification=FREE,
        files=FILES.map(lambda files: tuple(sorted(files, key=lambda it: it.action or ""))),
        issues=FREE,
        notes=FREE,
        contexts=contexts(),
    ),
    LANGUAGES,
)
def test_a_result_is_read_as_it_was_written(result: Result, language: str) -> None:
    order = {"CREATE": 0, "MODIFY": 1, "DELETE": 2, None: 3}
    read = parse_result(render_result(result, language), f"{result.task}_result.md")
    assert sorted(read.files, key=lambda it: order[it.action]) == list(read.files)
    assert set(read.files) == set(result.files)
    assert read.contexts == result.contexts
    assert (read.summary, read.verification, read.issues, read.notes) == (
        *(result.summary, result.verification),
        *(result.issues, result.notes),
    )
    assert (read.task, read.work, read.completed, read.status, read.mode, read.commit) == (
        *(result.task, result.work, result.completed),
        *(result.status, result.mode, result.commit),
    )
    assert read.checklist == result.checklist


@given(
    st.builds(
        Requirement,
        work=WORKS,
        request=SAID,
        functional=st.lists(TITLE.map("FR-01: {}".format), max_size=3).map(tuple),
        non_functional=st.lists(TITLE.map("NFR-01: {}".format), max_size=3).map(tuple),
        acceptance_criteria=st.lists(TITLE, max_size=3).map(tuple),
    ),
    LANGUAGES,
)
def test_a_requirement_is_read_as_it_was_written(requirement: Requirement, language: str) -> None:
    assert parse_requirement(render_requirement(requirement, language)) == requirement


@given(
    st.lists(
        st.builds(
            WorkEntry,
            work=WORKS,
            title=LINE,
            status=st.sampled_from(["IN_PROGRESS", "DONE"]),
            created=st.none() | DAYS,
            done=st.none() | DAYS,
        ),
        max_size=4,
        unique_by=lambda it: it.work,
    ),
    WORKS,
)
def test_a_work_list_is_read_as_it_was_written(entries: list[WorkEntry], last: str) -> None:
    works = WorkList(last=last, works=tuple(entries))
    assert parse_work_list(render_work_list(works)) == works


@given(
    st.lists(
        st.builds(
            LogEntry,
            written=MOMENTS,
            summary=LINE,
            phase=TITLE,
            did=SAID,
            checks=SAID,
            next=SAID,
            context=SAID,
        ),
        max_size=3,
    )
)
def test_a_log_is_read_as_it_was_written(entries: list[LogEntry]) -> None:
    assert read_log(render_log("WORK-07", tuple(entries))).whole() == tuple(entries)


@given(LINES.map("\n".join))
def test_no_text_at_all_breaks_a_reader(text: str) -> None:
    for read in (read_task, read_progress, read_result):
        assert isinstance(read(text, "TASK-01.md"), Reading)
    assert isinstance(read_plan(text), Reading)
    assert isinstance(read_work_list(text), Reading)
