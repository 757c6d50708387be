"""INSERT and UPDATE of a table with a policy: keys that expired rows hold are freed.

A write is simply tried, in a way that leaves nothing behind if a key is taken. Only then are the
expired rows that hold its keys deleted, in its transaction, and the write is sent again. Without a
conflict this costs nothing. If a table, or a kind of write, doesn't allow trials, the rows are
deleted first.

In autocommit the plain INSERT goes first, and only if it meets a taken key a transaction with a
trial, the deletion (`ttl_odm.django.purge.displacement`) and the INSERT. Inside a transaction it is
the latter from the beginning.

A plain write that meets a taken key would end a transaction of PostgreSQL; on InnoDB it would leave
a shared lock of that key, over which two writers block each other. The clause that
`ttl_odm.dialects.Family` has for an INSERT avoids both. The database is asked once for each table
whether something that Django doesn't know of (a trigger, a deferrable key) makes trials unsafe.

Live rows are never touched, whatever keys they hold.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import DatabaseError, OperationalError, transaction
from django.db.models.constants import OnConflict
from django.db.models.sql.constants import NO_RESULTS

from ttl_odm.django.keys import conditions
from ttl_odm.django.keys.conversions import name_of, read
from ttl_odm.django.policy import options
from ttl_odm.django.policy.bindings import is_historical, policy_in, schema_and_name
from ttl_odm.django.policy.predicate import Predicate
from ttl_odm.django.purge.displacement import displace, give_way, give_way_to_upsert
from ttl_odm.django.purge.errors import is_declined, is_taken
from ttl_odm.django.purge.references import referring_keys
from ttl_odm.django.time.clock import family_of
from ttl_odm.django.time.fields import Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Q
    from django.db.models.sql.compiler import SQLCompiler, SQLInsertCompiler, SQLUpdateCompiler

    from ttl_odm.django.policy.bindings import Model, TablePolicy
    from ttl_odm.django.time.fields import AnyField, BoundSQL

    Fields: TypeAlias = Sequence[AnyField] | None
    Rows: TypeAlias = Sequence[Sequence[object]]
else:
    # Mixins, which the gate puts before the class of a backend.
    SQLCompiler = SQLInsertCompiler = SQLUpdateCompiler = object

R = TypeVar("R")

_TRIES: Final = 5
"""Attempts of an upsert; each one fails only if another row expires at that very moment."""

_TWO_ROWS: Final = 1242
"""MySQL's "subquery returns more than 1 row", by which an upsert fails on an expired row."""


class _Taken(Enum):
    """The class of `_TAKEN`: type checkers tell it from what a write returns."""

    KEY = "key"


_TAKEN: Final = _Taken.KEY
"""The result of a trial if a key is taken."""

_READ_COMMITTED: Final = {"READ_COMMITTED", "READ_UNCOMMITTED"}

_allowed: dict[tuple[str, str, str], bool] = {}
"""Whether tables allow trials, as their databases have answered; see `name_of`."""


class _Keyed(SQLCompiler):
    """A write of a table with a policy that may meet keys of expired rows."""

    query: Any  # django-stubs lacks some attributes that are read here

    def _displace(self, conflicts: list[Q]) -> int:
        """Delete expired rows that meet one of the conditions, and return how many."""
        with transaction.atomic(using=self.using, savepoint=False):
            return displace(self.query.get_meta().concrete_model, str(self.using), conflicts)

    def _freeing(
        self,
        write: Callable[[], R],
        trial: Callable[[], R | _Taken] | None,
        conflicts: Callable[[], list[Q]],
    ) -> R:
        """Run a write; if a key is taken, delete the expired rows that hold its keys first.

        Args:
            write: Runs the write unchanged.
            trial: Runs the write inside a transaction in such a way that a taken key leaves nothing
                behind, and then returns `_TAKEN`; None if there is no such way.
            conflicts: Returns the conditions on rows that may hold the keys.
        """
        if self.connection.in_atomic_block:
            return self._freeing_inside(write, trial, conflicts)
        try:
            return write()
        except DatabaseError as error:  # for a cascaded key, MySQL's isn't an IntegrityError
            if not is_taken(error):
                raise
            with transaction.atomic(using=self.using, savepoint=False):
                try:
                    return self._freeing_inside(write, trial, conflicts)
                except DatabaseError as another:
                    raise another from error

    def _freeing_inside(
        self,
        write: Callable[[], R],
        trial: Callable[[], R | _Taken] | None,
        conflicts: Callable[[], list[Q]],
    ) -> R:
        """Do the same inside a transaction; see `_freeing`."""
        if trial is not None and _allows_trials(self.connection, self.query.get_meta().db_table):
            outcome = trial()
            if outcome is not _TAKEN:
                return outcome
        self._displace(conflicts())
        return write()


