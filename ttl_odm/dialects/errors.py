"""Which errors of a database pass by themselves, and how each reads in one line.

The sweeper tries again after a passing error and gives a table up after any other. Drivers tell the
two apart by codes; what has no code (a server that can't be reached) may pass. An ORM wraps the
driver's errors, so the adapters unwrap them first, and say whether they are operational.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ttl_odm.dialects import FAMILIES

# A SQLSTATE is a text and a number of MySQL's isn't, so all families' codes go into one set.
_CODES: Final = [family.errors for family in FAMILIES]
_LOCKED: Final = {code for codes in _CODES for code in codes.locked}
_PASSING: Final = _LOCKED.union(*(codes.passing for codes in _CODES))
_AWAY: Final = {code for codes in _CODES for code in codes.away}
_MISSING: Final = {code for codes in _CODES for code in codes.missing_table}
_RESTRICTED: Final = {code for codes in _CODES for code in codes.restricted}
_REFUSED: Final = _RESTRICTED.union(*(codes.refused for codes in _CODES))
_NO_ROWS_FAULT: Final = frozenset(
    {"08", "0A", "25", "26", "28", "2D", "34", "3B", "3D", "3F", "40", "42", "53", "54", "55", "57"}
) | {"58", "72", "F0", "HV", "XX"}
"""Classes of PostgreSQL's SQLSTATEs that say nothing of a row. A trigger may raise any other."""
_OWN_NUMBERS: Final = 30_000
"""From here on MariaDB's and MySQL's numbers are those that a SIGNAL chooses."""


def code_of(error: BaseException | None) -> str | int | None:
    """The number of MariaDB and MySQL, or PostgreSQL's SQLSTATE; None where there is neither."""
    first = next(iter(getattr(error, "args", ())), None)
    if isinstance(first, int):  # PyMySQL has a SQLSTATE too, which says less
        return first
    if isinstance(first, dict):  # the server's fields, as pg8000 has them
        state = first.get("C")
    else:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)  # psycopg2's
    return None if state is None else str(state)


def is_locked(error: BaseException | None) -> bool:
    """Whether a statement gave up because somebody else holds a row."""
    return code_of(error) in _LOCKED


def is_missing_table(error: BaseException | None) -> bool:
    """Whether there is no such table, or may be none."""
    code = code_of(error)
    return code in _MISSING or (code is None and "no such table" in str(error))


def is_restricted(error: BaseException | None) -> bool:
    """Whether a foreign key keeps a row."""
    return code_of(error) in _RESTRICTED or "FOREIGN KEY constraint failed" in str(error)


def is_refused(error: BaseException | None, *, of_data: bool) -> bool:
    """Whether something in a row is the reason, such as a trigger that raises.

    `of_data` is whether the error's class says that it is about values, or their integrity.
    """
    code = code_of(error)
    if isinstance(code, str):
        return code[:2] not in _NO_ROWS_FAULT
    return of_data or code in _REFUSED or (code is not None and code >= _OWN_NUMBERS)


def is_passing(error: BaseException | None, *, operational: bool) -> bool:
    """Whether trying again may help."""
    # SQLite raises the same for "no such table" as for "database is locked".
    # And a constraint may be on a column called `locked`.
    is_locked_file = operational and _is_of_sqlite(error) and re.search("locked|busy", str(error))
    return (
        bool(is_locked_file)
        or is_away(error, operational=operational)
        or code_of(error) in _PASSING
    )


def is_away(error: BaseException | None, *, operational: bool) -> bool:
    """Whether the server was lost, or can't be reached."""
    code = code_of(error)
    if code is None:  # psycopg while it connects; SQLite has no server
        return (operational and not _is_of_sqlite(error)) or _is_of_pg8000s_network(error)
    return code in _AWAY or (isinstance(code, str) and code.startswith("08"))


def _is_of_pg8000s_network(error: BaseException | None) -> bool:
    """Whether pg8000 couldn't connect, or was cut off: both are its InterfaceError."""
    of_pg8000 = type(error).__module__.partition(".")[0] == "pg8000"
    return of_pg8000 and type(error).__name__ == "InterfaceError"


def _is_of_sqlite(error: BaseException | None) -> bool:
    return type(error).__module__ == "sqlite3"


def in_short(error: BaseException) -> str:
    """The driver's message, without its details: these hold values of rows."""
    args: tuple[Any, ...] = error.args
    if len(args) > 1 and isinstance(args[0], int):
        text = str(args[1])
    elif args and isinstance(args[0], dict):  # pg8000
        text = str(args[0].get("M", ""))
    else:
        text = str(error)
    text = re.sub(r"^<class '[^']*'>: ", "", text)  # asyncpg, by way of SQLAlchemy
    return text.split("\n", 1)[0] or type(error).__name__
