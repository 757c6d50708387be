"""Which rows may conflict with a write, because they hold a key that it takes: as Q objects.

The conditions may match more rows than conflict: any expired row may be purged at any time, so a
few more of them do no harm. This module must not know when the rows are searched or deleted.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from operator import and_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db import models
from django.db.models import Q
from django.db.models.expressions import Case, Expression, Value
from django.db.models.functions import Cast
from django.db.models.lookups import Exact, In, IsNull
from django.db.models.sql import Query

from ttl_odm.django.keys.conversions import storing
from ttl_odm.django.policy.bindings import columns_by_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from typing import TypeAlias

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.expressions import BaseExpression, Combinable
    from django.db.models.sql import InsertQuery, UpdateQuery

    from ttl_odm.django.keys.conversions import Storing
    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.time.fields import AnyField

    Part: TypeAlias = tuple[BaseExpression | Combinable, Any]
    """A column or expression of a key, and the expression that it is computed from."""

_MOST: Final = 200
"""Rows in one condition, or keys of rows; SQLite rejects expressions deeper than 1,000."""


def sets_key(query: InsertQuery) -> bool:
    """Whether an INSERT may set a key that the database doesn't generate."""
    for field in query.fields:  # the primary key usually comes first
        if field.primary_key:
            return True
    columns = {field.attname for field in query.fields}
    return any(key.is_set_by(columns) for key in _keys(query.get_meta().concrete_model))


def changes_key(query: UpdateQuery) -> bool:
    """Whether an UPDATE may change a row's key."""
    return bool(_changed(query))


def depends_on_rows(query: UpdateQuery) -> bool:
    """Whether the keys that an UPDATE sets depend on the rows that it matches."""
    values = _values_of(query)
    return not all(
        key.is_plain and all(is_plain(values.get(name, models.F(name))) for name in key.names)
        for key in _changed(query)
    )


def insert_conflicts(query: InsertQuery, connection: BaseDatabaseWrapper) -> Iterator[Q]:
    """Yield the conditions on rows that may hold a key of an INSERT."""
    model = query.get_meta().concrete_model
    assert model is not None  # noqa: S101 (no statement writes an abstract model)
    columns = {field.attname for field in query.fields}
    keys = [key for key in _keys(model) if key.is_set_by(columns)]
    stored = storing(connection, model)
    # A plain key is one condition for all rows, any other key one for each row.
    most = _MOST // max(1, sum(not key.is_plain for key in keys))
    for start in range(0, len(query.objs), most):
        objs = query.objs[start : start + most]
        conflicts = Q()
        for key in keys:
            if key.is_plain:
                conflicts |= key.restricted(_one_of(key, objs, stored))
                continue
            for obj in objs:
                parts = key.computed_from(_inserted_values(obj, model, stored), stored)
                same = (key.or_null(own, Q(Exact(own, value))) for own, value in parts)
                conflicts |= key.restricted(functools.reduce(and_, same))
        if conflicts:
            yield conflicts


def update_conflicts(query: UpdateQuery, connection: BaseDatabaseWrapper) -> Iterator[Q]:
    """Yield the conditions on rows that may hold a key that an UPDATE sets.

    A column of a key gets values of the statement (also in the CASE of a bulk_update), keeps those
    of the updated rows, or gets what the database computes for these. Each column is matched by
    itself.
    """
    model = query.get_meta().concrete_model
    assert model is not None  # noqa: S101 (no statement writes an abstract model)
    stored = storing(connection, model)
    for key in _changed(query):
        conflicts: list[Q] = []
        if key.is_plain:
            values = _values_of(query)
            for field in key.fields:
                value = values.get(field.attname, models.F(field.name))
                same = _with_new_value(query, field, value, stored)
                may_be_null = field.null and not _is_never_null(value)
                own = models.F(field.name)
                conflicts.append(key.or_null(own, same) if may_be_null else same)
        else:
            parts = key.computed_from(_updated_values(query, stored), stored)
            conflicts += [
                key.or_null(own, Q(In(own, _of_rows(query, value)))) for own, value in parts
            ]
        if all(conflicts):
            yield key.restricted(functools.reduce(and_, conflicts))