class KeyedInsert(_Keyed, SQLInsertCompiler):
    """INSERT, also with ON CONFLICT."""

    _suffix: str | None = None

    def execute_sql(self, returning_fields: Any = None) -> Rows:  # type: ignore[override] # as Django's own
        """Run the statement, and free the keys that it sets."""
        write, query = partial(super().execute_sql, returning_fields), self.query
        written = []  # the foreign keys to fields that an upsert sets, each with the field
        if query.on_conflict == OnConflict.UPDATE and not is_historical(query.model):
            keys = referring_keys(query.get_meta().concrete_model)
            written = [(key, target) for key, target in keys if target in query.update_fields]
        if written:
            model = query.get_meta().concrete_model
            conflicts = conditions.insert_conflicts(query, self.connection)
            with transaction.atomic(using=self.using, savepoint=False):
                give_way_to_upsert(model, str(self.using), conflicts, written)
                return self._insert(write, returning_fields)
        return self._insert(write, returning_fields)

    def _insert(self, write: Callable[[], Rows], returning_fields: Fields) -> Rows:
        query = self.query
        policy = policy_in(query, query.get_meta().db_table)
        if policy is None:
            return write()
        freeing = partial(self._with_free_keys, policy, write, returning_fields)
        return policy.insert(query, str(self.using), freeing)

    def _with_free_keys(
        self, policy: TablePolicy, write: Callable[[], Rows], returning_fields: Fields
    ) -> Rows:
        query = self.query
        if policy.binding.is_off or not conditions.sets_key(query):
            return write()
        if query.on_conflict is not None:
            return self._upsert(write)
        # PostgreSQL doesn't say which of several rows it has skipped.
        is_tried = self.connection.vendor != "postgresql" or (
            len(query.objs) == 1 and _fits_isolation(self.connection)
        )
        trial = partial(self._try, returning_fields) if is_tried else None
        return self._freeing(
            write, trial, lambda: list(conditions.insert_conflicts(query, self.connection))
        )

    def _try(self, returning_fields: Any) -> Rows | _Taken:
        """Run the INSERT; a taken key neither ends the transaction nor leaves a shared lock."""
        connection, meta = self.connection, self.query.get_meta()
        skips_rows = connection.vendor == "postgresql"
        # If the row is skipped, RETURNING returns nothing.
        fields = returning_fields or ([meta.pk_fields[0]] if skips_rows else None)
        self._suffix = _trial_suffix(connection, meta.concrete_model)
        try:
            returned: Any = super().execute_sql(fields)
            rows = [row for row in returned or () if row is not None]
        except DatabaseError as error:
            if is_taken(error) or _declines_trials(connection, meta.db_table, error):
                return _TAKEN
            raise
        finally:
            self._suffix = None
        # Unless a new trigger has skipped the row: it must not see the row twice.
        if skips_rows and not rows and _allows_trials(connection, meta.db_table, anew=True):
            return _TAKEN
        return rows if returning_fields else []

    def apply_converters(self, rows: Any, converters: Any) -> Any:
        """Allow a missing row, which Django 5 doesn't expect."""
        return super().apply_converters([row for row in rows if row is not None], converters)

    def _upsert(self, write: Callable[[], Rows]) -> Rows:
        """Delete expired rows that hold the keys, then run the upsert, which updates live ones."""
        query = self.query
        conflicts = list(conditions.insert_conflicts(query, self.connection))
        if not conflicts:
            return write()
        with transaction.atomic(using=self.using, savepoint=False):
            for _ in range(_TRIES):
                self._displace(conflicts)
                try:
                    rows = write()
                except OperationalError as error:
                    if not error.args or error.args[0] != _TWO_ROWS:
                        raise
                    continue
                updates = query.on_conflict == OnConflict.UPDATE
                if not updates or not rows or len(rows) == len(query.objs):
                    return rows
            raise OperationalError(
                f"{query.get_meta().label}: the rows that this upsert conflicts with kept "
                "expiring while it ran; try again."
            )

    def as_sql(self) -> list[BoundSQL]:  # type: ignore[override] # as Django's own
        """Return the statement; on a conflict it updates live rows only, and stamps them."""
        query = self.query
        if self._suffix is not None:
            return [(self._with_suffix(sql), params) for sql, params in super().as_sql()]
        if query.on_conflict != OnConflict.UPDATE:
            return super().as_sql()
        policy = policy_in(query, query.get_meta().db_table)
        if policy is None:
            return super().as_sql()
        is_stamped = policy.link is None and policy.stamps
        stamp = policy.binding.stamp if is_stamped else None
        query.update_fields = [field for field in query.update_fields if field is not stamp]
        plain = self.connection.ops.on_conflict_suffix_sql(
            query.fields,
            query.on_conflict,
            [field.column for field in query.update_fields],
            [field.column for field in query.unique_fields],
        )
        gated = self._gated_suffix(plain, policy, stamp)
        statements: list[BoundSQL] = []
        for sql, params in super().as_sql():
            before, suffix, after = sql.rpartition(plain)
            if not suffix:
                raise OperationalError(
                    "This database backend writes ON CONFLICT in a form that ttl_odm doesn't know."
                )
            statements.append((f"{before}{gated}{after}", params))
        return statements

    def _with_suffix(self, sql: str) -> str:
        """Return a tried INSERT: its clause goes in front of RETURNING."""
        ops: Any = self.connection.ops
        returning = ""
        if self.returning_fields and self.connection.features.can_return_columns_from_insert:
            name = "returning_columns"
            make = getattr(ops, name if hasattr(ops, name) else "return_insert_columns")  # Django 5
            returning = make(self.returning_fields)[0]
        return f"{sql.removesuffix(returning)} {self._suffix} {returning}".rstrip()

    def _gated_suffix(self, suffix: str, policy: TablePolicy, stamp: AnyField | None) -> str:
        connection, meta = self.connection, self.query.get_meta()
        live, _ = Predicate.of(policy, meta.db_table, "live", writing=True).as_sql(self, connection)
        quote = connection.ops.quote_name
        # Under a policy without stamps, a column is assigned to itself, if one is needed at all.
        column = quote(str((stamp or meta.pk_fields[0]).column))
        old = f"{quote(meta.db_table)}.{column}"
        fresh = Stamp.of(policy.binding.form).as_sql(self, connection)[0] if stamp else old
        if connection.vendor != "mysql":
            separator = "" if suffix.rstrip().endswith(" SET") else ", "
            return f"{suffix}{f'{separator}{column} = {fresh}' if stamp else ''} WHERE {live}"
        # MariaDB has no WHERE here, but assigns in order: the first assignment fails on a row that
        # has expired since the keys were freed.
        first = f"{column} = IF({live}, {fresh}, (SELECT {old} UNION ALL SELECT {old}))"
        head, _, rest = suffix.partition(" UPDATE ")
        return f"{head} UPDATE {first}{', ' if rest.strip() else ''}{rest}"


