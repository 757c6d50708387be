"""What `ttl-odm check` looks at in the rows of a SQL table: values, instants, and overdue rows.

It always reads what an index leads to; the rest of a table only if it is small, or with ``--deep``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Boolean, column, inspect, literal_column, select, update
from sqlalchemy import table as bare_table
from sqlalchemy.dialects import registry
from sqlalchemy.schema import CreateColumn

from ttl_odm.cli.checked_table import MIGRATE, MOST, CheckedTable, up_to_most
from ttl_odm.core.policy import ExpireAt
from ttl_odm.core.values import NEVER
from ttl_odm.dialects.indexes import IndexNeed
from ttl_odm.dialects.mysql import check_on
from ttl_odm.inspection.evidence import SMALL, Kind
from ttl_odm.inspection.readers.sql import kind_of, misread
from ttl_odm.sqlalchemy.policy.predicate import expired_in, include_expired
from ttl_odm.sqlalchemy.sweep.counts import measure
from ttl_odm.sqlalchemy.sweep.due import PartIndex
from ttl_odm.sqlalchemy.time.clock import Seconds, clock_of
from ttl_odm.sqlalchemy.time.instants import kept_type
from ttl_odm.sweeper import Part
from ttl_odm.sweeper.findings import AHEAD, WRONG_UNIT, Finding, overdue
from ttl_odm.sweeper.units import EARLIEST, FIRST_INSTANT, LATEST, LEAST_MILLISECONDS, UNITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import ColumnElement, FromClause, Subquery

    from ttl_odm.sweeper.units import Misread


_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_NO_CHECK: Final = ("there is no CHECK on", MIGRATE)


class RowChecks(CheckedTable):
    """The checks of a table's rows."""

    def _overdue(self) -> Iterator[Finding]:
        """Report how long expired rows have waited, if only reading the table shows it.

        Of a big table only the first rows are read: as a rule they were written first, and so
        expire first.
        """
        if not self._is_walked:
            return
        source: FromClause = self._table
        if not self._is_readable:
            source = select(self._table).limit(SMALL).options(include_expired()).subquery()
        expired = expired_in(self.connection, self.binding, source)
        _, oldest = measure(self.connection, self.binding, source, expired)
        if oldest is not None and oldest > self._max_age:
            yield overdue(self.name, self.model, oldest)
        elif not self._is_readable:
            message = (
                f"only {SMALL:,} rows were checked for how long expired rows have waited: the "
                "sweeper has no index for them, and the table is big; --deep reads all of it"
            )
            yield self._skipped("overdue", message, self._deeper)

    def _values(self) -> Iterator[Finding]:
        """Report invalid ttls, if no CHECK keeps them out."""
        own = self.binding.override
        if own is None:
            return
        lack = self._lack_of_check(own.name)
        if lack is None and not self._deep:
            return
        if isinstance(own.type, Seconds) and lack is not None:
            why, fix = lack
            yield self.warning(
                "missing-check",
                f"{why} {own.name}, so raw SQL can write invalid ttls",
                fix,
            )
        if not self._is_readable:
            message = (
                f"there is no CHECK on {own.name}, and the table is big; --deep reads all of it"
            )
            yield self._skipped("ttl-values", message, self._deeper)
            return
        name = self.dialect.identifier_preparer.quote(own.name)
        valid = clock_of(self.dialect).ttl_check(name)
        kept = [f"{name} = {value}" for value in self.binding.nevers if value != NEVER]
        criterion = f"NOT ({' OR '.join([valid, *kept])})"
        invalid = literal_column(criterion, Boolean())
        wrong = up_to_most(self._number(self._some(MOST, invalid)))
        if wrong:
            message = f"rows with an invalid {own.name} (such as 0), to which the default applies: "
            if not self._is_walked:
                expired = expired_in(self.connection, self.binding)
                hidden = up_to_most(self._number(self._some(MOST, invalid, expired)))
                wrong += f"; expired, but not found by sweeping with an index: {hidden}" * bool(
                    hidden
                )
            yield self.error(
                "invalid-ttl",
                message + wrong,
                f"UPDATE {self._quoted} SET {name} = NULL WHERE {criterion}",  # noqa: S608 (shown)
            )

    def _lack_of_check(self, column: str) -> tuple[str, str] | None:
        """Return why no CHECK keeps out invalid ttls, and the fix; None if one does."""
        if self._is_mysql:
            # SQLAlchemy doesn't reflect a CHECK that is declared with a column.
            create = self.connection.exec_driver_sql(f"SHOW CREATE TABLE {self._quoted}").one()[1]
            condition = clock_of(self.dialect).ttl_check(column)
            check = check_on(str(create), column, condition)
            if check is None:
                return _NO_CHECK
            if check.is_enforced:
                return None
            name = self.dialect.identifier_preparer.quote(check.name)
            enforce = f"ALTER TABLE {self._quoted} ALTER CHECK {name} ENFORCED"
            return "NOT ENFORCED (MySQL copies the table to enforce it): the CHECK on", enforce
        schema, table = self._place
        checks = inspect(self.connection).get_check_constraints(table, schema)
        conditions = [f"{check['sqltext']} " for check in checks]
        conditions = [condition for condition in conditions if f"{column} " in condition]
        if not conditions:
            return _NO_CHECK
        is_strict = any("typeof(" in condition for condition in conditions)
        if self.dialect.name != "sqlite" or is_strict:
            return None
        return "text and fractions pass the CHECK of an earlier release on", MIGRATE

    def _undated(self) -> Iterator[Finding]:
        """Report rows without an instant in a column that the model declares NOT NULL."""
        stamp, name = self.binding.last_modified, self.binding.last_modified.name
        quoted = self.dialect.identifier_preparer.quote(name)
        if not self._is_readable:
            message = f"{name} may be NULL, and the table is big; --deep reads all of it"
            yield self._skipped("undated", message, self._deeper)
        elif rows := up_to_most(self._number(self._some(MOST, stamp.is_(None)))):
            yield self.error(
                "undated",
                f"rows without {name}, which no query returns and no sweep finds: {rows}",
                f"UPDATE {self._quoted} SET {quoted} = {clock_of(self.dialect).stamp} "  # noqa: S608 (shown)
                f"WHERE {quoted} IS NULL",
            )
        alter = f"ALTER TABLE {self._quoted} ALTER COLUMN {quoted} SET NOT NULL"
        if self._is_mysql:
            column = " ".join(str(CreateColumn(stamp).compile(dialect=self.dialect)).split())
            alter = f"ALTER TABLE {self._quoted} MODIFY {column}"
        elif self.dialect.name == "sqlite":
            opened = f"with op.batch_alter_table({self._table.name!r}) as batch:"
            alter = f"{opened} batch.alter_column({name!r}, nullable=False)"
        message = f"column {name} may be NULL, but is declared NOT NULL, and reads rely on that"
        yield self.warning("nullable-column", message, alter)

    def _endless(self) -> Iterator[Finding]:
        """Report rows without an instant to count from, in a column that may be NULL."""
        stamp, name = self.binding.last_modified, self.binding.last_modified.name
        if not (self._is_readable or any(index.leads_to(_by(name)) for index in self._stored)):
            message = f"{name} may be NULL, and the table is big; --deep reads all of it"
            yield self._skipped("undated", message, self._deeper)
        elif rows := up_to_most(self._number(self._some(MOST, stamp.is_(None)))):
            yield self.warning(
                "undated",
                f"rows without {name}, from which their lifetime is counted, so they never expire: "
                f"{rows}",
                self._set_to_now(lambda instant: instant.is_(None)),
            )

    def _future(self) -> Iterator[Finding]:
        """Report rows whose lifetime is counted from an instant in the future."""
        binding = self.binding
        if isinstance(binding.policy, ExpireAt):
            return  # its instants are meant to lie in the future
        clock, stamp = clock_of(self.dialect), binding.last_modified
        storage = binding.instants.on(clock)
        latest = clock.literal(f"({clock.now} + {AHEAD} * {clock.second})")
        rows = self._latest(storage.plain(stamp))
        if rows is None:
            message = f"{stamp.name} has no index, and the table is big; --deep reads all of it"
            yield self._skipped("future-rows", message, self._deeper)
            return
        ahead = up_to_most(self._number(select(rows).where(storage.instant(rows.c[0]) > latest)))
        if ahead:
            yield self.warning(
                "future-rows",
                f"rows whose {stamp.name} is more than an hour in the future, so they live that "
                f"much longer: {ahead}",
                self._set_back(latest),
            )

    def _latest(self, stamp: ColumnElement[Any]) -> Subquery | None:
        """Return the latest thousand instants, by an index, or all instants of a small table.

        None if that would read a big table.
        """
        binding = self.binding
        instants = select(stamp.label("latest")).where(stamp.is_not(None))
        need = next(iter(self._needs), _by(binding.last_modified.name)).least
        if not any(index.leads_to(need) for index in self._stored):
            if not self._is_readable:
                return None
        elif need.is_partial:
            index = PartIndex(binding, Part.INHERITING, clock_of(self.dialect))
            instants = instants.where(index.holds(binding.table))
            instants = instants.order_by(index.end(binding.table).desc()).limit(MOST)
        else:
            instants = instants.order_by(stamp.desc()).limit(MOST)
        return instants.options(include_expired()).subquery()

    def _units(self) -> Iterator[Finding]:
        """Report numbers in a unit other than the policy's: mostly milliseconds as seconds."""
        for wrong in misread(self.connection, self.binding):
            report = self.error if wrong.is_most else self.warning
            if wrong.form is not None:
                yield report("undated", wrong.message, self._rewritten(wrong))
                continue
            if wrong.is_most and not (wrong.is_lifetime or self.binding.instants.native):
                fix = f"declare unit={wrong.unit!r} in the policy"
                yield report(WRONG_UNIT, wrong.message, fix)
                continue
            message = f"{wrong.message}; correct the program that writes them first"
            yield report(WRONG_UNIT, message, self._converted(wrong))

    def _rewritten(self, wrong: Misread) -> str:
        """Return how to turn texts into dates: on SQLite, by adding or removing the time."""
        name = self.dialect.identifier_preparer.quote(wrong.field)
        day = _DAY.match(str(wrong.example))
        if day is None or self.dialect.name != "sqlite":
            return f"write {wrong.field} as {wrong.form} in these rows, and in the program"
        digits = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
        value, pattern = f"{name} || ' 00:00:00'", digits
        if "HH" not in str(wrong.form):
            value, pattern = f"substr({name}, 1, 10)", f"{digits}[T ]*"
        statement = f"UPDATE {self._quoted} SET {name} = {value} WHERE {name} GLOB '{pattern}'"  # noqa: S608 (shown)
        return f"correct the program that writes {wrong.field}, then: {statement}"

    def _converted(self, wrong: Misread) -> str:
        """Return the statement that converts values to the unit in which they are read."""
        name = self.dialect.identifier_preparer.quote(wrong.field)
        if wrong.is_lifetime:
            value = f"{name} / 1000" if wrong.unit else "NULL"
            low = LEAST_MILLISECONDS if wrong.unit else FIRST_INSTANT
            criterion = f"{name} >= {low}"
        else:
            is_native = self.binding.instants.native
            declared = clock_of(self.dialect).per_second if is_native else None
            factors: dict[str | None, int] = {unit: factor for unit, factor, _ in UNITS}
            new, old = declared or factors[self.binding.policy.unit], factors[wrong.unit]
            value = f"{name} * {new // old}" if new > old else f"{name} / {old // new}"
            criterion = f"{name} BETWEEN {EARLIEST * old} AND {LATEST * old}"
        return f"UPDATE {self._quoted} SET {name} = {value} WHERE {criterion}"  # noqa: S608 (shown)

    def _set_back(self, latest: ColumnElement[Any]) -> str:
        """Return the statement that sets instants in the future to now."""
        clock, stamp = clock_of(self.dialect), self.binding.last_modified
        storage = self.binding.instants.on(clock)
        statement = self._set_to_now(lambda instant: storage.instant(instant) > latest)
        kind = kind_of(kept_type(stamp.type, clock.family))
        is_doubtful = kind is Kind.NAIVE and self.binding.policy.timezone == "UTC"
        zone = "declare timezone= if these are local times; or " * is_doubtful
        return f"{zone}{statement}"

    def _set_to_now(self, condition: Callable[[ColumnElement[Any]], ColumnElement[bool]]) -> str:
        """Return the statement that sets the instants of some rows to now."""
        clock, stamp = clock_of(self.dialect), self.binding.last_modified
        storage = self.binding.instants.on(clock)
        bare = bare_table(self._table.name, column(stamp.name), schema=self._table.schema)
        instant = bare.c[stamp.name]
        now = storage.stored(clock.literal(clock.stamp))
        statement = update(bare).where(condition(instant)).values({instant: now})
        # The driver's own dialect may double each % sign.
        plain = registry.load(self.dialect.name)(paramstyle="named")
        compiled = statement.compile(dialect=plain, compile_kwargs={"literal_binds": True})
        return " ".join(str(compiled).split())


def _by(column: str) -> IndexNeed:
    """Return the need of an index on a column alone."""
    return IndexNeed(Part.INHERITING, column)
