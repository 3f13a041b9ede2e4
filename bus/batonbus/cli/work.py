"""`batonbus work`: real work items, from a request to commits."""

import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import anyio
import typer

from batonbus.cli import INTERRUPTED
from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, clean, new_table, one_line
from batonbus.cli.running import run, run_until_signal, start_logs
from batonbus.cli.tracing import configure_tracing
from batonbus.cli.work_options import OnDone, Repo, Runtimes, Variables, role_named, runtime_specs
from batonbus.rules.errors import Bounced
from batonbus.run.bus import serve
from batonbus.run.core import open_operator
from batonbus.run.discovery import find_fleet, find_url
from batonbus.work.cancelling import cancel_work
from batonbus.work.runner import Crew, request_work, run_work
from batonbus.work.site import Site, WorkError, find_work, running_bus
from batonbus.work.status import WorkReport, survey
from batonbus_agents.fleet import make_agent
from batonbus_agents.git import RepositoryError
from batonbus_agents.repository import Repository
from batonbus_agents.routes import Role
from batonbus_agents.runtimes import Runtime, parse_runtime
from batonbus_agents.templates import new_work
from batonbus_agents.workshop import Workshop
from batonbus_schemas import TaskResult
from batonbus_schemas.counts import counted

T = TypeVar("T")

FAILED = 6
HALTED = 7

LAST_WORDS = 1.0
"""Seconds that an agent which is stopped has to end what it works on."""

NOT_ASKED = (
    "No bus was asked, for none is up in the repository: what is not DONE is told as\n"
    "the task's file has it, and its run may have ended. Start the bus there with\n"
    "`batonbus up`, and ask again."
)

app = new_app(no_args_is_help=True)

WorkFolder = Annotated[
    Path, typer.Argument(metavar="WORK", help="The work's folder, such as works/WORK-01.")
]
Builders = Annotated[int, typer.Option(min=1, help="Builders beside each other.")]


@app.callback()
def work() -> None:
    """Run work items: planned tasks, built, verified and committed, one commit each.

    \b
    Examples:
      batonbus work new 'Count the words of a file' --file wc.py
      batonbus work run works/WORK-01 --runtime builder='command:claude -p'
      batonbus work status
    """


@app.command()
def new(
    title: Annotated[str, typer.Argument(help="What is to be done, in a line.")],
    file: Annotated[
        list[str] | None,
        typer.Option(help="A file that the task may change; may be repeated.", show_default=False),
    ] = None,
    verify: Annotated[
        list[str] | None,
        typer.Option(help="A command that must pass; may be repeated.", show_default=False),
    ] = None,
    language: Annotated[str, typer.Option(help="en, ko or ja.")] = "en",
    repo: Repo = Path(),
    as_json: Json = False,
) -> None:
    """Write a small work by hand: a requirement, a plan in direct mode, one task.

    \b
    Examples:
      batonbus work new 'Count the words of a file' --file wc.py --verify 'python -m pytest -q'
    """
    start_logs(None, Level.WARNING)
    output = Output(as_json)

    async def go() -> int:
        workshop = Workshop(repository=await Repository.open(repo))
        try:
            folder = new_work(
                workshop.works,
                title,
                files=tuple(file or ()),
                verify=tuple(verify or ()),
                language=language,
                day=datetime.now(UTC).date(),
            )
        except ValueError as error:
            raise WorkError(str(error)) from error
        path = folder.path.relative_to(workshop.repository.path)
        output.show(f"{path}: Requirement.md, PLAN.md and TASK-01.md are written; edit them.")
        if not file:
            output.show(f"The task declares no files yet: list them in {path}/TASK-01.md.")
        output.show(f"Then: batonbus work run {path} --runtime builder='command:…'")
        output.emit({"work": folder.work, "path": str(path)})
        return 0

    raise typer.Exit(_run(output, go))


