"""The errors of the command line: they say what to do, and have an exit status.

A user's mistake ends in one or two lines, never in a traceback. All output passes `printable`,
since drivers quote their arguments, and names in a database may have control characters.
"""

from __future__ import annotations

import re
import traceback
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from ttl_odm.dialects.errors import message_of
from ttl_odm.errors import InvalidTTL, TTLConfigurationError, TTLError
from ttl_odm.sweeper.command_line import Status, without_passwords
from ttl_odm.sweeper.text import without_controls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class UsageError(click.UsageError):
    """The command line or the configuration is wrong."""


class FailedError(click.ClickException):
    """The command failed."""

    exit_code = int(Status.FAILED)


_PYMONGO = re.compile(r" \(configured timeouts: [^)]*\)|, Timeout: \S+, Topology Description: .*")
_DRIVERS = {
    *("pymongo", "motor"),
    *("psycopg", "psycopg2", "asyncpg", "pg8000"),
    *("pymysql", "MySQLdb", "mysql", "mariadb", "aiomysql", "asyncmy"),
    "sqlite3",
}


def printable(text: str) -> str:
    """Return a text for a terminal, without passwords and control characters."""
    return without_controls(without_passwords(text))


def in_one_line(error: BaseException) -> str:
    """Return an error in one line, without passwords, never empty."""
    original = getattr(error, "orig", None)  # SQLAlchemy's wraps the driver's
    text = str(error) if original is None else message_of(original)
    # PyMongo repeats the reply, and prints the topology.
    text = _PYMONGO.sub("", text.partition(", full error: {")[0])
    return printable(" ".join(text.split())) or type(error).__name__


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn errors of a database and of ttl_odm into lines with an exit status."""
    try:
        yield
    except click.ClickException:
        raise
    except (TTLConfigurationError, InvalidTTL) as error:
        raise UsageError(in_one_line(error)) from error
    except TTLError as error:
        raise FailedError(in_one_line(error)) from error
    except Exception as error:
        if not _is_from_a_database(error):
            raise
        raise FailedError(f"the database says: {in_one_line(error)}") from error


def _is_from_a_database(error: Exception) -> bool:
    # By name: not every driver is installed, and none should be imported for this.
    # asyncpg and aiomysql let an OSError through if the server doesn't listen. PyMySQL can't send
    # a password beyond Latin-1. Many drivers take a URL's options as arguments and raise TypeError
    # for those that they don't know.
    if isinstance(error, (OSError, UnicodeError)):
        return True
    frame = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    if isinstance(error, TypeError) and frame.f_code.co_name == "connect":
        return True
    packages = {base.__module__.partition(".")[0] for base in type(error).__mro__}
    driver = str(frame.f_globals.get("__name__")).partition(".")[0]
    return driver in _DRIVERS or bool(packages & {"sqlalchemy", *_DRIVERS})


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion that ends an error about a misspelt name; empty if no name is close."""
    near = get_close_matches(name, [*known], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class SuggestingGroup(click.Group):
    """A group that suggests a command for a misspelt one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or suggest one with a similar name."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            hint = did_you_mean(args[0], self.list_commands(ctx))
            if hint:
                ctx.fail(f"No such command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)
