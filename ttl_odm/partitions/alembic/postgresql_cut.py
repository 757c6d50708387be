"""PostgreSQL: a table that is in use becomes the first partition of a new one with its name.

What takes long is done before, while all others read and write: an index for the longer primary
key, and a CHECK that the column is below a bound, which is validated. By that CHECK the table can
be attached without a look at its rows. So the swap is one short statement, tried again like any:
the table is renamed, another one is made in its place with all that belongs to it, and takes the
old one in, for all that is below the bound.

Until the swap the CHECK refuses rows at the bound and after it, so the bound is chosen such that
nobody comes near it, and the CHECK is dropped again whatever goes wrong. A run that was killed
leaves the index, or the CHECK: the next one goes on from there.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.core.policy import ExpireAt
from ttl_odm.dialects import EPOCH
from ttl_odm.dialects.errors import code_of
from ttl_odm.dialects.postgresql import milliseconds, relation
from ttl_odm.errors import TTLError
from ttl_odm.partitions.alembic.postgresql_swap import Swap
from ttl_odm.partitions.alembic.postgresql_table import CatalogueTable
from ttl_odm.partitions.dialects.ddl import PER_SECOND
from ttl_odm.partitions.dialects.postgresql import PostgreSQLPartitions
from ttl_odm.partitions.sqlalchemy.catalogue import Leaves, read_leaves
from ttl_odm.partitions.sqlalchemy.layout import cut_of, named, partitioning_on
from ttl_odm.sqlalchemy.purge.errors import in_short
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.alembic.postgresql import PostgreSQLSteps
    from ttl_odm.partitions.dialects.ddl import Cut, Range
    from ttl_odm.sqlalchemy.policy.bindings import Binding

log = logging.getLogger("alembic.ttl_odm")

_CHECK: Final = "ttl_odm_bound"
_DAY: Final = timedelta(days=1)
_FURTHEST: Final = timedelta(days=3650)
"""What ends later than that was never meant to end."""

_SWAP: Final = 10.0
"""Seconds after which a swap, which takes some hundredths of one, is undone."""

_CANCELED: Final = "57014"


class PostgreSQLCut:
    """Cutting one table."""

    def __init__(self, steps: PostgreSQLSteps, binding: Binding) -> None:
        """Take what the steps know of the table, and how they build an index."""
        partitioning = partitioning_on(binding)
        assert partitioning is not None  # noqa: S101 (that is what there is to do)
        self._steps, self._run, self._target = steps, steps.run, steps.target
        self._binding, self._build_index = binding, steps.build_index
        self._declared = partitioning.declared
        self._ddl = PostgreSQLPartitions()
        self._cut = cut_of(partitioning, self._target.table.schema, self._ddl)
        self._name = self._target.plain(steps.dialect)
        self._column = relation(None, self._cut.column)
        self._key = self._target.name_of("ix_", "ttl_key")

    # --- before anything is changed --------------------------------------------------------------

    def refuse(self) -> None:
        """Refuse what can't be cut; what is cut already is not looked at."""
        if self._run.offline or self._leaves() is not None:
            return
        table = self._read()
        self._refuse(table)
        self._refuse_rows()

    def _leaves(self) -> Leaves | None:
        return read_leaves(self._run.connection, self._binding)

    def _read(self) -> CatalogueTable:
        return CatalogueTable.read(self._run.connection, self._name, self._cut.column)

    def _refuse(self, table: CatalogueTable) -> None:
        remade = [self._target.name_of("tg_", "ttl_touch")]
        ours = [_CHECK, self._key, self._target.check_name, *self._target.index_names]
        reasons = list(table.reasons(self._cut.column, remade=remade, ours=ours))
        swap = Swap(self._cut, table, self._key, remade={})
        names = [self._cut.past, self._cut.rest, *swap.old_names.values()]
        taken = self._run.connection.scalars(
            text(
                "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n "
                "ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relname = ANY(:names)"
            ),
            {"schema": table.facts.schema, "names": names},
        ).all()
        if taken:
            reasons.append(
                f"the names of new partitions are taken ({', '.join(taken)}): rename "
                "these relations"
            )
        if reasons:
            raise self._refused("; ".join(reasons))

    def _refused(self, reason: str) -> MigrationRefusedError:
        return MigrationRefusedError(
            f"Table {self._target.label} can't be partitioned by {self._cut.column!r}: {reason}. "
            "Nothing was changed."
        )

    def _refuse_rows(self) -> None:
        """Count what would be in no partition, or in the first one for ever."""
        now = self._now()
        if self._cut.unit is None:
            infinite = self._count(f"{self._column} IN ('infinity', '-infinity')")
            if infinite:
                raise self._refused(
                    f"{infinite:,} rows are at infinity, which no time range contains: give them "
                    "another value, or move them to another table"
                )
        if isinstance(self._binding.policy, ExpireAt):
            bound = now + _FURTHEST
            what = (
                "and the first partition would have to end after them: give them an earlier "
                "expiry, or move them"
            )
        else:
            bound = self._bound(_DAY)
            what = "which is where the first partition ends: correct them, or move them"
        beyond = self._count(f"{self._column} >= {self._ddl.bound(self._cut, bound)}")
        if beyond:
            at = f"{bound:%Y-%m-%d %H:%M} (UTC) or later"
            raise self._refused(f"{beyond:,} rows are at {at}, {what}")

    def _count(self, condition: str) -> int:
        return int(self._scalar(f"SELECT count(*) FROM {self._name} WHERE {condition}"))

    def _scalar(self, query: str) -> Any:
        return self._run.connection.execute(text(query.replace(":", r"\:"))).scalar_one()

    # --- the bound -------------------------------------------------------------------------------

    def _now(self) -> datetime:
        if self._run.offline:
            return datetime.now(timezone.utc)  # a script is made without a database
        clock = clock_of(self._steps.dialect)
        return clock.from_storage(self._scalar(f"SELECT {clock.stamp}"))

    def _bound(self, slack: timedelta) -> datetime:
        """The end of a stretch that no row comes near within this time, and some to spare."""
        now = self._now()
        ahead = slack + timedelta(seconds=self._run.settings.give_up_after)
        if isinstance(self._binding.policy, ExpireAt):
            ahead += 2 * max(timedelta(0), self._latest() - now)
        return self._declared.at(now + ahead).end

    def _latest(self) -> datetime:
        """The end of the row that lives longest."""
        unit = self._cut.unit
        latest = f"max({self._column})"
        seconds = f"EXTRACT(EPOCH FROM {latest})" if unit is None else latest
        found = self._scalar(f"SELECT {seconds} FROM {self._name}")
        return EPOCH + timedelta(seconds=float(found or 0) / PER_SECOND[unit or "s"])

    # --- cutting ---------------------------------------------------------------------------------

    def make(self) -> None:
        """Cut the table, or give one that is cut what it lacks."""
        if self._run.offline:
            self._make_first(self._cut)
            return
        leaves = self._leaves()
        if leaves is None:
            self._convert()
        elif not leaves.every and leaves.rest is None:
            self._make_first(leaves.cut)
        else:
            self._make_missing(leaves)

    def _stretches(self, since: datetime | None = None) -> list[Range]:
        wanted = self._declared.wanted(self._now())
        return [
            named(self._cut, stretch) for stretch in wanted if not since or stretch.start >= since
        ]

    def _make_first(self, cut: Cut) -> None:
        self._briefly(self._ddl.first(cut, self._stretches()))

    def _make_missing(self, leaves: Leaves) -> None:
        for leaf in leaves.missing():
            if leaves.rest is not None and self._rows_in(leaves.rest.name, leaf):
                log.info(
                    "partition %s is left to the sweeper, which moves its rows from the "
                    "default partition",
                    leaf.name,
                )
                continue
            self._briefly(self._ddl.make(leaves.cut, leaf, None, leaves.columns))

    def _rows_in(self, rest: tuple[str, str], leaf: Range) -> bool:
        where = self._ddl.within(self._cut, leaf)
        rows = f"SELECT FROM {self._ddl.quoted(*rest)} WHERE {where}"
        return bool(self._scalar(f"SELECT EXISTS ({rows})"))

    def _convert(self) -> None:
        self._extend_key()
        slack = _DAY
        while not self._is_swapped_within(slack):
            log.info("validating %s of %s took too long: trying again", _CHECK, self._target.label)
            slack *= 2

    def _extend_key(self) -> None:
        """Build the index of the longer primary key, without locking writers out."""
        table = self._read()
        key = table.primary_key
        if key is None or self._cut.column in key.columns:
            return
        if self._steps.existing.has_index(self._key):
            return  # An earlier run's.
        columns = ", ".join(relation(None, column) for column in [*key.columns, self._cut.column])
        how = "" if self._run.in_transaction else "CONCURRENTLY "
        index = f"{how}{relation(None, self._key)} ON {self._name} ({columns})"
        self._build_index(self._key, self._driver(f"CREATE UNIQUE INDEX {index}"))

    def _is_swapped_within(self, slack: timedelta) -> bool:
        """Validate the CHECK, and swap the tables; False if that was not done in time."""
        bound, began = self._bound(slack), monotonic()
        alter = f"ALTER TABLE {self._name}"
        drop = f"{alter} DROP CONSTRAINT IF EXISTS {_CHECK}"
        check = f"CHECK ({self._column} < {self._ddl.bound(self._cut, bound)})"
        self._briefly([drop, f"{alter} ADD CONSTRAINT {_CHECK} {check} NOT VALID"])
        try:
            with self._limited(slack.total_seconds()):
                self._run.at_length(self._driver(f"{alter} VALIDATE CONSTRAINT {_CHECK}"))
            with self._limited(_SWAP):
                self._run.briefly(partial(self._swap, bound))
        except BaseException as error:
            if self._run.in_transaction:
                raise  # With it goes the CHECK.
            self._drop_check(drop, bound, error)
            late = monotonic() - began >= slack.total_seconds()
            if not (late and isinstance(error, DBAPIError) and code_of(error.orig) == _CANCELED):
                raise
            return False
        return True

    def _drop_check(self, drop: str, bound: datetime, error: BaseException) -> None:
        try:
            self._briefly([drop])
        except (SQLAlchemyError, TTLError) as another:
            message = (
                f"{in_short(error)}. Then the CHECK {_CHECK} of table {self._target.label} could "
                f"not be dropped: {in_short(another)}. If it still exists, no session can write "
                f"rows whose {self._cut.column!r} is {bound:%Y-%m-%d %H:%M} (UTC) or later: until "
                f"then, migrate again, or run {drop}."
            )
            log.warning(message)  # A lost connection may let another error hide this one.
            raise TTLError(message) from error

    def _swap(self, bound: datetime) -> list[str]:
        """What swaps the tables, as they are at this moment."""
        table = self._read()
        self._refuse(table)
        touch = self._target.name_of("tg_", "ttl_touch")
        *_, trigger = self._steps.trigger_statements()
        if self._doubles:
            trigger = trigger.replace("%%", "%")
        # Not by the search path, whose first schema may be another.
        cut = replace(self._cut, schema=table.facts.schema)
        swap = Swap(cut, table, self._key, remade={touch: trigger})
        statements = swap.statements(self._ddl, bound, self._stretches(bound), _CHECK)
        return [self._driver(sql) for sql in statements]

    @contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        """Let no statement take longer."""
        if self._run.in_transaction:
            yield
            return
        self._run.at_once(f"SET statement_timeout = '{milliseconds(seconds)}'")
        try:
            yield
        finally:
            self._run.at_once("SET statement_timeout = 0")

    def _briefly(self, statements: list[str]) -> None:
        self._run.briefly([self._driver(sql) for sql in statements])

    def _driver(self, sql: str) -> str:
        """A text as the driver takes it."""
        return sql.replace("%", "%%") if self._doubles else sql

    @property
    def _doubles(self) -> bool:
        preparer: Any = self._steps.dialect.identifier_preparer
        return bool(getattr(preparer, "_double_percents", False))
