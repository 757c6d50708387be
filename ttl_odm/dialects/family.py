"""`Family`: all that a family of databases brings, as SQL texts and numbers.

Adapters take the SQL that they have in common from here, so that each can use what another has
made: the same names, the same indexes, the same instants.

Callers quote the names of tables and columns that they pass, by their ORM's dialect. No text has
its percent signs doubled; an adapter whose driver formats statements doubles them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ttl_odm.core.values import MAX_TTL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.sweeper import Pace

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

MAX_NAME: Final = 60
"""The most bytes in a name of ours: PostgreSQL allows 63 bytes, MariaDB 64 characters."""

_MAX_SUFFIX: Final = 39
"""How many bytes of a suffix, which may have a column's name, leave room for the table's."""

_DAY: Final = (
    "[0-9][0-9][0-9][0-9]-"
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP_DAY: Final = "([0-9][0-9](0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
ISO_PATTERN: Final = (
    f"^({_DAY}|{_LEAP_DAY})[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    f"([.][0-9]{'[0-9]?' * 8})?(Z|[+]00:00)?"
)
"""A regular expression of a Gregorian date, a time, an optional fraction and an optional UTC.

It doesn't match the end of the text, and has no braces, which templates would take for their own.
"""


@dataclass(frozen=True)
class ErrorCodes:
    """A driver's codes of the errors that the sweeper handles: SQLSTATEs, or MySQL's numbers.

    Attributes:
        locked: Another transaction holds a row, or the table.
        passing: Trying again may help.
        away: The server was lost, or can't be reached.
        read_only: The server takes no writes, such as a standby.
        missing_table: There is no such table, or may be none.
        restricted: A foreign key keeps a row.
        refused: Something else in a row keeps it.
        taken: Another row has a key.
        declined: The user may not, or this table can't, have the clause `Family.on_conflict`.
        forbidden: A function or a setting is for users with more privileges.
    """

    locked: frozenset[str | int] = frozenset()
    passing: frozenset[str | int] = frozenset()
    away: frozenset[str | int] = frozenset()
    read_only: frozenset[str | int] = frozenset()
    missing_table: frozenset[str | int] = frozenset()
    restricted: frozenset[str | int] = frozenset()
    refused: frozenset[str | int] = frozenset()
    taken: frozenset[str | int] = frozenset()
    declined: frozenset[str | int] = frozenset()
    forbidden: frozenset[str | int] = frozenset()


class Family(ABC):
    """How one family of databases tells and stores time, and in what else it differs.

    ``_ts`` is an instant of this database: a timestamp, or an integer since 1970.

    Attributes:
        names: ORMs' names of these databases; the first one is the family's.
        at_read: The database's clock for reads, in its own type; `now` is in the unit of ``_ts``.
        at_write: The clock for stamps and for the predicates of UPDATE and DELETE; `now_at_write`
            and `stamp` (a fresh ``_ts``) are in the unit of ``_ts``.
        per_second: Units of ``_ts`` in a second; None where ``_ts`` is a timestamp.
        earliest: The first instant that a datetime can be in every time zone, in the unit of
            ``_ts``.
        latest: The first instant after `earliest` that a datetime can't be.
        inherited_end: The expression of the index over the inheriting rows, with places for
            `{stamp}` and for `{table}`, the qualifier of the stamp's name with its dot.
        own_end: The end of a row's own ttl, exactly as in its index; with a place for `{ttl}`, too.
        ddl_settings: Settings of a session that migrates. They are for statements that take long
            and stall no other session; those that stall others have a limit of their own: see
            `bounded`.
        second: One second, to multiply and to add to ``_ts``.
        isolation: The isolation level of the sweeper's transactions; None leaves it as it is.
        locks_rows: Whether a SELECT may lock rows, and skip rows that others have locked.
        compares_rows: Whether ``(a, b) > (1, 2)`` uses an index.
        indexes_parts: Whether the contract's columns get the sweeper's two indexes.
        is_inspected: Whether SQLAlchemy's inspector finds foreign keys, indexes and columns there.
        hides_writes: Whether a session may keep its writes from replicas: see `ORIGIN`.
        tries_inserts: Whether an INSERT may be sent first, and the keys of expired rows be freed
            only if one of them was taken: see `on_conflict`.
        fails_alone: Whether a statement that fails is undone by itself, and its transaction
            continues.
        on_conflict: The clause after the VALUES of such an INSERT, so that a taken key ends no
            transaction; on InnoDB it also locks the row that has the key, as a DELETE would. The
            statement then inserts fewer rows than it has, or fails by `ErrorCodes.taken` where it
            `fails_alone`. It has places for `{column}`, a column that is never NULL. None if the
            INSERT needs no clause for that.
        short_float: A regular expression of the types, in DDL, of floats of 4 bytes.
        server: The query for the server that answers: its address, as text, and whether it takes
            writes, as a boolean or a number. None: there are no servers.
        driver: The top-level module of the driver's errors, for a family whose `errors` and
            `code_of` classify them instead of `ttl_odm.dialects.errors`.
    """

    names: ClassVar[tuple[str, ...]]
    at_read: ClassVar[str]
    at_write: ClassVar[str]
    instant_type: ClassVar[str]
    per_second: ClassVar[int | None] = None
    earliest: ClassVar[str]
    latest: ClassVar[str]
    inherited_end: ClassVar[str] = "{stamp}"
    own_end: ClassVar[str]
    pace: ClassVar[Pace]
    ddl_settings: ClassVar[Mapping[str, str]] = {}
    errors: ClassVar[ErrorCodes] = ErrorCodes()
    isolation: ClassVar[str | None] = "READ COMMITTED"
    locks_rows: ClassVar[bool] = False
    compares_rows: ClassVar[bool] = False
    indexes_parts: ClassVar[bool] = False
    is_inspected: ClassVar[bool] = True
    hides_writes: ClassVar[bool] = False
    server: ClassVar[str | None] = None
    tries_inserts: ClassVar[bool] = False
    fails_alone: ClassVar[bool] = False
    on_conflict: ClassVar[str | None] = None
    short_float: ClassVar[str] = r"REAL|FLOAT\((1?\d|2[0-4])\)"
    driver: ClassVar[str | None] = None

    def __init__(self) -> None:
        """Build the texts that every statement needs."""
        self.family = self.names[0]
        self.now = self.instant(self.at_read)
        self.now_at_write = self.stamp = self.instant(self.at_write)
        self.second = "interval '1 second'" if self.per_second is None else str(self.per_second)
        self._unit = timedelta(seconds=1) // (self.per_second or 1)

    # --- the clock -----------------------------------------------------------------------------

    def present(self, *, writing: bool) -> str:
        """Return the database's clock, for texts that are built for each statement."""
        return self.at_write if writing else self.at_read

    def instant(self, moment: str) -> str:
        """Convert an instant from the database's own type to the unit of ``_ts``."""
        return moment if self.per_second is None else self.epoch(moment, self.per_second)

    @abstractmethod
    def epoch(self, moment: str, per_second: int) -> str:
        """Convert an instant from the database's own type to an integer since 1970.

        `per_second` is the number of its units in a second.
        """

    def date(self, moment: str) -> str:
        """Convert an instant from the database's own type to a date and time in UTC."""
        return moment

    @abstractmethod
    def date_ago(self, moment: str, seconds: str) -> str:
        """Return the date and time in UTC some seconds before an instant of the database's type."""

    @abstractmethod
    def seconds_until(self, instant: str, now: str | None = None) -> str:
        """Return the whole seconds until an instant in the unit of ``_ts``: 1 to `MAX_TTL`.

        They are rounded up.
        """

    @abstractmethod
    def instant_of_column(self, column: str, *, zoned: bool) -> str:
        """Return the instant in a column of dates and times, in the unit of ``_ts``.

        Naive values are read as UTC. NULL where there is no instant: NULL itself, PostgreSQL's
        infinity, MariaDB's zero dates, and text that SQLite can't read as a date. A zoned column
        holds instants by itself: ``timestamptz``, or MySQL's ``TIMESTAMP``.
        """

    def part_end(self, stamp: str, *ttl: str) -> str:
        """Return the expression of the index over inheriting rows; with a ttl, of the other one.

        It is word for word that of the index. The columns are qualified by their table.
        """
        template = self.own_end if ttl else self.inherited_end
        return template.format(stamp=stamp, ttl="".join(ttl), table=stamp[: stamp.rfind(".") + 1])

    def bookmark(self, place: str) -> str:
        """Convert an instant by which rows are ordered to a type that every driver reads."""
        return place

    def of_bookmark(self, value: str) -> str:
        """Convert the value of a `bookmark` back to the unit of ``_ts``, to compare with."""
        return value

    def between(self, earlier: str, later: str) -> str:
        """Return how long one instant is after another: in units of ``_ts``, or in seconds."""
        return f"({later} - {earlier})"

    def is_null(self, column: str) -> str:
        """Return the condition that a column is NULL."""
        return f"{column} IS NULL"

    def is_date(self, column: str) -> str | None:  # noqa: ARG002 (see the families that need one)
        """Return the condition that a column of naive dates and times holds one; NULL for NULL.

        None where it can hold nothing else.
        """
        return None

    @abstractmethod
    def is_iso(self, column: str) -> str:
        """Return the condition that a string is a date and time of day, in ISO 8601 and UTC."""

    def ttl_check(self, column: str) -> str:
        """Return the condition of the CHECK on a row's own ttl."""
        return f"{column} IS NULL OR {column} = -1 OR {column} > 0"

    def counting_ttl(self, own: str, *, is_checked: bool) -> str | None:
        """Return the condition that a row's own ttl over 0 counts; None where each counts.

        A column without our CHECK may hold a number that is too large to add to an instant.
        """
        return None if is_checked else f"{own} <= {MAX_TTL}"

    def least(self, one: str, other: str) -> str:
        """Return the lower of two values."""
        return f"LEAST({one}, {other})"

    def instant_literal(self, instant: datetime) -> str:
        """Return the literal of an aware datetime, in the unit of ``_ts``."""
        return str(self.to_storage(instant))

    def as_date(self, instant: str) -> str:
        """Convert an instant in the unit of ``_ts`` to a date and time; in UTC if without zone."""
        return instant

    def code_of(self, error: BaseException) -> str | int | None:
        """Return the code in `errors` for an error of this family's `driver`: its class's name."""
        return type(error).__name__

    def to_storage(self, instant: datetime) -> Any:
        """Convert an aware datetime to the driver's value for a column of instants."""
        return (instant - EPOCH) // self._unit

    def from_storage(self, value: Any) -> datetime:
        """Convert the driver's value of a column of instants to an aware datetime in UTC."""
        since: timedelta = value * self._unit
        return EPOCH + since

    def takes_tried_inserts(self, schema: str | None, table: str) -> str:  # noqa: ARG002
        """Return the query, of one value, whether a table lets INSERTs be tried: `tries_inserts`.

        Something in the database that no ORM knows may prevent it.
        """
        return f"SELECT {int(self.tries_inserts)}"

    def indexes_query(self, schema: str | None, table: str) -> str | None:  # noqa: ARG002
        """Return the query for the indexes of a table, see `ttl_odm.dialects.indexes`; or None."""
        return None

    def column_types_query(self, schema: str | None, table: str) -> str | None:  # noqa: ARG002
        """Return the query for the columns of a table, and their types; see `stored_form`.

        None where a comparison converts a value as storing it does.
        """
        return None

    def stored_form(self, column_type: str) -> str | None:  # noqa: ARG002
        """Return a template of what a column stores for a value, `{0}`; None for the value itself.

        It rounds, pads and cuts as an INSERT does. A comparison with it uses the column's index.
        """
        return None

    def can_lead(self, length: int | None) -> bool:  # noqa: ARG002 (see MySQL)
        """Return whether an index may begin with texts of up to `length` characters.

        None stands for texts of any length.
        """
        return True

    def literal_text(self, value: str) -> str:
        """Return the literal of a text, which doesn't depend on the settings of the session."""
        return as_value(value)

    # --- DDL on tables that are in use ---------------------------------------------------------

    def setting(self, name: str) -> str:
        """Return the query for a setting of the session."""
        return f"SELECT @@{name}"

    def bounded(self, statements: Sequence[str], seconds: float, *, is_mariadb: bool) -> list[str]:  # noqa: ARG002 (a database may know no such limit)
        """Return statements that lock others out, such that they give up after so many seconds."""
        return list(statements)

    def retried(self, statements: Sequence[str], seconds: float, tries: int) -> list[str]:  # noqa: ARG002
        """Return such statements for a script, which has to try again by itself."""
        return list(statements)


