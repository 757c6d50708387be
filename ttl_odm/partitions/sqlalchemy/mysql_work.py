"""Purging by partition on MariaDB and MySQL, which have no transactions of DDL.

A partition is made by one statement, and dropped by one. Before that the table is locked, and under
the lock everything is decided again: by the catalogue, by the database's clock, by the policy as it
is now, and by a scan for live rows if the bounds alone don't exclude them. By then all transactions
that have used the table have ended, and no other begins. A kill at any moment leaves the table as
it was, or with one partition less; the lock ends with the connection.

The lock keeps readers waiting, too. So rows are counted and scanned before it, and a scan under it
may take a quarter of a second. MariaDB locks the table at once or not at all. MySQL waits for a
lock for at least a second, with all other sessions behind it, so nothing is tried while a long
transaction uses the table.

No lock keeps off writers on other servers: nodes of a Galera cluster, or of a group with several
primaries. There a partition goes only if its bounds alone allow it, whatever is written meanwhile;
and on a node of Galera nothing is locked: transactions of other nodes have to be applied before its
ALTER TABLE, and would wait for the lock forever, and all nodes with them.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from ttl_odm.partitions.dialects.mysql import MySQLPartitions
from ttl_odm.partitions.sqlalchemy.catalogue import read_leaves
from ttl_odm.partitions.sqlalchemy.work import HELD, MOVED, InUseError, PartitionWork
from ttl_odm.sqlalchemy.purge.errors import is_away, is_locked
from ttl_odm.sqlalchemy.purge.removal import count_rows
from ttl_odm.sqlalchemy.sweep.transactions import name_of, reading
from ttl_odm.sweeper import BatchResult, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Table

    from ttl_odm.partitions.dialects.ddl import Cut, NewPartition
    from ttl_odm.partitions.sqlalchemy.catalogue import Leaf

COPIED: Final = 5_000
"""The most rows of the partition for the rest that are copied when another one is made."""

_ATTEMPTS: Final = 20
"""How often in a row MariaDB is asked for the lock on a table that is in use."""

_SHARED: Final = (
    "other servers of the cluster write the table, too, so only the bounds of a partition decide "
    "whether it is dropped"
)


@dataclass(slots=True)
class MySQLWork(PartitionWork):
    """One request on MariaDB or MySQL."""

    _is_mariadb: bool = field(init=False)
    _sharing: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._is_mariadb = bool(getattr(self.connection.dialect, "is_mariadb", False))

    @property
    def _ddl(self) -> MySQLPartitions:
        ddl = self.leaves.ddl
        assert isinstance(ddl, MySQLPartitions)  # noqa: S101 (the database's)
        return ddl

    # --- making ----------------------------------------------------------------------------------

    def _make(self, leaf: NewPartition) -> BatchResult:
        rest = self.leaves.rest
        if rest is not None:
            table, within = self._within(rest)
            with reading(self.connection, self.request.timeout):
                rows = count_rows(self.connection, table, *within, limit=COPIED + 1)
            if rows > COPIED:
                self.notes.append(
                    f"the partition {leaf.name} was not created, because more than {COPIED:,} "
                    f"rows would have to be copied from {rest.name[1]} while other sessions wait. "
                    "These rows are deleted in batches. Create partitions earlier (ahead=)."
                )
                return BatchResult(0)
        name = None if rest is None else rest.name[1]
        # The statement's own lock comes after its copy, which then would be made at each try.
        with self._locked():
            leaves = read_leaves(self.connection, self.binding)
            if leaves is not None and leaf in leaves.missing():
                self._run(self._ddl.make(self._cut, leaf, name))
                self.is_done = True
        return BatchResult(0)

    # --- purging ---------------------------------------------------------------------------------

    def _drop_dead(self, leaf: Leaf) -> BatchResult:
        if self._is_shared() and not self.binding.source.is_known:
            return self._leave_to_batches("another server may be changing the stored default")
        rows = self._rows(leaf)
        with self._locked():
            if not self._is_still(leaf, dead=True, hindered=False):
                return BatchResult(0)
            self._drop(leaf)
        return BatchResult(rows)

    def _drop_if_empty(self, leaf: Leaf, reason: str) -> BatchResult:
        table, within = self._within(leaf)
        with reading(self.connection, self.request.timeout):
            is_empty = not count_rows(self.connection, table, *within, limit=1)
        if not is_empty or leaf.hindrance == "shape":
            return self._leave_to_batches(reason)
        if leaf.hindrance == "last" or (self._is_shared() and not self.leaves.is_dead(leaf)):
            return BatchResult(0)
        with self._locked():
            with self._limited():
                is_empty = not count_rows(self.connection, table, *within, limit=1)
            if is_empty and self._is_still(leaf, dead=False, hindered=True):
                self._drop(leaf)
        return BatchResult(0)

    def _drop_unless_live(self, leaf: Leaf) -> BatchResult:
        if not self.binding.source.is_known:
            # Under LOCK TABLES a statement may name a table only once, but the predicate looks the
            # default up several times.
            return self._drop_if_empty(leaf, "each row's stored default has to be looked up")
        if self._is_scan_postponed(leaf):
            return BatchResult(0)
        table, within = self._within(leaf)
        began = time.monotonic()
        with reading(self.connection, self.request.timeout):
            is_live = count_rows(self.connection, table, *within, self._live(table), limit=1)
        if is_live or time.monotonic() - began >= HELD:  # batches delete its expired rows
            return self._merge(leaf) if is_live else self._postpone_scan(leaf)
        if self._is_shared():
            return self._leave_to_batches(_SHARED)
        rows = self._rows(leaf)
        with self._locked():
            with self._limited():
                is_live = count_rows(self.connection, table, *within, self._live(table), limit=1)
            if is_live or not self._is_still(leaf, dead=False, hindered=False):
                return BatchResult(0)
            self._drop(leaf)
        return BatchResult(rows)

    def _merge(self, leaf: Leaf) -> BatchResult:
        """Merge a partition with few rows into the lowest partition, if that is next to it.

        One statement does it, so no row is lost. Batches delete the expired rows of the lowest one.
        """
        past, lowest = self.leaves.past, self.leaves.every[0]
        moves = self.leaves.partitioning.declared.survivors == "move"
        upper = self.leaves.edges(leaf)[1]
        if not moves or past is None or upper is None or leaf.name != lowest.name:
            return self._postpone_scan(leaf)
        if self._rows(leaf) + self._rows(past) > MOVED:
            return self._postpone_scan(leaf)
        with self._locked():
            if self._is_still(leaf, dead=False, hindered=False):
                self._run(self._ddl.merge(self._cut, past.name[1], leaf.name[1], upper))
                self._forget(leaf)
        return BatchResult(0)

    def _hand_over(self, leaf: Leaf, into: Cut) -> BatchResult:  # noqa: ARG002 (PostgreSQL's)
        raise StoreError(
            f"{leaf.name[1]} can't become a partition of another table on this database."
        )

    def _within(self, leaf: Leaf) -> tuple[Table, list[ColumnElement[bool]]]:
        """Return the table itself: by these bounds the optimizer reads no other partition."""
        return self.binding.table, [self.leaves.holds(self.binding.table, leaf)]

    def _drop(self, leaf: Leaf) -> None:
        self._run(self._ddl.drop(self._cut, leaf.name[1]))
        self._forget(leaf)

    # --- the table for itself --------------------------------------------------------------------

    def _is_shared(self) -> bool:
        """Return whether other servers write the table, too, by the settings of this server."""
        if self._sharing is None:
            with reading(self.connection, self.request.timeout):
                setting = self.connection.exec_driver_sql(self._ddl.shared).first()
            self._sharing = "" if setting is None else str(setting[0])
        return bool(self._sharing)

    def _lock(self) -> None:
        """Lock the table.

        Raises:
            InUseError: A long transaction uses the table, on MySQL.
            DBAPIError: Another session uses it.
        """
        if not self._is_mariadb and self._is_busy():
            raise InUseError("another session is using it in an open transaction")
        read = tuple(  # the defaults stay as they are meanwhile
            self._ddl.quoted(*name_of(self.connection, table))
            for table in self.binding.source.tables
        )
        lock = self._ddl.lock(self._cut, read, is_mariadb=self._is_mariadb)
        for remaining in reversed(range(_ATTEMPTS if self._is_mariadb else 1)):
            try:
                with reading(self.connection, self.request.timeout):
                    self._run(lock)
            except DBAPIError as error:
                if remaining and is_locked(error):
                    continue
                raise
            return

    def _is_busy(self) -> bool:
        """Return whether a long transaction uses the table; False if MySQL doesn't show it."""
        cut = self._cut
        try:
            with reading(self.connection, self.request.timeout):
                names = {"schema": cut.schema, "name": cut.name}
                return bool(self.connection.execute(text(self._ddl.busy), names).scalar_one())
        except DBAPIError as error:
            if is_away(error):
                raise
            return False  # without the privilege, the lock is waited for, for a second

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the table; a connection that can't be unlocked isn't returned to the pool."""
        if self._is_shared() and self._sharing == self._ddl.galera:
            with reading(self.connection):
                yield
            return
        self._lock()
        try:
            with reading(self.connection):
                yield
        finally:
            if not self.connection.invalidated:
                try:
                    with reading(self.connection):
                        self._run(self._ddl.unlock)
                except BaseException:
                    self.connection.invalidate()
                    raise

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Limit SELECTs to the time for which others may wait."""
        name, units = self._ddl.limit(is_mariadb=self._is_mariadb)
        before = self.connection.exec_driver_sql(f"SELECT @@{name}").scalar_one()
        self._set(name, f"{HELD * units:g}")
        try:
            yield
        finally:
            if not self.connection.invalidated:
                self._set(name, str(before))

    def _set(self, name: str, value: str) -> None:
        self.connection.exec_driver_sql(f"SET SESSION {name} = {value}")
