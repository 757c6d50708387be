"""The link of a row: the fields that lead to its parent, and the values that a write gives them.

A field may be generated, or get an expression or the database's default. For new rows the database
then computes the link beforehand; an UPDATE gets a condition that contains the same SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db import models
from django.db.models import Case, F, Value
from django.db.models.expressions import Col, DatabaseDefault
from django.db.models.fields.related import RelatedField
from django.db.models.functions import Cast
from django.db.models.sql import Query
from django.db.models.sql.constants import SINGLE

from ttl_odm.django.keys.conditions import is_plain, values_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model as Instance
    from django.db.models.expressions import BaseExpression
    from django.db.models.sql import UpdateQuery

    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.follows.django.follower import Following, Key

_AT_ONCE: Final = 100
"""Rows whose links one statement computes."""


def keys_of(following: Following, objs: Iterable[Instance], using: str) -> list[Key]:
    """Return the keys of the parents that new rows get, each once; without NULLs."""
    own = following.links.own
    if not any(field.generated for field in own):
        plain = ([getattr(obj, field.attname) for field in own] for obj in objs)
        return _keys(following, plain, using)
    rows: list[Sequence[object]] = []
    for obj in objs:

        def value_of(field: AnyField, obj: Instance = obj) -> object:
            return getattr(obj, field.attname)

        rows.append([_value_in(field, value_of) for field in own])
    return _keys(following, rows, using)


def named_in(following: Following, query: UpdateQuery, using: str) -> list[Key]:
    """Return the keys of parents that an UPDATE names, not of parents that it computes per row."""
    written = {field: value for field, _, value in query.values}
    fields = stored_fields(following)
    if not all(field in written and is_plain(written[field]) for field in fields):
        return []
    named: list[dict[AnyField, object]] = []
    if len(fields) == 1:  # of several rows, perhaps, in a CASE
        (field,) = fields
        named += ({field: value} for value in values_in(written[field], by_key=False))
    elif not any(isinstance(written[field], (Case, Cast)) for field in fields):
        named.append({field: _unwrapped(written[field]) for field in fields})
    rows = []
    for values in named:

        def value_of(field: AnyField, values: Mapping[AnyField, object] = values) -> object:
            value = values[field]
            if isinstance(value, models.Model):
                return getattr(value, _target_of(field).attname)
            return value

        rows.append([_value_in(own, value_of) for own in following.links.own])
    return _keys(following, rows, using)


def _unwrapped(value: object) -> object:
    return value.value if isinstance(value, Value) else value


def stored_fields(following: Following) -> list[AnyField]:
    """Return the fields of the link; generated ones are replaced by the fields that they read."""
    fields: dict[AnyField, None] = {}
    waiting = list(following.links.own)
    while waiting:
        field = waiting.pop(0)
        if field.generated:
            waiting += _sources_of(field)
        else:
            fields[field] = None
    return list(fields)


def set_by(
    query: Query, following: Following, connection: BaseDatabaseWrapper
) -> list[BaseExpression]:
    """Return the link that an UPDATE gives a row, as expressions of its query."""
    written = _Assigned()
    for field, _, value in query.values:
        is_row = isinstance(value, models.Model)
        key = getattr(value, _target_of(field).attname) if is_row else value
        expression = _as_expression(key, field)
        expression = expression.resolve_expression(query, allow_joins=False, for_save=True)
        if connection.vendor == "mysql":  # which reads values that the statement set before
            expression = written.placed_in(expression)
        written[field] = expression
    return [_set_to(own, query, written) for own in following.links.own]


def _set_to(field: AnyField, query: Query, written: _Assigned) -> BaseExpression:
    """Return the expression of a field after an UPDATE that sets these fields."""
    if field in written:
        return written[field]
    if not field.generated:
        return F(field.attname).resolve_expression(query, allow_joins=False)
    sources = _Assigned({source: _set_to(source, query, written) for source in _sources_of(field)})
    return sources.placed_in(_computed_by(field).resolve_expression(query, allow_joins=False))


class _Assigned(dict["AnyField", "BaseExpression"]):
    """By field, the expression that an UPDATE sets it to.

    `replace_expressions` looks expressions up by columns, so `get` takes the column of a field.
    """

    def get(self, key: object, default: Any = None) -> Any:
        """Return the expression for a column."""
        return super().get(key.target, default) if isinstance(key, Col) else default

    def placed_in(self, expression: Any) -> BaseExpression:
        """Return an expression in which columns are replaced by these."""
        is_read = any(self.get(part) is not None for part in expression.flatten())
        placed: BaseExpression = expression.replace_expressions(self) if is_read else expression
        return placed


def _target_of(field: AnyField) -> AnyField:
    return field.target_field if isinstance(field, RelatedField) else field


def _computed_by(field: Any) -> Any:
    """Return the expression of a generated field, which django-stubs doesn't know."""
    return field.expression


def _value_in(field: AnyField, value_of: Callable[[AnyField], object]) -> object:
    """Return the value of a row in a field; for a generated field, an expression of values."""
    if not field.generated:
        return value_of(field)
    values: dict[F, F | BaseExpression] = {}
    for source in _sources_of(field):
        value = _as_expression(_value_in(source, value_of), source)
        values |= {F(source.name): value, F(source.attname): value}
        if source.primary_key:
            values[F("pk")] = value
    return _computed_by(field).replace_expressions(values)


def _as_expression(value: Any, field: AnyField) -> F | BaseExpression:
    if isinstance(value, DatabaseDefault):  # which an INSERT writes as DEFAULT
        (value,) = value.get_source_expressions()
    return value if hasattr(value, "resolve_expression") else Value(value, output_field=field)


def _sources_of(field: AnyField) -> list[AnyField]:
    """Return the fields that a generated field reads."""
    model: Any = field.model  # django-stubs lacks a method of models that is called here
    fields = {"pk": model._meta.pk}
    for own in model._meta.local_concrete_fields:
        fields |= {own.name: own, own.attname: own}
    names = (name for name, *_ in model._get_expr_references(_computed_by(field)))
    return list(dict.fromkeys(fields[name] for name in names))


def _keys(following: Following, rows: Iterable[Sequence[object]], using: str) -> list[Key]:
    """Return the keys of parents by links of values and expressions, without those with NULLs."""
    keys: dict[Key, None] = {}
    expressions = []
    for row in rows:
        if any(hasattr(value, "resolve_expression") for value in row):
            expressions.append(row)
        elif None not in row:
            keys[_as_key(following, row)] = None
    for start in range(0, len(expressions), _AT_ONCE):
        for row in _evaluated(following, expressions[start : start + _AT_ONCE], using):
            if None not in row:
                keys[_as_key(following, row)] = None
    return list(keys)


def _as_key(following: Following, row: Sequence[object]) -> Key:
    pairs = zip(following.links.theirs, row, strict=True)
    return tuple(theirs.to_python(value) for theirs, value in pairs)


def _evaluated(
    following: Following, rows: Sequence[Sequence[object]], using: str
) -> Iterator[Sequence[object]]:
    """Yield the links as the database computes them."""
    query = Query(None)  # as in Q.check()
    own = following.links.own
    for number, row in enumerate(rows):
        for place, (value, field) in enumerate(zip(row, own, strict=True)):
            query.add_annotation(_as_expression(value, field), f"ttl_{number}_{place}")
    values = query.get_compiler(using).execute_sql(SINGLE)
    for start in range(0, len(values), len(own)):
        yield values[start : start + len(own)]
