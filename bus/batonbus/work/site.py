"""Where a work runs: its repository, one run at a time, and the bus that it runs on."""

import fcntl
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from msgspec import Struct

from batonbus.rules.errors import BatonbusError
from batonbus.rules.settings import Settings
from batonbus.run.discovery import STATE_FOLDER, local_url
from batonbus.run.supervisor import local_bus
from batonbus_agents.git import state_folder
from batonbus_agents.repository import Repository
from batonbus_agents.workshop import Workshop


class WorkError(BatonbusError):
    """A work cannot be run."""


class Site(Struct, frozen=True, kw_only=True):
    """A repository and its bus. `url` None is the bus that is up in the repository's folder, or one
    that is started for the run, with these `settings`."""

    workshop: Workshop
    fleet: str
    url: str | None = None
    settings: Settings | None = None

    @property
    def folder(self) -> Path:
        """The repository's top level."""
        return self.workshop.repository.path


async def find_work(folder: Path) -> tuple[Workshop, str]:
    """The workshop around a work's folder, and the work's id. Raises WorkError, RepositoryError."""
    workshop = Workshop(repository=await Repository.open(folder))
    works = workshop.works.path
    if not works.is_dir() or not folder.parent.samefile(works):
        raise WorkError(f"{folder} is no work: name a folder in {works}, such as {works}/WORK-01")
    return workshop, folder.name


@contextmanager
def only_run(site: Site) -> Generator[None]:
    """One run at a time in a repository: its agents have fixed ids. Raises WorkError."""
    with (state_folder(site.folder) / "work.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkError(
                f"a work runs in {site.folder} already: wait for it, or stop it"
            ) from None
        yield


@asynccontextmanager
async def open_bus(site: Site) -> AsyncGenerator[str]:
    """The address of the site's bus."""
    if address := site.url or running_bus(site.folder):
        yield address
        return
    async with local_bus(
        site.folder, fleet=site.fleet, settings=site.settings, log_level="WARNING"
    ) as address:
        yield address


def running_bus(folder: Path) -> str | None:
    """The address of the bus that runs in a folder. One that was killed with -9 has left its
    address there, but not its lock."""
    try:
        with (folder / STATE_FOLDER / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return local_url(folder)
    return None
