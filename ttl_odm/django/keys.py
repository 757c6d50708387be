"""The keys of expired rows are free: writes that take them delete the rows that hold them.

Where a failed statement leaves nothing behind (outside of transactions, and on SQLite) the write
is simply tried; only if it meets a key in use are the expired holders deleted, and it is tried
again. That costs nothing without a conflict. Inside a transaction the holders are deleted first:
on PostgreSQL a failed statement would end the transaction, and on InnoDB it would keep a shared
lock on the key, over which two writers of the same key block each other.

Which rows hold a key is only narrowed down: any expired row may be purged at any time, so a few
more of them do no harm. Live rows are never touched, whatever they hold.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import EmptyResultSet
from django.db import IntegrityError, OperationalError, models, transaction
from django.db.models import Q
from django.db.models.constants import OnConflict
from django.db.models.expressions import Case, Value
from django.db.models.functions import Cast
from django.db.models.lookups import Exact
from django.db.models.sql import Query
from django.db.models.sql.constants import NO_RESULTS

from ttl_odm.django.policy.binding import policy_in
from ttl_odm.django.policy.predicate import Predicate
from ttl_odm.django.purge.removal import displace
from ttl_odm.django.time.fields import Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from django.db.models.sql import InsertQuery
    from django.db.models.sql.compiler import SQLCompiler, SQLInsertCompiler, SQLUpdateCompiler

    from ttl_odm.django.policy.binding import Model, TablePolicy
    from ttl_odm.django.time.fields import AnyField
else:
    # Mixins, which the gate puts before the class of a backend.
    SQLCompiler = SQLInsertCompiler = SQLUpdateCompiler = object

_TRIES: Final = 5
"""Rounds of an upsert, of which each is spoilt by another row that expires at this very moment."""

_MOST: Final = 200
"""Rows of one condition; SQLite stops at expressions deeper than 1,000."""

_TWO_ROWS: Final = 1242
"""MySQL's "subquery returns more than 1 row": how an upsert fails on a row that has expired."""


class _Keyed(SQLCompiler):
    """A write of a table with a policy that may meet keys of expired rows."""

    query: Any  # django-stubs doesn't know what is read of it here

    def _displace(self, conditions: list[Q]) -> int:
        """Delete expired rows that meet one of the conditions, and return how many."""
        with transaction.atomic(using=self.using, savepoint=False):
            return displace(self.query.get_meta().concrete_model, str(self.using), conditions)

    def _freeing(self, write: Callable[[], Any], conditions: list[Q]) -> Any:
        """Run a write, with the keys free that it takes; rows of the conditions may hold these."""
        if not conditions:
            return write()
        if self.connection.in_atomic_block and self.connection.vendor != "sqlite":
            self._displace(conditions)
            return write()
        try:
            return write()
        except IntegrityError as error:
            with transaction.atomic(using=self.using, savepoint=False):
                self._displace(conditions)  # none, if a sweeper came first: the keys are free then
                try:
                    return write()
                except IntegrityError as another:
                    raise another from error