@app.command("run")
def run_(
    folder: WorkFolder,
    repo: Repo = Path(),
    runtime: Runtimes = None,
    variables: Variables = None,
    on_done: OnDone = "",
    builders: Builders = 2,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Run a work to its end; run again, it goes on where it was.

    Its roles run as processes of this command, on the bus that is up in the repository's folder,
    or on one of its own.

    \b
    Examples:
      batonbus work run works/WORK-01 --runtime builder='command:claude -p'
      batonbus work run works/WORK-01 --repo ../site --runtime builder=script:patches.toml

    \b
    Exit codes: 0 every task is committed, 6 refused, dead or cancelled, 7 a task FAILED and the
    pipeline is halted.
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    crew = _crew(runtime, variables, builders, on_done)

    async def work() -> TaskResult:
        workshop, name = await find_work(_below(repo, folder))
        return await run_work(_site(workshop, url, fleet), name, crew, output.show)

    raise typer.Exit(_run(output, partial(_finish, output, work)))


@app.command()
def request(
    text: Annotated[str, typer.Argument(help="What is wanted, in plain text.")],
    repo: Repo = Path(),
    runtime: Runtimes = None,
    variables: Variables = None,
    on_done: OnDone = "",
    builders: Builders = 2,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Let the specifier and the planner make a work of a request, and run it.

    Where it is interrupted, `batonbus work run` goes on with it.

    \b
    Examples:
      batonbus work request 'Export reports as CSV.' --runtime specifier='command:claude -p' \\
        --runtime planner='command:claude -p' --runtime builder='command:claude -p'
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    crew = _crew(runtime, variables, builders, on_done)

    async def work() -> TaskResult:
        workshop = Workshop(repository=await Repository.open(repo))
        return await request_work(_site(workshop, url, fleet), text, crew, output.show)

    raise typer.Exit(_run(output, partial(_finish, output, work)))


@app.command()
def status(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="A work's folder, or one with works below it."),
    ] = None,
    repo: Repo = Path(),
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Say how each task is: by its commit, by the ledger, by its files; and what cannot be read.

    Where a bus is up, status files that somebody deleted are written again. Where none is, a task
    without a commit is only told as its file has it: how its run ended stands in the ledger.

    \b
    Examples:
      batonbus work status
      batonbus work status works/WORK-01 --json

    \b
    Exit codes: 0 all files can be read, 1 some cannot.
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)

    async def go() -> int:
        named = None if path is None else _below(repo, path)
        workshop = await _workshop(named or repo)
        target = named or (workshop.works.path if workshop else repo / "works")
        address = _address(workshop, url)
        if address is None:
            reports = await survey(target, workshop)
        else:
            async with open_operator(address, fleet=fleet or find_fleet()) as core:
                reports = await survey(target, workshop, core)
        for report in reports:
            _show_report(output, report)
        if address is None and any(it.is_open for it in reports):
            output.show(NOT_ASKED)
        output.emit({"works": reports, "ledger_read": address is not None})
        return 1 if any(report.refused for report in reports) else 0

    raise typer.Exit(_run(output, go))