def _changed(query: UpdateQuery) -> list[_Key]:
    """Return the keys that an UPDATE may change."""
    values = _values_of(query)
    written = values.keys()
    return [
        key
        for key in _keys(query.get_meta().concrete_model)
        if not (key.names.isdisjoint(written) and key.deciding.isdisjoint(written))
        if not any(name in values and _is_never_null(values[name]) for name in key.nulls)
    ]


def _values_of(query: UpdateQuery) -> dict[str, object]:
    return {field.attname: value for field, _, value in query.values}


def _is_never_null(value: object) -> bool:
    """Whether an assigned value or expression is certain not to be NULL."""
    if isinstance(value, Case):
        return all(map(_is_never_null, (*(case.result for case in value.cases), value.default)))
    if isinstance(value, Cast):
        return all(map(_is_never_null, value.get_source_expressions()))
    if isinstance(value, Value):
        return value.value is not None
    return value is not None and not hasattr(value, "resolve_expression")


def _with_new_value(query: UpdateQuery, field: AnyField, value: object, stored: Storing) -> Q:
    """Return the condition on rows that hold a value to which a column is set; empty for NULL."""
    if is_plain(value):
        plain = [stored(item, field) for item in values_in(value)]
        return Q((f"{_lookup(field)}__in", plain)) if plain else Q()
    is_kept = isinstance(value, models.F)
    return Q((f"{_lookup(field)}__in", _of_rows(query, value if is_kept else stored(value, field))))


def _of_rows(query: UpdateQuery, expression: object) -> Query:
    """Return a query of an expression's values in the rows that an UPDATE matches."""
    rows = query.chain(klass=Query)
    rows.clear_ordering(force=True)
    rows.add_annotation(expression, "ttl_odm_taken", select=False)
    rows.clear_select_clause()
    # Not as an annotation, which Django counts as all columns of a composite primary key.
    rows.select, rows.selected = (rows.annotations["ttl_odm_taken"],), {"ttl_odm_taken": 0}
    return rows


def _updated_values(query: UpdateQuery, stored: Storing) -> dict[models.F, Expression]:
    """Return the columns' values after an UPDATE, by the F objects that stand for the columns."""
    return {
        models.F(field.name): _as_expression(
            value.pk if isinstance(value, models.Model) else value, field, stored
        )
        for field, _, value in query.values
    }


def _inserted_values(
    obj: models.Model, model: Model, stored: Storing
) -> dict[models.F, Expression]:
    """Return the columns' values in a row of an INSERT, by their F objects."""
    values = {}
    for field in model._meta.local_concrete_fields:
        value = obj.__dict__.get(field.attname, models.NOT_PROVIDED)
        if value is not models.NOT_PROVIDED and not hasattr(value, "as_sql"):
            values[models.F(field.name)] = _as_expression(value, field, stored)
    return values


def _as_expression(value: object, field: AnyField, stored: Storing) -> Any:
    new = stored(value, field)
    return new if hasattr(new, "resolve_expression") else Value(new, field)


