"""Which errors of a database pass by themselves, and how each reads in one line.

The sweeper tries again after a passing error and gives a table up after any other. Drivers tell the
two apart by codes; what has no code (a server that can't be reached) may pass. An ORM wraps the
driver's errors, so the adapters unwrap them first, and say whether they are operational.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from ttl_odm.dialects import FAMILIES
from ttl_odm.dialects.family import ErrorCodes

if TYPE_CHECKING:
    from ttl_odm.dialects.family import Family

# A SQLSTATE is a text and a number of MySQL's isn't, so our families' codes go into one set each.
_OURS: Final = ErrorCodes(
    **{
        kind.name: frozenset().union(*(getattr(family.errors, kind.name) for family in FAMILIES))
        for kind in fields(ErrorCodes)
    }
)
_by_driver: dict[str, Family] = {}
"""Families of others, by the module of their drivers' errors: codes of two may be the same."""

_NO_ROWS_FAULT: Final = frozenset(
    {"08", "0A", "25", "26", "28", "2D", "34", "3B", "3D", "3F", "40", "42", "53", "54", "55", "57"}
) | {"58", "72", "F0", "HV", "XX"}
"""Classes of PostgreSQL's SQLSTATEs that say nothing of a row. A trigger may raise any other."""
_OWN_NUMBERS: Final = 30_000
"""From here on MariaDB's and MySQL's numbers are those that a SIGNAL chooses."""


def code_of(error: BaseException | None) -> str | int | None:
    """The number of MariaDB and MySQL, or PostgreSQL's SQLSTATE; None where there is neither."""
    first = next(iter(getattr(error, "args", ())), None)
    # Most drivers of MariaDB and MySQL have a SQLSTATE too, which says less.
    number = first if isinstance(first, int) else getattr(error, "errno", None)  # MariaDB's own
    if isinstance(number, int):
        return number if number > 0 else None  # 0 or -1: what a driver has found out by itself
    if isinstance(first, dict):  # the server's fields, as pg8000 has them
        state = first.get("C")
    else:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)  # psycopg2's
    return None if state is None else str(state)


def heed(family: Family) -> None:
    """Let a family of somebody else's say what the errors of its driver are."""
    if family.driver is not None:
        _by_driver[family.driver] = family


def _family_of(error: BaseException | None) -> Family | None:
    return _by_driver.get(type(error).__module__.partition(".")[0])


def _code_and_codes(error: BaseException | None) -> tuple[str | int | None, ErrorCodes]:
    """What an error is called, and what its family calls the kinds of errors."""
    family = _family_of(error)
    if family is None or error is None:
        return code_of(error), _OURS
    return family.code_of(error), family.errors


def is_locked(error: BaseException | None) -> bool:
    """Whether a statement gave up because somebody else holds a row."""
    code, codes = _code_and_codes(error)
    return code in codes.locked


def is_missing_table(error: BaseException | None) -> bool:
    """Whether there is no such table, or may be none."""
    code, codes = _code_and_codes(error)
    return code in codes.missing_table or (code is None and "no such table" in str(error))


def is_restricted(error: BaseException | None) -> bool:
    """Whether a foreign key keeps a row."""
    code, codes = _code_and_codes(error)
    return code in codes.restricted or "FOREIGN KEY constraint failed" in str(error)


def is_taken(error: BaseException | None) -> bool:
    """Whether another row has a key."""
    code, codes = _code_and_codes(error)
    return code in codes.taken or "UNIQUE constraint failed" in str(error)


def is_denied(error: BaseException | None) -> bool:
    """Whether the user lacks a privilege."""
    code, codes = _code_and_codes(error)
    return code in codes.denied


def is_forbidden(error: BaseException | None) -> bool:
    """Whether a function or a setting is for users with more privileges."""
    code, codes = _code_and_codes(error)
    return code in codes.forbidden


def is_refused(error: BaseException | None, *, of_data: bool) -> bool:
    """Whether something in a row is the reason, such as a trigger that raises.

    `of_data` is whether the error's class says that it is about values, or their integrity.
    """
    code, codes = _code_and_codes(error)
    is_ours = codes is _OURS
    if is_ours and isinstance(code, str):
        return code[:2] not in _NO_ROWS_FAULT
    is_of_signal = is_ours and isinstance(code, int) and code >= _OWN_NUMBERS
    return of_data or code in codes.refused or code in codes.restricted or is_of_signal


def is_passing(error: BaseException | None, *, operational: bool) -> bool:
    """Whether trying again may help."""
    # SQLite raises the same for "no such table" as for "database is locked".
    # And a constraint may be on a column called `locked`.
    is_locked_file = operational and _is_of_sqlite(error) and re.search("locked|busy", str(error))
    code, codes = _code_and_codes(error)
    return (
        bool(is_locked_file)
        or is_away(error, operational=operational)
        or code in codes.locked
        or code in codes.passing
    )


def is_away(error: BaseException | None, *, operational: bool) -> bool:
    """Whether the server was lost, can't be reached, or takes no writes."""
    code, codes = _code_and_codes(error)
    if codes is not _OURS:
        return code in codes.away or code in codes.read_only
    if code is None:  # psycopg while it connects; SQLite has no server
        is_of_server = operational and not _is_of_sqlite(error)
        return is_of_server or _is_of_pg8000s_network(error) or _is_of_asyncpgs_hosts(error)
    if is_without_transactions(error):
        return False
    return (
        code in codes.away
        or code in codes.read_only
        or (isinstance(code, str) and code.startswith("08"))
    )


def is_read_only(error: BaseException | None) -> bool:
    """Whether the server takes no writes, as a standby."""
    code, codes = _code_and_codes(error)
    return code in codes.read_only


def is_without_transactions(error: BaseException | None) -> bool:
    """Whether PgBouncer refused a transaction, because its mode is that of statements.

    It cuts the connection, and has the same code for a server that it can't reach.
    """
    return "not allowed in statement pooling mode" in str(error)


def _is_of_pg8000s_network(error: BaseException | None) -> bool:
    """Whether pg8000 couldn't connect, or was cut off: both are its InterfaceError."""
    of_pg8000 = type(error).__module__.partition(".")[0] == "pg8000"
    return of_pg8000 and type(error).__name__ == "InterfaceError"


def _is_of_asyncpgs_hosts(error: BaseException | None) -> bool:
    """Whether asyncpg found no host of a URL with `target_session_attrs`, as during a failover.

    SQLAlchemy's adapter raises an error of its own, whose cause this is.
    """
    cause = None if error is None else error.__cause__
    of_asyncpg = type(cause).__module__.partition(".")[0] == "asyncpg"
    return of_asyncpg and type(cause).__name__ == "TargetServerAttributeNotMatched"


def _is_of_sqlite(error: BaseException | None) -> bool:
    return type(error).__module__ == "sqlite3"


def message_of(error: BaseException) -> str:
    """The driver's message, without the number before it."""
    match error.args:
        case (int(number), str(message), *_):  # MySQL's own driver repeats it, with the SQLSTATE
            return re.sub(rf"^{number}( \(\w{{5}}\))?: ", "", message)
        case ({"M": str(message)},):  # the server's fields, as pg8000 has them
            return message
    return str(error)


def in_short(error: BaseException) -> str:
    """The driver's message, without its details: these hold values of rows."""
    text = re.sub(r"^<class '[^']*'>: ", "", message_of(error))  # asyncpg, by way of SQLAlchemy
    return text.split("\n", 1)[0] or type(error).__name__
