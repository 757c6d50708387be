"""Which errors of a database pass by themselves, and what each says in one line.

The sweeper tries again after a passing error and gives a table up after any other. Drivers tell the
two apart by codes; an error without a code (a server that can't be reached) may pass. An ORM wraps
the driver's errors, so the adapters unwrap them first, and say whether they are operational.

A change of a stored default waits for locks in short tries, of which this module has the numbers.
"""

from __future__ import annotations

import random
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from ttl_odm.dialects.families import FAMILIES
from ttl_odm.dialects.family import ErrorCodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.dialects.family import Family

# A SQLSTATE is a text and MySQL's numbers aren't, so our families' codes go into one set each.
_OURS: Final = ErrorCodes(
    **{
        kind.name: frozenset().union(*(getattr(family.errors, kind.name) for family in FAMILIES))
        for kind in fields(ErrorCodes)
    }
)
_by_driver: dict[str, Family] = {}
"""Families of other distributions, by the module of their drivers' errors: two of these may use the
same code."""

_NO_ROWS_FAULT: Final = frozenset(
    {"08", "0A", "25", "26", "28", "2D", "34", "3B", "3D", "3F", "40", "42", "53", "54", "55", "57"}
) | {"58", "72", "F0", "HV", "XX"}
"""Classes of PostgreSQL's SQLSTATEs that say nothing about a row. A trigger may raise any other."""
_OWN_NUMBERS: Final = 30_000
"""The lowest number of MariaDB and MySQL that a SIGNAL may choose for its own error."""


def code_of(error: BaseException | None) -> str | int | None:
    """Return the number of MariaDB and MySQL, or PostgreSQL's SQLSTATE; None for neither."""
    first = next(iter(getattr(error, "args", ())), None)
    # Most drivers of MariaDB and MySQL have a SQLSTATE too, which says less.
    number = first if isinstance(first, int) else getattr(error, "errno", None)  # MariaDB's own
    if isinstance(number, int):
        return number if number > 0 else None  # 0 or -1: an error of the driver itself
    if isinstance(first, dict):  # the server's fields, as pg8000 has them
        state = first.get("C")
    else:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)  # psycopg2's
    return None if state is None else str(state)


def heed(family: Family) -> None:
    """Classify the errors of a brought family's driver by the codes of that family."""
    if family.driver is not None:
        _by_driver[family.driver] = family


def _code_and_codes(error: BaseException | None) -> tuple[str | int | None, ErrorCodes]:
    """Return the code of an error, and the codes of its family."""
    family = _by_driver.get(type(error).__module__.partition(".")[0])
    if family is None or error is None:
        return code_of(error), _OURS
    return family.code_of(error), family.errors


def is_locked(error: BaseException | None) -> bool:
    """Return whether a statement gave up because another transaction holds a row."""
    code, codes = _code_and_codes(error)
    return code in codes.locked


def is_missing_table(error: BaseException | None) -> bool:
    """Return whether there is no such table, or may be none."""
    code, codes = _code_and_codes(error)
    return code in codes.missing_table or (code is None and "no such table" in str(error))


def is_restricted(error: BaseException | None) -> bool:
    """Return whether a foreign key keeps a row."""
    code, codes = _code_and_codes(error)
    return code in codes.restricted or "FOREIGN KEY constraint failed" in str(error)


def is_taken(error: BaseException | None) -> bool:
    """Return whether another row has a key."""
    code, codes = _code_and_codes(error)
    return code in codes.taken or "UNIQUE constraint failed" in str(error)


def is_declined(error: BaseException | None) -> bool:
    """Return whether an INSERT may not have the clause that tries it."""
    code, codes = _code_and_codes(error)
    return code in codes.declined


def is_forbidden(error: BaseException | None) -> bool:
    """Return whether a function or a setting is for users with more privileges."""
    code, codes = _code_and_codes(error)
    return code in codes.forbidden


def is_refused(error: BaseException | None, *, of_data: bool) -> bool:
    """Return whether something in a row is the reason, such as a trigger that raises.

    `of_data` is whether the error's class says that it is about values, or their integrity.
    """
    code, codes = _code_and_codes(error)
    is_ours = codes is _OURS
    if is_ours and isinstance(code, str):
        return code[:2] not in _NO_ROWS_FAULT
    is_of_signal = is_ours and isinstance(code, int) and code >= _OWN_NUMBERS
    return of_data or code in codes.refused or code in codes.restricted or is_of_signal


