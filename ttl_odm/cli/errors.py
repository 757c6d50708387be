"""How the command line fails: by errors that say what to do, with an exit status.

A mistake of the user's ends in one or two lines, never in a traceback. Whatever is printed goes
through `without_passwords`, since drivers like to quote what they were given.
"""

from __future__ import annotations

import re
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.sweeper.command_line import Status

if TYPE_CHECKING:
    from collections.abc import Iterator


class UsageError(click.UsageError):
    """The command line or the configuration is wrong."""


class FailedError(click.ClickException):
    """It could not be done."""

    exit_code = int(Status.FAILED)


_IN_URL = re.compile(r"(?P<head>\w[\w+.-]*://[^\s:/@]*):\S+@")
_IN_QUERY = re.compile(r"(?i)\b(?P<head>(?:password|passwd|pwd|sslpassword)=)[^&\s'\"]+")


def without_passwords(text: str) -> str:
    """Return a text in which no URL has a password any more."""
    return _IN_QUERY.sub(r"\g<head>***", _IN_URL.sub(r"\g<head>:***@", text))


def in_one_line(error: BaseException) -> str:
    """Return an error for people: one line, without passwords, never empty."""
    original = getattr(error, "orig", None)  # SQLAlchemy's wraps the driver's
    text = str(original or error)
    match getattr(original, "args", ()):
        case (int(), str(message)):  # MySQL's number before the message
            text = message
    text, _, _ = text.partition(", full error: {")  # PyMongo repeats the reply
    return without_passwords(" ".join(text.split())) or type(error).__name__


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn what a database and ttl_odm raise into lines with an exit status."""
    try:
        yield
    except click.ClickException:
        raise
    except TTLConfigurationError as error:
        raise UsageError(in_one_line(error)) from error
    except TTLError as error:
        raise FailedError(in_one_line(error)) from error
    except Exception as error:
        if not _is_from_a_database(error):
            raise
        raise FailedError(f"the database says: {in_one_line(error)}") from error


def _is_from_a_database(error: Exception) -> bool:
    # By name: not every driver is installed, and none is to be imported for this.
    # asyncpg and aiomysql let an OSError through: nobody listens there. PyMySQL can't send a
    # password beyond Latin-1. Many drivers take a URL's options as arguments, and know few.
    if isinstance(error, (OSError, UnicodeError)):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, TypeError) and last.name == "connect":
        return True
    names = {base.__module__.partition(".")[0] for base in type(error).__mro__}
    return bool(names & {"sqlalchemy", "pymongo", "psycopg", "asyncpg", "pymysql", "sqlite3"})
