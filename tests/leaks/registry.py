"""The registry of paths: what there is to read, by the name of how it is read.

A path is a function of a session and a world (the models, see `tests.leaks.worlds`). It returns
plain values in a fixed order, so that answers can be compared.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World

Run = Callable[["Session", "World"], Any]


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
        answer: the right answer, where it can't be had from another world.
        without: databases that don't know the statement (with SQLAlchemy's dialect for them).
        own: it is about ttl_odm's own options; other packages have nothing like it.
        writes: it changes rows.
    """

    name: str
    theme: str
    run: Run
    answer: Any
    without: frozenset[str]
    own: bool
    writes: bool


def rows(result: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The rows of a result as plain tuples, in an order that is the same everywhere."""
    return sorted((tuple(row) for row in result), key=repr)


PATHS: dict[str, Path] = {}


def path(
    name: str,
    *,
    answer: Any = Sees.LIVE,
    without: tuple[str, ...] = (),
    own: bool = False,
    writes: bool = False,
) -> Callable[[Run], Run]:
    """Register a path; for the arguments see `Path`."""

    def register(run: Run) -> Run:
        if name in PATHS:
            raise ValueError(f"there are two paths named {name!r}")
        theme = run.__module__.rpartition("paths_")[2]
        PATHS[name] = Path(name, theme, run, answer, frozenset(without), own, writes)
        return run

    return register


def all_paths(*, without: tuple[str, ...] = ()) -> list[Path]:
    """Import the ``paths_*`` modules, without some themes, and return what they registered."""
    for file in sorted(FilePath(__file__).parent.glob("paths_*.py")):
        if file.stem.removeprefix("paths_") not in without:
            importlib.import_module(f"tests.leaks.{file.stem}")
    return list(PATHS.values())