class KeyedUpdate(_Keyed, SQLUpdateCompiler):
    """UPDATE, also of unique columns."""

    def execute_sql(self, *args: Any, **kwargs: Any) -> Any:
        """Run the statement, and free the keys that it sets."""
        return self._with_free_keys(partial(super().execute_sql, *args, **kwargs))

    def execute_returning_sql(self, returning_fields: Fields) -> Rows:
        """Run it and read the results of expressions, as ``save()`` of Django 6 does."""
        django: Any = super()  # whose types are 5.2's
        features: Any = self.connection.features
        write: Callable[[], Rows] = partial(django.execute_returning_sql, returning_fields)
        if not returning_fields or not features.can_return_rows_from_update:
            return write()  # which calls execute_sql()

        own = dict(self.query.related_updates)

        def write_all() -> Rows:
            # Django rejects updates of parents here, but the policy's comes with the statement.
            self.query.related_updates = dict(own)
            try:
                rows = write()
            except EmptyResultSet:  # Django has looked up the parent's rows: none is live
                return []
            for related in self.query.get_related_updates():
                related.get_compiler(self.using).execute_sql(NO_RESULTS)
            return rows

        return self._with_free_keys(write_all)

    def _with_free_keys(self, write: Callable[[], R]) -> R:
        query = self.query
        written = [
            (foreign_key, target, value)
            for foreign_key, target in referring_keys(query.model)
            for field, _, value in query.values
            if field is target and not is_historical(query.model)
        ]
        if not written:
            return self._with_own_keys(write)
        with transaction.atomic(using=self.using, savepoint=False):
            give_way(query, str(self.using), written)
            return self._with_own_keys(write)

    def _with_own_keys(self, write: Callable[[], R]) -> R:
        query = self.query
        policy = policy_in(query, query.get_meta().db_table)
        if policy is None or options.root_written(query):
            return self._freeing_keys(policy, write)
        freeing = partial(self._freeing_keys, policy, write)
        return policy.update(query, str(self.using), freeing)

    def _freeing_keys(self, policy: TablePolicy | None, write: Callable[[], R]) -> R:
        query = self.query
        if policy is None or policy.binding.is_off or not conditions.changes_key(query):
            return write()
        trial = None if self.connection.vendor == "postgresql" else partial(_try, write)
        if conditions.depends_on_rows(query):  # read now, since Django will change the WHERE
            conflicts = list(conditions.update_conflicts(query, self.connection))
            return self._freeing(write, trial, lambda: conflicts)
        return self._freeing(
            write, trial, lambda: list(conditions.update_conflicts(query, self.connection))
        )