class KeyedInsert(_Keyed, SQLInsertCompiler):
    """INSERT, with conflicts or without."""

    def execute_sql(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, once the keys that it brings are free."""
        write, query = partial(super().execute_sql, *args, **kwargs), self.query
        policy = policy_in(query, query.get_meta().db_table)
        if policy is None or policy.binding.is_off:
            return write()
        conditions = list(_held_by(query))
        if query.on_conflict is None or not conditions:
            return self._freeing(write, conditions)
        # Delete the expired holders, and then run what conflicts with live ones only.
        with transaction.atomic(using=self.using, savepoint=False):
            for _ in range(_TRIES):
                self._displace(conditions)
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
                f"{query.get_meta().label}: rows that this upsert meets expired again and again; "
                "try again."
            )

    def as_sql(self) -> Any:  # type: ignore[override] # as Django's own
        """The statement; on a conflict it updates live rows only, and stamps them."""
        query = self.query
        policy = policy_in(query, query.get_meta().db_table)
        if policy is None or query.on_conflict != OnConflict.UPDATE:
            return super().as_sql()
        stamp = policy.binding.stamp if policy.link is None and policy.binding.stamps else None
        query.update_fields = [field for field in query.update_fields if field is not stamp]
        plain = self.connection.ops.on_conflict_suffix_sql(
            query.fields,
            query.on_conflict,
            [field.column for field in query.update_fields],
            [field.column for field in query.unique_fields],
        )
        gated = self._gated_suffix(plain, policy, stamp)
        statements = []
        for sql, params in super().as_sql():
            before, suffix, after = sql.rpartition(plain)
            if not suffix:
                raise OperationalError(
                    "This backend spells ON CONFLICT in a way that ttl_odm can't gate."
                )
            statements.append((f"{before}{gated}{after}", params))
        return statements

    def _gated_suffix(self, suffix: str, policy: TablePolicy, stamp: AnyField | None) -> str:
        connection, meta = self.connection, self.query.get_meta()
        live, _ = Predicate(policy, meta.db_table, "live", writing=True).as_sql(self, connection)
        quote = connection.ops.quote_name
        # A policy that doesn't stamp assigns a column to itself, where one is needed at all.
        column = quote(str((stamp or meta.pk_fields[0]).column))
        old = f"{quote(meta.db_table)}.{column}"
        fresh = Stamp(policy.binding.form).as_sql(self, connection)[0] if stamp else old
        if connection.vendor != "mysql":
            separator = "" if suffix.rstrip().endswith(" SET") else ", "
            return f"{suffix}{f'{separator}{column} = {fresh}' if stamp else ''} WHERE {live}"
        # MariaDB assigns in order, and has no WHERE here: the first assignment fails on a row that
        # has expired since its key was freed.
        first = f"{column} = IF({live}, {fresh}, (SELECT {old} UNION ALL SELECT {old}))"
        head, _, rest = suffix.partition(" UPDATE ")
        return f"{head} UPDATE {first}{', ' if rest.strip() else ''}{rest}"


class KeyedUpdate(_Keyed, SQLUpdateCompiler):
    """UPDATE of columns that are unique."""

    def execute_sql(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, once the keys that it brings are free."""
        return self._with_free_keys(partial(super().execute_sql, *args, **kwargs))

    def execute_returning_sql(self, returning_fields: Any) -> Any:
        """Run it and read what the database made of expressions, as ``save()`` of Django 6 does."""
        django: Any = super()  # whose types are 5.2's
        features: Any = self.connection.features
        write: Callable[[], Any] = partial(django.execute_returning_sql, returning_fields)
        if not returning_fields or not features.can_return_rows_from_update:
            return write()  # by way of execute_sql()

        own = dict(self.query.related_updates)

        def write_all() -> Any:
            # Django refuses updates of parents here; that of the policy comes with the statement.
            self.query.related_updates = dict(own)
            try:
                rows = write()
            except EmptyResultSet:  # no live row, as Django has looked it up for the parent's sake
                return []
            for related in self.query.get_related_updates():
                related.get_compiler(self.using).execute_sql(NO_RESULTS)
            return rows

        return self._with_free_keys(write_all)

    def _with_free_keys(self, write: Callable[[], Any]) -> Any:
        query = self.query
        policy = policy_in(query, query.get_meta().db_table)
        if policy is None or policy.binding.is_off:
            return write()
        # Of a key of several columns those count that are set; the values are those that are named,
        # also in the CASE of a bulk_update, or that the database computes for the rows.
        values = {field: value for field, _, value in query.values}
        conditions = []
        for fields in unique_sets(query.get_meta().concrete_model):
            taken = Q()
            for field in values.keys() & set(fields):
                taken &= self._taken(field, values[field])
            if taken:
                conditions.append(taken)
        return self._freeing(write, conditions)

    def _taken(self, field: AnyField, value: Any) -> Q:
        """Which rows hold a value that a column is set to."""
        if _is_plain(value):
            named = list(_values_in(value))
            return Q((f"{_lookup(field)}__in", named)) if named else Q()
        rows = self.query.chain(klass=Query)
        rows.clear_ordering(force=True)
        rows.add_annotation(value, "ttl_odm_taken")
        rows.set_values(["ttl_odm_taken"])
        return Q((f"{_lookup(field)}__in", rows))


def unique_sets(model: Model) -> Iterator[tuple[AnyField, ...]]:
    """The columns of each key in a model's own table, as fields; without unique expressions."""
    meta = model._meta
    by_name = {field.name: field for field in meta.local_concrete_fields}
    yield tuple(meta.pk_fields)
    for field in meta.local_concrete_fields:
        if field.unique and not field.primary_key:
            yield (field,)
    keys: list[Sequence[str]] = [*meta.unique_together]
    keys += [
        constraint.fields
        for constraint in meta.constraints
        if isinstance(constraint, models.UniqueConstraint) and constraint.fields
    ]
    for key in keys:
        if by_name.keys() >= set(key):
            yield tuple(by_name[name] for name in key)


def _held_by(query: InsertQuery) -> Iterator[Q]:
    """Which rows may hold a key that an INSERT brings."""
    model: Any = query.get_meta().concrete_model
    brought = set(query.fields)
    keys = [fields for fields in unique_sets(model) if brought.issuperset(fields)]
    expressions = [
        constraint.expressions
        for constraint in model._meta.constraints
        if isinstance(constraint, models.UniqueConstraint) and constraint.expressions
    ]
    generated: list[Any] = [field for field in model._meta.local_concrete_fields if field.generated]
    expressions += [(field.expression,) for field in generated if field.unique]
    for start in range(0, len(query.objs), _MOST):
        objs = query.objs[start : start + _MOST]
        held = Q()
        for fields in keys:
            held |= _one_of(fields, objs)
        for obj in objs if expressions else ():
            for key in expressions:
                held |= _expressed(key, model, obj)
        if held:
            yield held


def _one_of(fields: tuple[AnyField, ...], objs: Iterable[models.Model]) -> Q:
    """Rows with one of the values in each of the columns: at least those that conflict."""
    held = Q()
    for field in fields:
        # What pre_save would make (auto_now, files) is in no key; expressions aren't known here.
        values = [getattr(obj, field.attname) for obj in objs]
        plain = [
            value
            for value in values
            if value is not None and not hasattr(value, "resolve_expression")
        ]
        if any(hasattr(value, "resolve_expression") for value in values):
            continue  # the database makes it: rows with the rest of the key are at least those
        if not plain:
            return Q()
        held &= Q((f"{_lookup(field)}__in", plain))
    return held


def _lookup(field: AnyField) -> str:
    return field.attname if field.is_relation else field.name


def _expressed(key: Iterable[Any], model: Model, obj: models.Model) -> Q:
    """Rows that give the expressions of a unique constraint the values that this one does."""
    values = {
        models.F(field.name): Value(getattr(obj, field.attname), field)
        for field in model._meta.local_concrete_fields
        if field.attname in obj.__dict__ and not hasattr(obj.__dict__[field.attname], "as_sql")
    }
    held = Q()
    for expression in key:
        plain: Any = expression.expression if isinstance(expression, models.OrderBy) else expression
        held &= Q(Exact(plain, plain.replace_expressions(values)))
    return held


def _is_plain(value: Any) -> bool:
    """Whether it is a value, or a CASE of values."""
    if isinstance(value, Case):
        return all(map(_is_plain, (*(case.result for case in value.cases), value.default)))
    if isinstance(value, Cast):
        return all(map(_is_plain, value.get_source_expressions()))
    return isinstance(value, Value) or not hasattr(value, "resolve_expression")


def _values_in(value: Any) -> Iterator[object]:
    if isinstance(value, Value):
        value = value.value
    if isinstance(value, models.Model):
        value = value.pk
    if isinstance(value, Case):
        for result in (*(case.result for case in value.cases), value.default):
            yield from _values_in(result)
    elif hasattr(value, "get_source_expressions"):  # a Cast around the CASE
        for source in value.get_source_expressions():
            if source is not None:
                yield from _values_in(source)
    elif value is not None and not hasattr(value, "resolve_expression"):
        yield value
