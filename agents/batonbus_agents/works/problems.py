"""What is wrong with a works file: where, and what to do about it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct

from batonbus import BatonbusError

T = TypeVar("T")


class Problem(Struct, frozen=True, order=True):
    """One thing that is wrong. `line` counts from 1. A warning is told, and refuses nothing."""

    file: str
    line: int
    reason: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {'warning: ' if self.warning else ''}{self.reason}"


class WorksFileError(BatonbusError):
    """A works file that cannot be taken as it stands; `problems` holds everything at once."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """As much of a file as could be read, with everything that is wrong with it."""

    value: T
    problems: tuple[Problem, ...] = ()

    def whole(self) -> T:
        """The value; raises `WorksFileError` unless all that is wrong are warnings."""
        refusals = tuple(problem for problem in self.problems if not problem.warning)
        if refusals:
            raise WorksFileError(refusals)
        return self.value


class Problems:
    """Collects what is wrong with one file while it is read."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: set[Problem] = set()

    def refuse(self, line: int, reason: object) -> None:
        self._found.add(Problem(self.file, max(line, 1), str(reason)))

    def warn(self, line: int, reason: object) -> None:
        self._found.add(Problem(self.file, max(line, 1), str(reason), warning=True))

    def reading(self, value: T) -> Reading[T]:
        return Reading(value, tuple(sorted(self._found)))