def _try(write: Callable[[], R]) -> R | _Taken:
    """Run a write that the database undoes by itself if it fails."""
    try:
        return write()
    except DatabaseError as error:
        if not is_taken(error):
            raise
        return _TAKEN


def _allows_trials(connection: BaseDatabaseWrapper, table: str, *, anew: bool = False) -> bool:
    """Whether a failed or short write of a table leaves nothing behind.

    Args:
        connection: That of the write, in its transaction.
        table: As Django's ``db_table`` has it.
        anew: Ask the database even if it has answered before.
    """
    key = name_of(connection, table)
    answer = None if anew else _allowed.get(key)
    if answer is None:
        family = family_of(connection)
        rows: Sequence[Sequence[object]] = []
        if family.tries_inserts:
            rows = read(connection, family.takes_tried_inserts(*schema_and_name(table)))
        answer = _allowed[key] = bool(rows and rows[0][0])
    return answer


def _declines_trials(connection: BaseDatabaseWrapper, table: str, error: DatabaseError) -> bool:
    """Whether an error is about the clause of a trial; if so, the table's trials end.

    After any other error the database is asked about the table again: meanwhile a key may have been
    made deferrable.
    """
    is_about_clause = is_declined(error)
    if is_about_clause:
        _allowed[name_of(connection, table)] = False
    else:
        _allowed.pop(name_of(connection, table), None)
    return is_about_clause


def forget_trials() -> None:
    """Ask the databases about their tables again, for tests that change tables."""
    _allowed.clear()


def _trial_suffix(connection: BaseDatabaseWrapper, model: Model) -> str | None:
    """Return the clause behind the VALUES of a tried INSERT; None where it needs none."""
    template = family_of(connection).on_conflict
    if template is None:
        return None
    quote, meta = connection.ops.quote_name, model._meta
    column = quote(str(meta.pk_fields[0].column))
    return template.replace("{table}", quote(meta.db_table)).replace("{column}", column)


def _fits_isolation(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction may try INSERTs.

    Above READ COMMITTED, PostgreSQL answers a tried INSERT with a serialization failure if the key
    belongs to a row that the transaction doesn't see, and other INSERTs with an `IntegrityError`.
    """
    if connection.vendor != "postgresql":
        return True
    level: object = getattr(connection, "isolation_level", None)
    return getattr(level, "name", "READ_COMMITTED") in _READ_COMMITTED