def as_value(name: str) -> str:
    """Return a name as SQL's literal of a text."""
    doubled = name.replace("'", "''")
    return f"'{doubled}'"


def index_name(table: str, suffix: str) -> str:
    """Return the name of an index, the same everywhere and short enough for every database."""
    name = f"ix_{table}_{suffix}"
    if len(name.encode()) <= MAX_NAME:
        return name
    ending = suffix.encode()[-_MAX_SUFFIX:].decode(errors="ignore")
    shortened = table if ending == suffix else name
    digest = hashlib.sha256(shortened.encode()).hexdigest()[:8]
    room = MAX_NAME - len(ending.encode()) - len(f"ix__{digest}_")
    beginning = table.encode()[:room].decode(errors="ignore")
    return f"ix_{beginning}_{digest}_{ending}"


def derived_name(name: str, suffix: str) -> str:
    """Return a name derived from another one, short enough for every database."""
    derived = f"{name}_{suffix}"
    fits = len(derived.encode()) <= MAX_NAME
    return derived if fits else index_name(name, suffix).removeprefix("ix_")


# --- writes that replicas and subscribers don't get --------------------------------------------
#
# On PostgreSQL such writes have an origin, and a subscriber with ``origin = none`` receives only
# writes without one. MariaDB marks them in its log, and a replica skips marked ones if it is set
# to. MySQL doesn't log them.

