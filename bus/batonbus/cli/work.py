"""`batonbus work`: real work items, from a request to commits."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, clean, new_table, one_line
from batonbus.cli.running import run, run_until_signal, start_logs
from batonbus.cli.tracing import configure_tracing
from batonbus.cli.work_options import OnDone, Repo, Runtimes, Variables, role_named, runtime_specs
from batonbus.rules.chain import OPERATOR
from batonbus.rules.errors import Bounced, Refuse
from batonbus.run.bus import serve
from batonbus.run.core import open_core
from batonbus.run.discovery import address_file, find_fleet, find_url
from batonbus.work.cancelling import cancel_work
from batonbus.work.runner import Crew, Site, WorkError, request_work, run_work
from batonbus.work.status import WorkReport, survey
from batonbus_agents.fleet import make_agent
from batonbus_agents.git import RepositoryError
from batonbus_agents.repository import Repository
from batonbus_agents.routes import Role
from batonbus_agents.runtimes import Runtime, parse_runtime
from batonbus_agents.templates import new_work
from batonbus_agents.workshop import Workshop
from batonbus_schemas import TaskResult

FAILED = 6
HALTED = 7

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
        folder = new_work(
            workshop.works,
            title,
            files=tuple(file or ()),
            verify=tuple(verify or ()),
            language=language,
            day=datetime.now(UTC).date(),
        )
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
      batonbus work run works/WORK-01 --runtime builder=script:patches.toml --on-done ./tell.sh

    \b
    Exit codes: 0 every task is committed, 6 refused, dead or cancelled, 7 a task FAILED and the
    pipeline is halted.
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    site = Site(folder=repo.resolve(), fleet=fleet or find_fleet(), url=url)
    crew = _crew(runtime, variables, builders, on_done)
    _check_place(folder, site)
    go = partial(_finish, output, partial(run_work, site, folder.name, crew, output.show))
    raise typer.Exit(_run(output, go))


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

    \b
    Examples:
      batonbus work request 'Export reports as CSV.' --runtime specifier='command:claude -p' \\
        --runtime planner='command:claude -p' --runtime builder='command:claude -p'
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    site = Site(folder=repo.resolve(), fleet=fleet or find_fleet(), url=url)
    crew = _crew(runtime, variables, builders, on_done)
    go = partial(_finish, output, partial(request_work, site, text, crew, output.show))
    raise typer.Exit(_run(output, go))


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

    Where a bus is up, status files that somebody deleted are written again.

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
        workshop = await _workshop(repo)
        address = url or _address_in(repo)
        target = path or repo / "works"
        if address is None:
            reports = await survey(target, workshop)
        else:
            async with open_core(address, OPERATOR, fleet=fleet or find_fleet()) as core:
                reports = await survey(target, workshop, core)
        for report in reports:
            _show_report(output, report)
        output.emit({"works": reports})
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
        address = url or _address_in(repo) or find_url()
        async with open_core(address, OPERATOR, fleet=fleet or find_fleet()) as core:
            count = await cancel_work(core, folder.name, reason)
        output.show(f"{folder.name}: {count} open handoffs cancelled")
        output.emit({"work": folder.name, "cancelled": count})
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

    async def go(stop: anyio.Event) -> None:
        repository = await Repository.open(repo)
        workshop = Workshop(repository=repository, runtimes=runtimes, on_done=on_done)
        made = make_agent(name, workshop, id=id)
        await serve(made, url or find_url(), fleet=fleet or find_fleet(), stop=stop)

    raise typer.Exit(_run(output, partial(run_until_signal, go)))


def _run(output: Output, go: Callable[[], Awaitable[int]]) -> int:
    """As `run`; what a work's files or its repository say is no bug either."""

    async def told() -> int:
        try:
            return await go()
        except (RepositoryError, Refuse, NotADirectoryError, ValueError) as error:
            raise WorkError(str(error)) from error

    return run(output, told)


async def _finish(output: Output, work: Callable[[], Awaitable[TaskResult]]) -> int:
    try:
        result = await work()
    except Bounced as error:
        output.fail([str(error)])
        return FAILED
    for check in result.verification:
        output.show(f"{check.name}  {check.status:<4}  {one_line(check.output)}")
    output.show(clean(result.summary))
    output.emit(result)
    return 0 if result.status == "PASS" else HALTED


def _crew(
    runtime: list[str] | None, variables: list[str] | None, builders: int, on_done: str
) -> Crew:
    return Crew(
        runtimes=runtime_specs(runtime),
        variables=tuple(variables or ()),
        builders=builders,
        on_done=on_done,
    )


def _check_place(folder: Path, site: Site) -> None:
    if folder.resolve().parent != site.folder / "works":
        raise typer.BadParameter(
            f"{folder} is no work of {site.folder}: a work lies in its works folder, "
            "name another --repo"
        )


async def _workshop(repo: Path) -> Workshop | None:
    """The repository's workshop; None where the works lie in no repository."""
    try:
        return Workshop(repository=await Repository.open(repo))
    except RepositoryError:
        return None


def _address_in(repo: Path) -> str | None:
    file = address_file(repo)
    return file.read_text().strip() if file.exists() else None


def _show_report(output: Output, report: WorkReport) -> None:
    table = new_table("task", "status", "stage", "attempts", "commit", "title")
    for task in report.tasks:
        attempts = str(task.attempts) if task.attempts else ""
        table.add_row(
            task.task, task.status, task.stage, attempts, task.commit[:10], one_line(task.title, 60)
        )
    output.show(report.work, table)
    for problem in report.problems:
        output.show(clean(str(problem)))
    for name in report.restored:
        output.note(f"{report.work}/{name} was missing: written again from the ledger")
    output.show("")
