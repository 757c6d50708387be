"""Which rows may hold the keys that a write takes, as conditions of Django's.

Which ones do is only narrowed down: any expired row may be purged at any time, so a few more of
them do no harm. This module must not know when they are looked for, nor how they go.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import models
from django.db.models import Q
from django.db.models.expressions import Case, Value
from django.db.models.functions import Cast
from django.db.models.lookups import Exact
from django.db.models.sql import Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from django.db.models.sql import InsertQuery, UpdateQuery

    from ttl_odm.django.policy.binding import Model
    from ttl_odm.django.time.fields import AnyField

_MOST: Final = 200
"""Rows of one condition; SQLite stops at expressions deeper than 1,000."""


def brings_key(query: InsertQuery) -> bool:
    """Whether an INSERT may bring a key: one that the database doesn't number by itself."""
    for field in query.fields:  # the key itself comes first as a rule
        if field.primary_key:
            return True
    keys = _keys(query.get_meta().concrete_model)
    brought = {field.attname for field in query.fields}
    return bool(keys.expressions) or any(brought.issuperset(names) for names in keys.names)


def changes_key(query: UpdateQuery) -> bool:
    """Whether an UPDATE sets a column of a key."""
    keys = _keys(query.get_meta().concrete_model)
    return any(field.attname in keys.all_names for field, _, _ in query.values)


def computes_key(query: UpdateQuery) -> bool:
    """Whether it sets one to what the database makes of expressions."""
    names = _keys(query.get_meta().concrete_model).all_names
    return not all(is_plain(value) for field, _, value in query.values if field.attname in names)


def held_by(query: InsertQuery) -> Iterator[Q]:
    """Which rows may hold a key that an INSERT brings."""
    model: Any = query.get_meta().concrete_model
    keys, brought = _keys(model), {field.attname for field in query.fields}
    sets = [
        fields
        for fields, names in zip(keys.fields, keys.names, strict=True)
        if brought.issuperset(names)
    ]
    for start in range(0, len(query.objs), _MOST):
        objs = query.objs[start : start + _MOST]
        held = Q()
        for fields in sets:
            held |= _one_of(fields, objs)
        for obj in objs if keys.expressions else ():
            for key in keys.expressions:
                held |= _expressed(key, model, obj)
        if held:
            yield held


def held_by_change(query: UpdateQuery) -> Iterator[Q]:
    """Which rows may hold a key that an UPDATE makes."""
    # Of a key of several columns those count that are set; the values are those that are named,
    # also in the CASE of a bulk_update, or that the database computes for the rows.
    values = {field: value for field, _, value in query.values}
    for fields in _keys(query.get_meta().concrete_model).fields:
        held = Q()
        for field in values.keys() & set(fields):
            held &= _made(query, field, values[field])
        if held:
            yield held


def _made(query: UpdateQuery, field: AnyField, value: Any) -> Q:
    """Which rows hold a value that a column is set to."""
    if is_plain(value):
        named = list(values_in(value))
        return Q((f"{_lookup(field)}__in", named)) if named else Q()
    rows = query.chain(klass=Query)
    rows.clear_ordering(force=True)
    rows.add_annotation(value, "ttl_odm_taken")
    rows.set_values(["ttl_odm_taken"])
    return Q((f"{_lookup(field)}__in", rows))


@dataclass(frozen=True)
class _Keys:
    """The keys of a model's own table: fields, their attributes, and what is over expressions."""

    fields: tuple[tuple[AnyField, ...], ...]
    names: tuple[frozenset[str], ...]
    all_names: frozenset[str]
    expressions: tuple[Any, ...]


@functools.cache
def _keys(model: Model) -> _Keys:
    sets = tuple(_unique_sets(model))
    names = tuple(frozenset(field.attname for field in fields) for fields in sets)
    meta = model._meta
    expressions: list[Any] = [
        constraint.expressions
        for constraint in meta.constraints
        if isinstance(constraint, models.UniqueConstraint) and constraint.expressions
    ]
    generated: list[Any] = [field for field in meta.local_concrete_fields if field.generated]
    expressions += [(field.expression,) for field in generated if field.unique]
    return _Keys(sets, names, frozenset().union(*names), tuple(expressions))


def _unique_sets(model: Model) -> Iterator[tuple[AnyField, ...]]:
    """The columns of each key, as fields; without unique expressions."""
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


def is_plain(value: Any) -> bool:
    """Whether it is a value, or a CASE of values."""
    if isinstance(value, Case):
        return all(map(is_plain, (*(case.result for case in value.cases), value.default)))
    if isinstance(value, Cast):
        return all(map(is_plain, value.get_source_expressions()))
    return isinstance(value, Value) or not hasattr(value, "resolve_expression")


def values_in(value: Any, *, by_key: bool = True) -> Iterator[object]:
    """The values of what is plain, without NULLs; instances by their primary keys."""
    if isinstance(value, Value):
        value = value.value
    if isinstance(value, models.Model):
        yield from values_in(value.pk) if by_key else [value]
    elif isinstance(value, Case):
        for result in (*(case.result for case in value.cases), value.default):
            yield from values_in(result, by_key=by_key)
    elif hasattr(value, "get_source_expressions"):  # a Cast around the CASE
        for source in value.get_source_expressions():
            if source is not None:
                yield from values_in(source, by_key=by_key)
    elif value is not None and not hasattr(value, "resolve_expression"):
        yield value