ORIGIN: Final = "('ttl_odm:' || current_database())"
"""The origin's name. All databases of a server share origins; one session at a time uses each."""

FIND_ORIGIN: Final = (
    f"SELECT count(*) FROM pg_catalog.pg_replication_origin WHERE roname = {ORIGIN}"
)
MAKE_ORIGIN: Final = f"SELECT pg_replication_origin_create({ORIGIN})"
TAKE_ORIGIN: Final = f"SELECT pg_replication_origin_session_setup({ORIGIN})"
GIVE_ORIGIN_BACK: Final = "SELECT pg_replication_origin_session_reset()"
"""Neither of the last two is undone with its transaction."""

CHECK_DEFERRED: Final = "SET CONSTRAINTS ALL IMMEDIATE"
"""Makes deferred triggers write before the origin is given back, and not at the commit."""

_POSTGRESQL_RIGHTS: Final = (
    "It requires a superuser, who may GRANT EXECUTE ON FUNCTION "
    "pg_replication_origin_session_setup(text), pg_replication_origin_session_reset() to another "
    f"user (PostgreSQL 14 or later), after {MAKE_ORIGIN} was run once in this database."
)
_MYSQL_RIGHTS: Final = "It requires SESSION_VARIABLES_ADMIN, SYSTEM_VARIABLES_ADMIN or SUPER."


def unlogged_setting(*, is_mariadb: bool) -> tuple[str, int]:
    """Return the setting of a session of MariaDB or MySQL; neither accepts it in a transaction."""
    return ("skip_replication", 1) if is_mariadb else ("sql_log_bin", 0)


def denial(message: str, *, is_postgresql: bool) -> str:
    """Return the message for a user without the rights; MariaDB requires none."""
    rights = _POSTGRESQL_RIGHTS if is_postgresql else _MYSQL_RIGHTS
    return f"replicate=False: {message}. {rights}"