@app.command()
def cancel(
    folder: WorkFolder,
    reason: Annotated[str, typer.Option(help="Why, for those who work on it.")] = "cancelled",
    repo: Repo = Path(),
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """End a work: every open handoff of it is cancelled, and whoever works on one is stopped.

    \b
    Examples:
      batonbus work cancel works/WORK-01 --reason 'not wanted any more'
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)

    async def go() -> int:
        workshop, work = await find_work(_below(repo, folder))
        address = _address(workshop, url) or find_url(workshop.repository.path)
        async with open_operator(address, fleet=fleet or find_fleet()) as core:
            count = await cancel_work(core, work, reason)
        output.show(f"{work}: {counted(count, 'open handoff')} cancelled")
        output.emit({"work": work, "cancelled": count})
        return 0

    raise typer.Exit(_run(output, go))


@app.command()
def agent(
    role: Annotated[str, typer.Argument(help="specifier, planner, scheduler, builder, …")],
    repo: Repo = Path(),
    runtime: Runtimes = None,
    variables: Variables = None,
    on_done: OnDone = "",
    id: Annotated[str | None, typer.Option(help="Name of this very agent.")] = None,
    url: Url = None,
    fleet: Fleet = None,
    log_level: LogLevel = None,
) -> None:
    """Run one role of the reference fleet, as `work run` does.

    \b
    Examples:
      batonbus work agent builder --repo . --runtime builder='command:claude -p'
    """
    start_logs(log_level, Level.INFO)
    output = Output(as_json=False)
    name = role_named(role)
    runtimes: dict[Role, Runtime] = {
        it: parse_runtime(spec, variables=tuple(variables or ()))
        for it, spec in runtime_specs(runtime).items()
    }
    configure_tracing(name)

    async def serve_role(stop: anyio.Event) -> None:
        repository = await Repository.open(repo)
        workshop = Workshop(repository=repository, runtimes=runtimes, on_done=on_done)
        made = make_agent(name, workshop, id=id)
        await serve(made, url or find_url(), fleet=fleet or find_fleet(), stop=stop)

    async def go(stop: anyio.Event) -> None:
        # Its programs must end before whoever stops it loses patience and kills it with -9.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_after, stop, LAST_WORDS, tasks.cancel_scope)
            await serve_role(stop)
            tasks.cancel_scope.cancel()

    raise typer.Exit(_run(output, partial(run_until_signal, go)))


def _run(output: Output, go: Callable[[], Awaitable[int]]) -> int:
    return run(output, partial(_told, go))


async def _told(go: Callable[[], Awaitable[T]]) -> T:
    """What the system says of a work's folder is no bug either."""
    try:
        return await go()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WorkError(str(error)) from error


async def _finish(output: Output, work: Callable[[], Awaitable[TaskResult]]) -> int:
    """Show what comes of a run. SIGINT and SIGTERM end it in order."""
    ended: list[TaskResult] = []
    bounced: list[str] = []

    async def go(stop: anyio.Event) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_after, stop, 0, tasks.cancel_scope)
            try:
                ended.append(await _told(work))
            except Bounced as error:
                bounced.append(str(error))
            tasks.cancel_scope.cancel()

    await run_until_signal(go)
    if bounced:
        output.fail(bounced)
        return FAILED
    if not ended:
        output.fail(["interrupted: run the work again, and it goes on where it was"])
        return INTERRUPTED
    for check in ended[0].verification:
        output.show(f"{check.name}  {check.status:<4}  {one_line(check.output)}")
    output.show(clean(ended[0].summary))
    output.emit(ended[0])
    return 0 if ended[0].status == "PASS" else HALTED


async def _cancel_after(event: anyio.Event, seconds: float, scope: anyio.CancelScope) -> None:
    await event.wait()
    await anyio.sleep(seconds)
    scope.cancel()


def _crew(
    runtime: list[str] | None, variables: list[str] | None, builders: int, on_done: str
) -> Crew:
    return Crew(
        runtimes=runtime_specs(runtime),
        variables=tuple(variables or ()),
        builders=builders,
        on_done=on_done,
    )


def _below(repo: Path, folder: Path) -> Path:
    """A work's folder, named from the repository or from the current folder."""
    below = repo / folder
    return (below if below.exists() else folder).resolve()


def _site(workshop: Workshop, url: str | None, fleet: str | None) -> Site:
    address = url or os.environ.get("BATONBUS_URL")
    return Site(workshop=workshop, fleet=fleet or find_fleet(), url=address)


async def _workshop(path: Path) -> Workshop | None:
    """The workshop around a path; None where it lies in no repository."""
    try:
        return Workshop(repository=await Repository.open(path))
    except RepositoryError:
        return None


def _address(workshop: Workshop | None, url: str | None) -> str | None:
    """The bus that was named, or the one that is up in the repository."""
    if address := url or os.environ.get("BATONBUS_URL"):
        return address
    return running_bus(workshop.repository.path) if workshop else None


def _show_report(output: Output, report: WorkReport) -> None:
    table = new_table("task", "status", "stage", "attempts", "commit", "title", wraps=("title",))
    for task in report.tasks:
        attempts = str(task.attempts) if task.attempts else ""
        table.add_row(
            task.task, task.status, task.stage, attempts, task.commit[:10], one_line(task.title, 60)
        )
    output.show(report.work, table)
    for task in report.tasks:
        if task.reason:
            output.show(f"{task.task}: {one_line(task.reason)}")
    for problem in report.problems:
        output.show(clean(str(problem)))
    for name in report.restored:
        output.note(f"{report.work}/{name} was missing: written again from the ledger")
    output.show("")
