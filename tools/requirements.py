"""What a test run needs besides Python, checked before anything is installed."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_servers import debian
from local_servers.children import ServerError
from local_servers.kind import Wanted
from local_servers.lifetime import KINDS
from local_servers.pg_cron import PG_CRON
from programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from local_servers.kind import Kind
    from local_servers.suites import Suite
    from programs import Program

_LEAVE_OUT_PG_CRON = "TTL_ODM_TEST_PG_CRON"


@dataclass(frozen=True)
class _Missing:
    """Something that can't be set up.

    Attributes:
        title: what people call it.
        instead: what to do.
        obstacle: why it can't be downloaded; empty if nobody offers a download.
    """

    title: str
    instead: str
    obstacle: str


def check(only: Collection[str], *, everything: bool) -> None:
    """Make sure that all that the tests need is here, or can be set up.

    Args:
        only: the databases to test (see `local_servers.lifetime.running`); empty means all.
        everything: whether all tests run, also those that need a browser or pg_cron.

    Raises:
        ServerError: something is missing; the message is one sentence that says what, and why, and
            what to do.
    """
    missing = [*_servers(only)]
    if everything:
        missing += [*_pg_cron(only), *_programs()]
    if not missing:
        return
    names = "; ".join(f"{each.title} ({each.instead})" for each in missing)
    obstacles = dict.fromkeys(each.obstacle for each in missing if each.obstacle)
    because = f", because {' and '.join(obstacles)}" if obstacles else ""
    message = f"These can't be set up here{because}: {names}."
    raise ServerError(message)


def _servers(only: Collection[str]) -> Iterator[_Missing]:
    for kind in KINDS:
        if kind.how_wanted() is Wanted.REQUIRED and (not only or kind.name in only):
            leave_out = f"{kind.wanted}=none" if kind.wanted else "--only"
            yield from _missing_server(kind, f", or leave it out with {leave_out}")


def _pg_cron(only: Collection[str]) -> Iterator[_Missing]:
    if os.environ.get(_LEAVE_OUT_PG_CRON) != "none" and (not only or "postgres" in only):
        yield from _missing_server(PG_CRON)  # its remedy says how to leave it out


def _missing_server(kind: Kind, leave_out: str = "") -> Iterator[_Missing]:
    if os.environ.get(kind.variable) or sys.platform in kind.wheel_on:
        return
    if debian.can_install() and kind.packages():
        return
    if kind.find() is None and (obstacle := _obstacle(kind.suite)) is not None:
        instead = f"{kind.remedy}, or set {kind.variable}{leave_out}"
        yield _Missing(kind.title, instead, obstacle)


def _programs() -> Iterator[_Missing]:
    for program in PROGRAMS:
        if not program.is_left_out() and program.find() is None:
            yield from _missing_program(program)


def _missing_program(program: Program) -> Iterator[_Missing]:
    if (obstacle := _obstacle(program.suite)) is not None:
        instead = f"{program.remedy}, or leave it out with {program.option}=none"
        yield _Missing(program.title, instead, obstacle)


def _obstacle(suite: Suite | None) -> str | None:
    """Say why a suite can't be downloaded; None if it can."""
    return "" if suite is None else suite.obstacle() or None