def is_passing(error: BaseException | None, *, operational: bool) -> bool:
    """Return whether trying again may help."""
    # SQLite raises the same class for "no such table" as for "database is locked". And a constraint
    # may be on a column called `locked`.
    is_locked_file = operational and _is_of_sqlite(error) and re.search("locked|busy", str(error))
    code, codes = _code_and_codes(error)
    return (
        bool(is_locked_file)
        or is_away(error, operational=operational)
        or code in codes.locked
        or code in codes.passing
    )


def is_away(error: BaseException | None, *, operational: bool) -> bool:
    """Return whether the server was lost, can't be reached, or takes no writes."""
    code, codes = _code_and_codes(error)
    if codes is not _OURS:
        return code in codes.away or code in codes.read_only
    if code is None:  # psycopg while it connects; SQLite has no server
        is_of_server = operational and not _is_of_sqlite(error)
        # pg8000 raises this error if it couldn't connect, and if it was cut off.
        kind = type(error)
        is_of_pg8000 = kind.__module__.partition(".")[0] == "pg8000"
        is_of_network = is_of_pg8000 and kind.__name__ == "InterfaceError"
        return is_of_server or is_of_network or is_of_asyncpgs_hosts(error)
    if is_without_transactions(error):
        return False
    return (
        code in codes.away
        or code in codes.read_only
        or (isinstance(code, str) and code.startswith("08"))
    )


def is_read_only(error: BaseException | None) -> bool:
    """Return whether the server takes no writes, such as a standby."""
    code, codes = _code_and_codes(error)
    return code in codes.read_only


def is_without_transactions(error: BaseException | None) -> bool:
    """Return whether PgBouncer rejected a transaction because it pools by statements.

    It cuts the connection, with the code that it also has for a server that it can't reach.
    """
    return "not allowed in statement pooling mode" in str(error)


def is_of_asyncpgs_hosts(error: BaseException | None) -> bool:
    """Return whether no host of a URL meets its `target_session_attrs`, as during a failover.

    asyncpg's error reaches us as it is by SQLAlchemy 2.0, or as the cause of one of 2.1's adapter.
    """
    errors = (error, None if error is None else error.__cause__)
    names = {(type(one).__module__.partition(".")[0], type(one).__name__) for one in errors}
    return ("asyncpg", "TargetServerAttributeNotMatched") in names


def _is_of_sqlite(error: BaseException | None) -> bool:
    return type(error).__module__ == "sqlite3"


def message_of(error: BaseException) -> str:
    """Return the driver's message, without the number before it."""
    match error.args:
        case (int(number), str(message), *_):  # MySQL's own driver repeats it, with the SQLSTATE
            return re.sub(rf"^{number}( \(\w{{5}}\))?: ", "", message)
        case ({"M": str(message)},):  # the server's fields, as pg8000 has them
            return message
    return str(error)


def in_short(error: BaseException) -> str:
    """Return the first line of the driver's message; the other lines hold values of rows."""
    text = re.sub(r"^<class '[^']*'>: ", "", message_of(error))  # asyncpg, by way of SQLAlchemy
    return text.split("\n", 1)[0] or type(error).__name__


# --- how long a change of a stored default waits ---------------------------------------------

TRIES: Final = 24
"""The most tries to get a lock, of up to a second each: half a minute with the pauses between."""

WAITED: Final = 1205
"""MariaDB's and MySQL's code for a statement that has waited for a lock for too long."""

NOT_AVAILABLE: Final = "55P03"
"""PostgreSQL's code for the same."""

_FIRST: Final = 50
_LONGEST: Final = 1_000
"""Milliseconds of a try."""


def waits() -> Iterator[tuple[bool, int]]:
    """Yield each try: whether it is the last one, and its milliseconds."""
    wait = _FIRST
    for left in reversed(range(TRIES)):
        yield not left, wait
        wait = min(2 * wait, _LONGEST)


_RACES: Final = 10
"""The most attempts at a change that loses races against others."""


def races() -> Iterator[tuple[bool, float]]:
    """Yield each attempt: whether it is the last one, and how many seconds to pause if it loses.

    Where a default isn't stored yet, MariaDB and MySQL lock the gap for all transactions that want
    to insert it, and end all but one of them as deadlocks. If the losers began again at once, they
    would meet once more.
    """
    for attempt in range(_RACES):
        yield attempt == _RACES - 1, random.uniform(0, 0.01 * 2**attempt)  # noqa: S311 (no secret)
