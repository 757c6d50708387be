"""The registry of paths: what there is to read, by the name of how it is read.

A path is a function of a session and a world (the models, see `tests.leaks.worlds`). It returns
plain values in a fixed order, so that answers can be compared. The MongoDB half of the matrix,
`tests.leaks_mongo`, has a `Registry` of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path as FilePath
from typing import Any

Run = Callable[..., Any]


class Sees(Enum):
    """What the right answer of a path is."""

    LIVE = "what the path gives where there are no expired rows"
    EVERYTHING = "what the path gives where nothing ever expires"


@dataclass(frozen=True)
class Path:
    """One way of reading.

    Attributes:
        name: the way, in words.
        theme: the file that it stands in.
        run: does it.
        answer: the right answer, where it can't come from another world.
        without: what can't do it (a database, with SQLAlchemy's dialect for it, or a Beanie), and
            the reason where it isn't plain. "mariadb<11.8": that could only do it from then on.
        own: it is about ttl_odm's own options; other packages have nothing like it.
        writes: it changes rows.
    """

    name: str
    theme: str
    run: Run
    answer: Any
    without: Mapping[str, str]
    own: bool
    writes: bool

    def is_beyond(self, database: str, version: tuple[int, ...]) -> bool:
        """Whether a server can't do it."""
        bounds = {name: bound for name, _, bound in (key.partition("<") for key in self.without)}
        bound = bounds.get(database)
        if not bound:
            return bound is not None
        return version < tuple(map(int, bound.split(".")))


def rows(result: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The rows of a result as plain tuples, in an order that is the same everywhere."""
    return sorted((tuple(row) for row in result), key=repr)


class Registry:
    """The paths in the ``paths_*`` modules of a package.

    Args:
        package: the package's name.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._paths: dict[str, Path] = {}

    def path(
        self,
        name: str,
        *,
        answer: Any = Sees.LIVE,
        without: Mapping[str, str] | tuple[str, ...] = (),
        own: bool = False,
        writes: bool = False,
    ) -> Callable[[Run], Run]:
        """Register a path; for the arguments see `Path`."""
        reasons = without if isinstance(without, Mapping) else dict.fromkeys(without, "")

        def register(run: Run) -> Run:
            if name in self._paths:
                raise ValueError(f"there are two paths named {name!r}")
            theme = run.__module__.rpartition("paths_")[2]
            self._paths[name] = Path(name, theme, run, answer, reasons, own, writes)
            return run

        return register

    def all_paths(self, *, without: tuple[str, ...] = ()) -> list[Path]:
        """Import the ``paths_*`` modules; return what they registered, but for some themes."""
        folder = FilePath(str(importlib.import_module(self._package).__file__)).parent
        for file in sorted(folder.glob("paths_*.py")):
            if file.stem.removeprefix("paths_") not in without:
                importlib.import_module(f"{self._package}.{file.stem}")
        wanted = [path for path in self._paths.values() if path.theme not in without]
        return sorted(wanted, key=lambda path: path.theme)  # whichever module imports another


_SQL = Registry("tests.leaks")
path = _SQL.path
all_paths = _SQL.all_paths
