"""`Family`: all that a family of databases brings, as SQL texts and numbers.

Where one adapter and the next write the same SQL, they take it from here, so that what one of them
makes the other one can use: the same names, the same indexes, the same instants.

Names of tables and columns come into these texts quoted, as the ORM's dialect quotes them. No text
has its percent signs doubled; who hands it to a driver that formats it doubles them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ttl_odm.core.values import MAX_TTL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ttl_odm.sweeper import Pace

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

MAX_NAME: Final = 60
"""Characters in an identifier: PostgreSQL has 63, MariaDB 64."""

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
"""A Gregorian date, a time, perhaps a fraction, perhaps UTC; for regular expressions, without its
end, and without braces, which templates take for theirs."""


@dataclass(frozen=True)
class ErrorCodes:
    """What a driver calls the errors that the sweeper deals with: SQLSTATEs, or MySQL's numbers.

    ``locked``: somebody else holds a row, or the table; ``passing``: trying again may help;
    ``away``: the server was lost, or can't be reached; ``read_only``: it takes no writes, as a
    standby; ``missing_table``: there is none, or may be;
    ``restricted``: a foreign key keeps a row; ``refused``: something else in a row does; ``taken``:
    another row has a key; ``denied``: the user may not do that; ``forbidden``: a function or a
    setting is not for this user.
    """

    locked: frozenset[str | int] = frozenset()
    passing: frozenset[str | int] = frozenset()
    away: frozenset[str | int] = frozenset()
    read_only: frozenset[str | int] = frozenset()
    missing_table: frozenset[str | int] = frozenset()
    restricted: frozenset[str | int] = frozenset()
    refused: frozenset[str | int] = frozenset()
    taken: frozenset[str | int] = frozenset()
    denied: frozenset[str | int] = frozenset()
    forbidden: frozenset[str | int] = frozenset()


def seconds_between(span: Any, per_second: int | None) -> float:
    """The seconds of a difference between two instants, as a database has it."""
    if isinstance(span, timedelta):
        return span.total_seconds()
    return float(span / (per_second or 1))


class Family(ABC):
    """How one family of databases tells and stores time, and what else is its own.

    ``_ts`` is an instant of this database: a timestamp, or an integer since 1970.

    Attributes:
        names: What ORMs call these databases; the first one is the family's.
        at_read: The database's clock for reads, as the database has it; `now` is that in the unit
            of ``_ts``.
        at_write: The same for stamps and for the predicates of UPDATE and DELETE; `now_at_write`
            and `stamp` (a fresh ``_ts``) are that in the unit of ``_ts``.
        per_second: Units of ``_ts`` in a second; None where ``_ts`` is a timestamp.
        earliest: The first instant that a datetime can be in every time zone, in the unit of
            ``_ts``.
        latest: The first one that it can't.
        inherited_end: What the index over the inheriting rows orders by, with places for `{stamp}`
            and for `{table}`, what stands before the stamp's name, up to its dot.
        own_end: The end of a row's own ttl, spelled as its index has it; with one for `{ttl}`, too.
        ddl_settings: Settings of a session that migrates. They are for what takes long and stalls
            nobody; what stalls has a limit of its own: see `bounded`.
        second: One second, to be multiplied and added to ``_ts``.
        isolation: The isolation level of the sweeper's transactions; None leaves it as it is.
        locks_rows: Whether a SELECT may lock rows, and skip those that somebody holds.
        compares_rows: Whether ``(a, b) > (1, 2)`` is found by an index.
        indexes_parts: Whether the contract's columns get the sweeper's two indexes.
        is_inspected: Whether SQLAlchemy's inspector finds foreign keys, indexes and columns there.
        hides_writes: Whether a session may keep what it writes from replicas: see `replication`.
        tries_inserts: Whether an INSERT may be sent first, and the keys that it takes be freed only
            where one of them was taken: see `on_conflict`.
        fails_alone: Whether a statement that fails is undone by itself, and its transaction goes
            on.
        on_conflict: What stands behind the VALUES of such an INSERT, so that a taken key ends no
            transaction, and the row that has it is locked as a DELETE would lock it. The statement
            inserts fewer rows than it brings, or fails by `ErrorCodes.taken` where it
            `fails_alone`. With places for `{column}`, one that is never NULL. None: the INSERT as
            it is does so.
        short_float: A regular expression for the types, as DDL has them, of floats of 4 bytes.
        server: The question which server answers: its address, as text, and whether it takes
            writes, as a boolean or a number. None: there are no servers.
        driver: The top-level module of the driver's errors, for a family that knows these better
            than `ttl_odm.dialects.errors`; `code_of` is asked for their codes then.
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
        """Put the texts together that each statement needs."""
        self.family = self.names[0]
        self.now = self.instant(self.at_read)
        self.now_at_write = self.stamp = self.instant(self.at_write)
        self.second = "interval '1 second'" if self.per_second is None else str(self.per_second)
        self._unit = timedelta(seconds=1) // (self.per_second or 1)

    # --- the clock -----------------------------------------------------------------------------

    def present(self, *, writing: bool) -> str:
        """The database's clock, for texts that are made anew for each statement."""
        return self.at_write if writing else self.at_read

    def instant(self, moment: str) -> str:
        """What the database's own functions take for an instant, in the unit of ``_ts``."""
        return moment if self.per_second is None else self.epoch(moment, self.per_second)

    @abstractmethod
    def epoch(self, moment: str, per_second: int) -> str:
        """The same as an integer since 1970 of so many units in a second."""

    def date(self, moment: str) -> str:
        """The same for a column of dates, in UTC."""
        return moment

    @abstractmethod
    def date_ago(self, moment: str, seconds: str) -> str:
        """So many seconds before, for a column of dates."""

    @abstractmethod
    def seconds_until(self, instant: str, now: str | None = None) -> str:
        """The whole seconds until an instant in the unit of ``_ts``, rounded up: 1 to `MAX_TTL`."""

    @abstractmethod
    def instant_of_column(self, column: str, *, zoned: bool) -> str:
        """The instant that a column of dates and times holds, in the unit of ``_ts``.

        Naive values are read as UTC. NULL where there is no instant: NULL itself, PostgreSQL's
        infinity, MariaDB's zero dates, and text that SQLite can't read as a date. A zoned column
        holds instants by itself: ``timestamptz``, or MySQL's ``TIMESTAMP``.
        """

    def part_end(self, stamp: str, *ttl: str) -> str:
        """What the index over inheriting rows orders by; given a ttl, that over the others.

        It is word for word what the index has, of columns that stand behind their table's name.
        """
        template = self.own_end if ttl else self.inherited_end
        return template.format(stamp=stamp, ttl="".join(ttl), table=stamp[: stamp.rfind(".") + 1])

    def bookmark(self, place: str) -> str:
        """An instant by which rows are ordered, as every driver can read it."""
        return place

    def of_bookmark(self, value: str) -> str:
        """That instant in the unit of ``_ts``, to compare with."""
        return value

    def is_null(self, column: str) -> str:
        """Whether a column holds NULL."""
        return f"{column} IS NULL"

    def is_date(self, column: str) -> str | None:  # noqa: ARG002 (see the families that need one)
        """Whether a column of naive dates and times holds one, NULL of NULL.

        None where it can hold nothing else.
        """
        return None

    @abstractmethod
    def is_iso(self, column: str) -> str:
        """Whether a column of strings holds a date and time of day, in ISO 8601 and UTC."""

    def ttl_check(self, column: str) -> str:
        """The condition that every ttl of a row's own meets, whoever writes it."""
        return f"{column} IS NULL OR {column} = -1 OR {column} > 0"

    def counting_ttl(self, own: str, *, is_checked: bool) -> str | None:
        """What an own ttl over 0 has to be to count; None where any does.

        Where no CHECK of ours is at the column, it may hold what no sum of instants can take.
        """
        return None if is_checked else f"{own} <= {MAX_TTL}"

    def least(self, one: str, other: str) -> str:
        """The lower of two values."""
        return f"LEAST({one}, {other})"

    def instant_literal(self, instant: datetime) -> str:
        """An aware datetime as ``_ts`` has it."""
        return str(self.to_storage(instant))

    def as_date(self, instant: str) -> str:
        """An instant in the unit of ``_ts`` as a date and time, in UTC where it has no zone."""
        return instant

    def code_of(self, error: BaseException) -> str | int | None:
        """What `errors` calls an error of this family's `driver`: the name of its class."""
        return type(error).__name__

    def to_storage(self, instant: datetime) -> Any:
        """What the driver stores for an aware datetime in a column of instants."""
        return (instant - EPOCH) // self._unit

    def from_storage(self, value: Any) -> datetime:
        """The aware datetime, in UTC, of what the driver reads from one."""
        since: timedelta = value * self._unit
        return EPOCH + since

    def reader(self) -> Callable[[Any], datetime | None]:
        """`from_storage`, also of NULL, in one call: it is done for each row."""
        unit = self._unit
        return lambda value: None if value is None else EPOCH + value * unit

    def takes_tried_inserts(self, schema: str | None, table: str) -> str:  # noqa: ARG002
        """The query for whether a table lets INSERTs be tried, see `tries_inserts`: one value.

        Something in the database that no ORM knows of may keep it from that.
        """
        return f"SELECT {int(self.tries_inserts)}"

    def indexes_query(self, schema: str | None, table: str) -> str | None:  # noqa: ARG002
        """The query for the indexes of a table; see `ttl_odm.dialects.indexes`.

        None where there is none for such a database.
        """
        return None

    def column_types_query(self, schema: str | None, table: str) -> str | None:  # noqa: ARG002
        """The query for the columns of a table, and their types; see `stored_form`.

        None where a comparison makes the same of a value as a column that stores it.
        """
        return None

    def stored_form(self, column_type: str) -> str | None:  # noqa: ARG002
        """A template of what a column keeps of a value, `{0}`; None where that is the value itself.

        It rounds, pads and cuts as an INSERT does. An index on the column answers the comparison.
        """
        return None

    def can_lead(self, length: int | None) -> bool:  # noqa: ARG002 (see MySQL)
        """Whether an index may begin with texts of so many characters; None for any number."""
        return True

    def literal_text(self, value: str) -> str:
        """A text as SQL has it, whatever the settings of the session."""
        return as_value(value)

    # --- DDL on tables that are in use ---------------------------------------------------------

    def setting(self, name: str) -> str:
        """The query for a setting of the session."""
        return f"SELECT @@{name}"

    def bounded(self, statements: Sequence[str], seconds: float, *, is_mariadb: bool) -> list[str]:  # noqa: ARG002 (a database may know no such limit)
        """Statements that lock everybody out, giving up when they waited this long for it."""
        return list(statements)

    def retried(self, statements: Sequence[str], seconds: float, tries: int) -> list[str]:  # noqa: ARG002
        """The same for a script, which has to try again by itself."""
        return list(statements)


def as_value(name: str) -> str:
    """A name as SQL's literal of it."""
    doubled = name.replace("'", "''")
    return f"'{doubled}'"


def index_name(table: str, suffix: str) -> str:
    """A name that is the same everywhere and short enough for every database."""
    name = f"ix_{table}_{suffix}"
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(table.encode()).hexdigest()[:8]
    return f"ix_{table[: MAX_NAME - len(suffix) - 13]}_{digest}_{suffix}"


def derived_name(name: str, suffix: str) -> str:
    """A name that is made of another one, and short enough for every database."""
    derived = f"{name}_{suffix}"
    return derived if len(derived) <= MAX_NAME else index_name(name, suffix).removeprefix("ix_")
