"""What every kind of server has to tell us: the one shape that `lifetime` works with."""

from __future__ import annotations

import os
import random
import socket
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from local_servers.children import ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_servers.children import Children
    from local_servers.suites import Suite

ADDRESS = "127.0.0.1"
ENVIRONMENTS = (Path(sys.prefix), Path(__file__).resolve().parents[2] / ".venv")
"""Where packages of the `dev` extra are."""

NAME = "ttl_odm"  # The user and the database of the SQL servers.

DURABLE = "TTL_ODM_DURABLE_SERVERS"
"""An environment variable: with it, servers write to disk as they do in production, for figures
in which a commit has its price."""


def is_durable() -> bool:
    """Whether servers are to keep data safe."""
    return bool(os.environ.get(DURABLE))


# Below Linux's range for outgoing connections (from 32768): a port that is free when we look
# cannot be taken by somebody's client before our server binds it.
_PORTS = range(15_000, 32_000)


class Wanted(Enum):
    """What to do about a server that isn't available.

    `required`: fail, as for every other; `if-available`: go on without it, and say so; `none`:
    don't even look for it.
    """

    REQUIRED = "required"
    IF_AVAILABLE = "if-available"
    NONE = "none"


@dataclass(frozen=True)
class Kind:
    """One kind of server.

    Attributes:
        name: what `--only` calls it.
        title: what people call it.
        variable: the environment variable with its URL.
        packages: names the Debian packages that would fix a `find` that found nothing; empty
            if none would.
        remedy: what else somebody can do who doesn't have it.
        find: returns the programs it needs by their short names, or None if any is missing.
        start: starts it in an empty folder and returns its URL once it answers.
        suite: another Debian suite that has it, where `packages` would not help.
        wheel_on: the platforms (`sys.platform`) for which the `dev` extra has it as a wheel.
        wanted: the environment variable that says whether to do without it (see `Wanted`); empty
            if nobody may.
    """

    name: str
    title: str
    variable: str
    packages: Callable[[], tuple[str, ...]]
    remedy: str
    find: Callable[[], dict[str, str] | None]
    start: Callable[[dict[str, str], Path, Children], str]
    suite: Suite | None = None
    wheel_on: tuple[str, ...] = ()
    wanted: str = ""

    def how_wanted(self) -> Wanted:
        """Read whether to do without it.

        Raises:
            ServerError: the variable has none of the values that it can have.
        """
        text = os.environ.get(self.wanted, "")
        try:
            return Wanted(text or "required")
        except ValueError:
            values = ", ".join(repr(member.value) for member in Wanted)
            message = f"{self.wanted} is {text!r}; it can be {values}"
            raise ServerError(message) from None


def in_environments(path: str) -> Path | None:
    """Find a file of a package of the `dev` extra.

    Args:
        path: its path below site-packages.
    """
    found = (each.glob(f"lib/python*/site-packages/{path}") for each in ENVIRONMENTS)
    return next((file for files in found for file in files), None)


def free_port() -> int:
    """Find a port of the loopback address that nobody listens on."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((ADDRESS, port))
            except OSError:
                continue
            return port
