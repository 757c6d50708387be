"""PostgreSQL: a table in use becomes the first partition of a new table with its name.

The long steps come first, while other sessions read and write: building an index for the longer
primary key, and validating a CHECK that the column is below a bound. With that CHECK the table can
be attached without reading its rows. So the swap is one short transaction, retried like any other:
it renames the table, makes another one in its place with everything that belongs to it, and
attaches the old one, for all values below the bound.

Until the swap the CHECK rejects rows at or after the bound, so the bound is far enough ahead that
no row gets near it, and the CHECK is dropped if anything goes wrong. A killed run leaves the index,
or the CHECK: the next one continues from there.
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

from ttl_odm.alembic.runner import MigrationRefusedError
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
from ttl_odm.partitions.sqlalchemy.layout import cut_of, new_partition, partitioning_on
from ttl_odm.sqlalchemy.purge.errors import in_short
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.alembic.postgresql import PostgreSQLSteps
    from ttl_odm.partitions.dialects.ddl import Cut, NewPartition
    from ttl_odm.sqlalchemy.policy.bindings import Binding

log = logging.getLogger("alembic.ttl_odm")

_CHECK: Final = "ttl_odm_bound"
_DAY: Final = timedelta(days=1)
_FURTHEST: Final = timedelta(days=3650)
"""A date of expiry further ahead is a substitute for "never"."""

_SWAP: Final = 10.0
"""Seconds after which a swap, which takes some hundredths of one, is undone."""

_CANCELED: Final = "57014"


class PostgreSQLCut:
    """Cuts one table."""

    def __init__(self, steps: PostgreSQLSteps, binding: Binding) -> None:
        """Take the names from the steps and the table's stand-in; nothing is read yet."""
        partitioning = partitioning_on(binding)
        assert partitioning is not None  # noqa: S101 (the stand-in has one)
        self._steps, self._run, self._target = steps, steps.run, steps.target
        self._binding, self._build_index = binding, steps.build_index
        self._declared = partitioning.declared
        self._ddl = PostgreSQLPartitions()
        self._cut = cut_of(partitioning, self._target.table.schema, self._ddl)
        self._name = self._target.plain(steps.dialect)
        self._column = relation(None, self._cut.column)
        self._key = self._target.name_of("ix_", "ttl_key")

    # --- checks ----------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Reject a table that can't be cut, unless it is cut already.

        Raises:
            MigrationRefusedError: With the reason, and the fix.
        """
        if self._run.offline or self._leaves() is not None:
            return
        self._refuse_table(self._read())
        self._refuse_rows()

    def _leaves(self) -> Leaves | None:
        return read_leaves(self._run.connection, self._binding)

    def _read(self) -> CatalogueTable:
        return CatalogueTable.read(self._run.connection, self._name, self._cut.column)

    def _refuse_table(self, table: CatalogueTable) -> None:
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
        """Reject rows that would be in no partition, or in the first one forever."""
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
            problem = (
                "and the first partition would have to end after them: give them an earlier "
                "expiry, or move them"
            )
        else:
            bound = self._bound(_DAY)
            problem = "which is where the first partition ends: correct them, or move them"
        beyond = self._count(f"{self._column} >= {self._ddl.bound(self._cut, bound)}")
        if beyond:
            at = f"{bound:%Y-%m-%d %H:%M} (UTC) or later"
            raise self._refused(f"{beyond:,} rows are at {at}, {problem}")

    def _count(self, condition: str) -> int:
        return int(self._scalar(f"SELECT count(*) FROM {self._name} WHERE {condition}"))

    def _scalar(self, query: str) -> Any:
        return self._run.connection.execute(text(query.replace(":", r"\:"))).scalar_one()

    # --- the bound -------------------------------------------------------------------------------

    def _now(self) -> datetime:
        if self._run.offline:
            return datetime.now(timezone.utc)  # a script is written offline
        clock = clock_of(self._steps.dialect)
        return clock.from_storage(self._scalar(f"SELECT {clock.stamp}"))

    def _bound(self, slack: timedelta) -> datetime:
        """Return the end of a time range that no row reaches within this time."""
        now = self._now()
        ahead = slack + timedelta(seconds=self._run.settings.give_up_after)
        if isinstance(self._binding.policy, ExpireAt):
            ahead += 2 * max(timedelta(0), self._latest() - now)
        return self._declared.at(now + ahead).end

    def _latest(self) -> datetime:
        """Return the latest instant in the column: the expiry of the row that lives longest."""
        unit = self._cut.unit
        latest = f"max({self._column})"
        number = f"EXTRACT(EPOCH FROM {latest})" if unit is None else latest
        value = self._scalar(f"SELECT {number} FROM {self._name}")
        return EPOCH + timedelta(seconds=float(value or 0) / PER_SECOND[unit or "s"])

    # --- cutting ---------------------------------------------------------------------------------

    def make(self) -> None:
        """Cut the table; a table that is cut already gets its missing partitions."""
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

    def _new_partitions(self, since: datetime | None = None) -> list[NewPartition]:
        """Return the declared partitions; only those that begin at an instant, or later."""
        time_ranges = self._declared.wanted(self._now())
        return [
            new_partition(self._cut, time_range)
            for time_range in time_ranges
            if not since or time_range.start >= since
        ]

    def _make_first(self, cut: Cut) -> None:
        self._briefly(self._ddl.first(cut, self._new_partitions()))

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

    def _rows_in(self, rest: tuple[str, str], leaf: NewPartition) -> bool:
        where = self._ddl.within(self._cut, leaf)
        rows = f"SELECT FROM {self._ddl.quoted(*rest)} WHERE {where}"
        return bool(self._scalar(f"SELECT EXISTS ({rows})"))

    def _convert(self) -> None:
        """Cut a table that isn't cut; each attempt has twice the time of the one before."""
        self._extend_key()
        slack = _DAY
        while not self._is_swapped_within(slack):
            log.info("validating %s of %s took too long: trying again", _CHECK, self._target.label)
            slack *= 2

    def _extend_key(self) -> None:
        """Build the index of the longer primary key without blocking writers."""
        table = self._read()
        key = table.primary_key
        if key is None or self._cut.column in key.columns:
            return
        if self._steps.existing.has_index(self._key):
            return  # An earlier run has built it.
        columns = ", ".join(relation(None, column) for column in [*key.columns, self._cut.column])
        how = "" if self._run.in_transaction else "CONCURRENTLY "
        index = f"{how}{relation(None, self._key)} ON {self._name} ({columns})"
        self._build_index(self._key, self._driver(f"CREATE UNIQUE INDEX {index}"))

    def _is_swapped_within(self, slack: timedelta) -> bool:
        """Validate the CHECK and swap the tables; return False if the time was too short."""
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
                raise  # The rollback drops the CHECK.
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
        """Return the statements that swap the tables, as these are at this moment."""
        table = self._read()
        self._refuse_table(table)
        touch = self._target.name_of("tg_", "ttl_touch")
        *_, trigger = self._steps.trigger_statements()
        if self._doubles:
            trigger = trigger.replace("%%", "%")
        # With the schema: the first one in the search path may be another.
        cut = replace(self._cut, schema=table.facts.schema)
        swap = Swap(cut, table, self._key, remade={touch: trigger})
        statements = swap.statements(self._ddl, bound, self._new_partitions(bound), _CHECK)
        return [self._driver(sql) for sql in statements]

    @contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        """Cancel statements that take longer."""
        if self._run.in_transaction:
            yield
            return
        self._run.at_once(f"SET statement_timeout = '{milliseconds(seconds)}'")
        try:
            yield
        finally:
            if not self._run.connection.invalidated:
                self._run.at_once("SET statement_timeout = 0")

    def _briefly(self, statements: list[str]) -> None:
        self._run.briefly([self._driver(sql) for sql in statements])

    def _driver(self, sql: str) -> str:
        """Return a statement with percent signs as the driver needs them."""
        return sql.replace("%", "%%") if self._doubles else sql

    @property
    def _doubles(self) -> bool:
        preparer: Any = self._steps.dialect.identifier_preparer
        return bool(getattr(preparer, "_double_percents", False))
