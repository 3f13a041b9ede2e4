"""What a folder of works holds, and everything that is wrong with it. Nothing is written."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from batonbus_agents.works.folder import PUT_AWAY, WORK_LIST, WorkFolder, WorksRoot, work_folders
from batonbus_agents.works.problems import Problem
from batonbus_agents.works.work import Work
from batonbus_agents.works.work_list import WorkList, next_work_id


class FolderReport(Struct, frozen=True):
    """The works that were read, as far as they could be, and all problems in order."""

    works: tuple[Work, ...]
    problems: tuple[Problem, ...]

    @property
    def refused(self) -> bool:
        """Whether anything is more than a warning."""
        return any(not problem.warning for problem in self.problems)


def validate_folder(path: Path) -> FolderReport:
    """Reads one work's folder, or every work below a folder, in the old layout or the new.

    Raises NotADirectoryError where the path is no folder.
    """
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is no folder: name a work's folder, or one above it")
    path = path.absolute()
    folders = work_folders(path)
    problems: list[Problem] = []
    if not folders:
        problems.append(Problem(path.name, 1, "holds no folder WORK-NN"))
    readings = [WorkFolder(it).read() for it in folders]
    for reading in readings:
        problems += reading.problems
    problems += _twice(folders, path)
    for root in sorted({_root(it) for it in folders}):
        problems += _list_problems(root, folders)
    return FolderReport(tuple(it.value for it in readings), tuple(sorted(set(problems))))


def _root(folder: Path) -> Path:
    return folder.parent.parent if folder.parent.name == PUT_AWAY else folder.parent


def _twice(folders: list[Path], path: Path) -> Iterator[Problem]:
    first: dict[str, Path] = {}
    for folder in folders:
        other = first.setdefault(folder.name, folder)
        if other != folder:
            told = f"has the id of {other.relative_to(path)}: give each work its id"
            yield Problem(str(folder.relative_to(path)), 1, told)


def _list_problems(root: Path, folders: list[Path]) -> Iterator[Problem]:
    """Where the list and the folders tell of different works."""
    if not (root / WORK_LIST).is_file():
        return
    reading = WorksRoot(root).read_list()
    yield from reading.problems
    yield from _unlike(reading.value, {it.name for it in folders if it.parent == root}, root)
    names = [it.name for it in folders if _root(it) == root]
    following = next_work_id(reading.value, names)
    if reading.value.last and following != next_work_id(WorkList(last=reading.value.last), ()):
        told = f"LAST_WORK_ID is {reading.value.last}, and the next free id is {following}"
        yield Problem(WORK_LIST, 1, told, warning=True)


def _unlike(works: WorkList, open_folders: set[str], root: Path) -> Iterator[Problem]:
    for entry in works.works:
        if not (root / entry.work).is_dir():
            yield Problem(WORK_LIST, 1, f"{entry.work} has a row and no folder")
    for work in sorted(open_folders):
        if works.find(work) is None:
            yield Problem(WORK_LIST, 1, f"{work} has a folder and no row", warning=True)