@dataclass(frozen=True)
class _Key:
    """A unique key of a model's own table, perhaps only among rows that meet a condition.

    Attributes:
        parts: Its columns or expressions.
        fields: Its fields; empty if the database generates a column of it.
        names: The attributes of all fields from which it is computed.
        condition: Which rows have the key; None for all.
        deciding: The attributes of the fields in the condition.
        nulls: Those attributes among them that must be NULL.
        are_nulls_equal: Whether two rows with NULL in it have the same key.
    """

    parts: tuple[Part, ...]
    fields: tuple[AnyField, ...]
    names: frozenset[str]
    condition: Q | None = None
    deciding: frozenset[str] = frozenset()
    nulls: frozenset[str] = frozenset()
    are_nulls_equal: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the application sets all of its columns."""
        return bool(self.fields)

    def is_set_by(self, columns: Collection[str]) -> bool:
        """Whether an INSERT of these columns, named by attributes, may set the key."""
        return not self.is_plain or self.names.issubset(columns)

    def restricted(self, conflicts: Q) -> Q:
        """Limit a condition on holders of the key to rows that have the key at all."""
        return conflicts & self.condition if conflicts and self.condition is not None else conflicts

    def or_null(self, own: BaseExpression | Combinable, same: Q) -> Q:
        """Widen a condition on holders of a part to those of NULL, if it is a value like others."""
        return same | Q(IsNull(own, rhs=True)) if self.are_nulls_equal else same

    def computed_from(
        self, values: Mapping[models.F, Expression], stored: Storing
    ) -> Iterator[tuple[BaseExpression | Combinable, object]]:
        """Yield the parts of the key, each with its value computed from these values."""
        for own, source in self.parts:
            value = source.replace_expressions(values)
            yield own, stored(value, own.ttl_odm_field) if isinstance(own, _Generated) else value


class _Generated(models.F):
    """A generated column."""

    def __init__(self, field: AnyField) -> None:
        super().__init__(field.name)
        self.ttl_odm_field = field


@functools.cache
def _keys(model: Model) -> tuple[_Key, ...]:
    by_name = columns_by_name(model)
    keys = []
    for unique in unique_sets(model):
        is_plain = not any(field.generated for field in unique.fields)
        parts = tuple(map(_part, unique.fields))
        keys.append(_key(parts, unique.fields if is_plain else (), unique, by_name))
    for constraint in model._meta.constraints:
        if isinstance(constraint, models.UniqueConstraint) and constraint.expressions:
            bare = (
                expression.expression if isinstance(expression, models.OrderBy) else expression
                for expression in constraint.expressions
            )
            parts = tuple((expression, expression) for expression in bare)
            keys.append(_key(parts, (), UniqueSet.of((), constraint), by_name))
    return tuple(keys)


def _part(field: Any) -> Part:
    if field.generated:
        return _Generated(field), field.expression
    return models.F(field.name), models.F(field.name)


def _key(
    parts: tuple[Part, ...],
    fields: tuple[AnyField, ...],
    unique: UniqueSet,
    by_name: Mapping[str, AnyField],
) -> _Key:
    names = _attributes(by_name, *(source for _, source in parts))
    condition, are_nulls_equal = unique.condition, unique.are_nulls_equal
    if condition is None:
        return _Key(parts, fields, names, are_nulls_equal=are_nulls_equal)
    nulls = {
        name.removesuffix("__isnull")
        for name, value in _certain(condition)
        if value is (True if name.endswith("__isnull") else None)
    }
    null = frozenset(by_name[name].attname for name in nulls & by_name.keys())
    deciding = _attributes(by_name, condition)
    return _Key(parts, fields, names, condition, deciding, null, are_nulls_equal)


def _certain(condition: Q) -> Iterator[tuple[str, object]]:
    """Yield lookups that are true whenever a condition is; not necessarily all of them."""
    if condition.connector == Q.AND and not condition.negated:
        for child in condition.children:
            if isinstance(child, Q):
                yield from _certain(child)
            elif isinstance(child, tuple):
                yield child


def _attributes(by_name: Mapping[str, AnyField], *expressions: object) -> frozenset[str]:
    """Return the attributes of the fields in expressions and conditions.

    A generated field adds the fields of its expression. A name may also be "pk".
    """
    fields: dict[str, AnyField | None] = {**by_name}
    fields["pk"] = next((field for field in by_name.values() if field.primary_key), None)
    attributes: set[str] = set()
    for expression in expressions:
        for name in _names_in(expression):
            field = fields.get(name.split("__", 1)[0])
            if field is not None and field.generated:
                attributes |= _attributes(by_name, _part(field)[1])
            if field is not None:
                attributes.add(field.attname)
    return frozenset(attributes)


def _names_in(expression: Any) -> Iterator[str]:
    if isinstance(expression, models.F):
        yield expression.name
    elif isinstance(expression, Q):
        for child in expression.children:
            yield from [child[0]] if isinstance(child, tuple) else _names_in(child)
            if isinstance(child, tuple):
                yield from _names_in(child[1])
    elif hasattr(expression, "get_source_expressions"):
        for source in expression.get_source_expressions():
            yield from _names_in(source)


class UniqueSet(NamedTuple):
    """The fields of a key.

    Attributes:
        fields: The fields; empty for a key over expressions.
        condition: Which rows have the key; None for all.
        are_nulls_equal: Whether two rows with NULL in it have the same key.
    """

    fields: tuple[AnyField, ...]
    condition: Q | None = None
    are_nulls_equal: bool = False

    @classmethod
    def of(cls, fields: tuple[AnyField, ...], constraint: models.UniqueConstraint) -> UniqueSet:
        """Return the fields as the key of a constraint."""
        return cls(fields, constraint.condition, constraint.nulls_distinct is False)


def unique_sets(model: Model) -> Iterator[UniqueSet]:
    """Yield the fields of each key; keys over expressions are left out."""
    meta, by_name = model._meta, columns_by_name(model)
    yield UniqueSet(tuple(meta.pk_fields))
    for field in meta.local_concrete_fields:
        if field.unique and not field.primary_key:
            yield UniqueSet((field,))
    for names in meta.unique_together:
        if by_name.keys() >= set(names):
            yield UniqueSet(tuple(by_name[name] for name in names))
    for constraint in meta.constraints:
        if not isinstance(constraint, models.UniqueConstraint) or not constraint.fields:
            continue
        if by_name.keys() >= set(constraint.fields):
            yield UniqueSet.of(tuple(by_name[name] for name in constraint.fields), constraint)


def _one_of(key: _Key, objs: Iterable[models.Model], stored: Storing) -> Q:
    """Return a condition on rows that have one of the values in each column of a plain key.

    They include all rows that conflict.
    """
    conflicts = Q()
    for field in key.fields:
        # Values that pre_save makes (auto_now, files) are in no key; expressions have no value yet.
        values = [getattr(obj, field.attname) for obj in objs]
        plain = [
            stored(value, field)
            for value in values
            if value is not None and not hasattr(value, "resolve_expression")
        ]
        if any(hasattr(value, "resolve_expression") for value in values):
            continue  # the database computes it: the other fields match all conflicting rows
        same = Q((f"{_lookup(field)}__in", plain)) if plain else Q()
        if any(value is None for value in values):
            same = key.or_null(models.F(field.name), same)
        if not same:
            return Q()
        conflicts &= same
    return conflicts


def _lookup(field: AnyField) -> str:
    return field.attname if field.is_relation else field.name


def is_plain(value: object) -> bool:
    """Whether a value is one of Python's, or a CASE of such values."""
    if isinstance(value, Case):
        return all(map(is_plain, (*(case.result for case in value.cases), value.default)))
    if isinstance(value, Cast):
        return all(map(is_plain, value.get_source_expressions()))
    return isinstance(value, Value) or not hasattr(value, "resolve_expression")


def values_in(value: Any, *, by_key: bool = True) -> Iterator[object]:
    """Yield the values in a plain value, without NULLs; instances by their primary keys."""
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


def _replace_expressions(self: Any, replacements: Mapping[models.F, Any]) -> object:
    clone = self.create(connector=self.connector, negated=self.negated)
    for child in self.children:
        replaced = child
        if isinstance(child, tuple):
            name, value = child
            path, _, lookup = name.partition("__")
            new = replacements.get(models.F(path))
            if new is not None:
                is_null = value is None and lookup in ("", "exact")
                name = "isnull" if is_null else lookup or "exact"
                replaced = new.get_lookup(name)(new, is_null or value)
        elif hasattr(child, "replace_expressions"):
            replaced = child.replace_expressions(replacements)
        clone.children.append(replaced)
    return clone


if not hasattr(Q, "replace_expressions"):  # Django has it since 6.0
    setattr(Q, "replace_expressions", _replace_expressions)  # noqa: B010 - not in its stubs
