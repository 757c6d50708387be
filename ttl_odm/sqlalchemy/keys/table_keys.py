"""The keys of a table, the rows that may hold them, and their values as they are stored.

A column rounds, pads and truncates its values: 1.236 becomes 1.24 in a NUMERIC(10, 2), a datetime
becomes a day in a DATE. A comparison does none of that, so an expired row with the stored value
would not be found, and the write would fail on it. Values that may be converted are compared as
their columns store them, by SQL that depends on the column's type (`Family.stored_form`). The type
comes from the database, since a model may be less exact.

Most values are stored as they are, which their own types tell (`is_kept`). For these nothing has to
be asked, and the SQL has no conversions.

The keys are freed of expired rows in `ttl_odm.sqlalchemy.keys.write_keys`.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from sqlalchemy import (
    CHAR,
    NVARCHAR,
    VARCHAR,
    BindParameter,
    Boolean,
    Column,
    ColumnElement,
    Date,
    DateTime,
    Double,
    Enum,
    Float,
    Integer,
    Label,
    LargeBinary,
    Numeric,
    String,
    Text,
    TextClause,
    Time,
    TypeDecorator,
    UnaryExpression,
    Unicode,
    UnicodeText,
    Uuid,
    and_,
    false,
    literal,
    or_,
    select,
    text,
    union_all,
)
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnClause, Grouping

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.keys.defaults import UNKNOWN, text_of
from ttl_odm.sqlalchemy.keys.displace import at_root
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, in_subquery
from ttl_odm.sqlalchemy.rewrite.unique_indexes import Prefix
from ttl_odm.sqlalchemy.rewrite.writes import as_element, uniques
from ttl_odm.sqlalchemy.time.clock import clock_of, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from sqlalchemy import Dialect, FromClause, Select, Table
    from sqlalchemy.types import TypeEngine

    from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
    from ttl_odm.sqlalchemy.policy.bindings import Binding, SubBinding
    from ttl_odm.sqlalchemy.policy.rules import Rule
    from ttl_odm.sqlalchemy.rewrite.unique_indexes import IndexCondition

    Row = Mapping[str, object]
    Values = Mapping[Column[Any], Any]
    """Values, or SQL, by column."""
    Rows = Callable[..., Select[Any]]
    Stored = Callable[[Any, Column[Any]], ColumnElement[Any]]
    Forms = Mapping[str, str]
    """Templates of SQL for what columns store, by column name; none if that is the value."""

_MAX_AGE: Final = 300.0
"""Seconds after which a database is asked for a table's types again."""

_KEPT: Final[dict[type, frozenset[type]]] = {
    Integer: frozenset({int, bool}),
    Boolean: frozenset({int, bool}),
    Date: frozenset({date}),
    Uuid: frozenset({uuid.UUID}),
}
"""By kind of type: the classes of values that it stores exactly."""

TEXTS: Final = frozenset({String, Text, Unicode, UnicodeText, VARCHAR, NVARCHAR})
"""Types of text that is compared as it is; CITEXT isn't one of them, and needs a cast."""

_NUMBER: Final = re.compile(r"-?\d+")


def is_sql(value: object) -> TypeGuard[ColumnElement[Any]]:
    """Return whether a value is for the database to compute."""
    return isinstance(value, ColumnElement)


def is_null(element: ColumnElement[Any]) -> bool:
    """Return whether an element is NULL as a value, not as a parameter of executions."""
    return (
        isinstance(element, BindParameter)
        and element.effective_value is None
        and not element.required
    )


def as_sql(value: object, column: Column[Any]) -> ColumnElement[Any]:
    """Return the value of a column, which may be SQL already, as SQL."""
    return value if is_sql(value) else literal(value, column.type)


@dataclass(frozen=True, slots=True)
class Key:
    """A primary key, a unique constraint or a unique index: what no two rows have in common.

    Attributes:
        parts: Its columns, or expressions of columns.
        columns: The columns in the parts. In place of generated columns, those from which they are
            computed.
        generated: The generated columns.
        condition: The condition of a unique index over some rows: other rows don't have this key.
        deciding: The columns, by key, on which the condition depends.
        nulls: Those of them that must be NULL in a row with this key.
        equates_nulls: Whether two rows with NULL in it have the same key.
    """

    parts: tuple[ColumnElement[Any], ...]
    columns: tuple[Column[Any], ...]
    generated: tuple[Column[Any], ...] = ()
    condition: IndexCondition | None = None
    deciding: frozenset[str] = frozenset()
    nulls: frozenset[str] = frozenset()
    equates_nulls: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it consists of columns only, without expressions or generated columns."""
        return self.parts is self.columns

    @property
    def skips_nulls(self) -> bool:
        """Whether rows with NULL in one of its columns don't have it."""
        return self.is_plain and not self.equates_nulls

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of its columns."""
        return tuple(column.key for column in self.columns)

    def selected(
        self,
        values: Values,
        matched: Rows = select,
        stored: Stored = as_sql,
        *,
        typed: bool = False,
    ) -> Select[Any]:
        """Return a SELECT of this key, with values or SQL in place of the columns.

        Args:
            values: The values, or SQL, by column.
            matched: Makes a SELECT of columns of the rows that are written.
            stored: Returns the SQL for what a column stores; for generated columns.
            typed: Whether to give values the types and collations of the table's columns.
        """
        if not (self.generated or typed):
            return matched(*self.made_of(values, stored))
        return self._over_rows(self.parts, values, stored, matched)

    def equals(self, values: Values, stored: Stored = as_sql) -> ColumnElement[bool]:
        """Return the condition for rows that have this key with such values; `stored`: as above."""
        made = self.made_of(values, stored)
        conditions = [self.has(part, value) for part, value in zip(self.parts, made, strict=True)]
        for part, value in zip(self.parts, made, strict=True):
            if isinstance(part, Prefix) and isinstance(value, Prefix):
                (column, _) = part.clauses
                conditions.append(value.may_begin(column))
        return and_(*conditions, *self.holding)

    def has(self, part: ColumnElement[Any], value: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return the condition for rows that have a value in a part.

        With `equates_nulls`, parameters of executions must have values other than NULL.
        """
        if not self.equates_nulls:
            return part == value
        if is_null(value):
            return part.is_(None)
        if isinstance(value, BindParameter) or (isinstance(part, Column) and not part.nullable):
            return part == value
        # PostgreSQL uses no index for IS NOT DISTINCT FROM.
        return or_(part == value, and_(part.is_(None), value.is_(None)))

    @property
    def holding(self) -> list[ColumnElement[bool]]:
        """The conditions for rows to have the key at all."""
        return [] if self.condition is None else [self.condition]

    def is_changed_by(self, written: Collection[str]) -> bool:
        """Return whether a write of these columns may give a row this key."""
        return not (self.deciding.isdisjoint(written) and set(self.names).isdisjoint(written))

    def is_left_by(self, row: Row) -> bool:
        """Return whether a row surely lacks this key after a write of these values."""
        return any(row.get(name) is not None and not is_sql(row[name]) for name in self.nulls)

    def held_by(self, row: Row, reclaimer: KeyReclaimer) -> ColumnElement[bool] | None:
        """Return the condition for rows with the key of a row; None if no other can have it."""
        values = [row.get(name, UNKNOWN) for name in self.names]
        if any(value is UNKNOWN or (value is None and self.skips_nulls) for value in values):
            return None
        stored = partial(as_stored, reclaimer)
        made = map(stored, values, self.columns)
        return self.equals(dict(zip(self.columns, made, strict=True)), stored)

    def held_by_selected(
        self, rows: Select[Any], reclaimer: KeyReclaimer
    ) -> Iterator[ColumnElement[bool]]:
        """Yield the conditions for rows that have this key with values that a SELECT returns."""
        if not self.equates_nulls:
            yield and_(in_subquery(self.parts, rows), *self.holding)
            return
        # IN finds no NULL: one condition for each set of columns that are NULL in some row.
        values = rows.subquery().c
        are_null = SweepSelect(*(value.is_(None) for value in values)).distinct()
        for answers in reclaimer.execute(are_null).all():
            conditions: list[ColumnElement[bool]] = self.holding
            parts, others, nulls = [], [], []
            for part, value, is_missing in zip(self.parts, values, answers, strict=True):
                if is_missing:
                    conditions.append(part.is_(None))
                    nulls.append(value.is_(None))
                else:
                    parts.append(part)
                    others.append(value)
            if parts:
                conditions.append(in_subquery(parts, select(*others).where(*nulls)))
            yield and_(*conditions)

    def made_of(self, values: Values, stored: Stored = as_sql) -> list[Any]:
        """Return the parts of this key, with values or SQL in place of the columns."""
        if self.is_plain:
            return [values[column] for column in self.columns]
        made: list[Any] = []
        for part in self.parts:
            elements = visitors.iterate(part)
            if any(element is column for element in elements for column in self.generated):
                # As a value: with IN and a subquery beside an OR, no database uses an index.
                made.append(self._over_rows([part], values, stored).scalar_subquery())
            else:
                made.append(with_values(part, values))
        return made

    def _over_rows(
        self,
        parts: Iterable[ColumnElement[Any]],
        values: Values,
        stored: Stored,
        matched: Rows = select,
    ) -> Select[Any]:
        """Return a SELECT of parts of this key in new rows, including generated columns.

        The expression of a generated column may be text with the names of columns in it. Here these
        are columns of a subquery.
        """
        new = matched(*(value.label(column.name) for column, value in values.items()))
        # No row of the table, but the types and collations of its columns.
        none = select(*values).where(false()).options(include_expired())
        name = next(iter(values)).table.name
        rows: FromClause = union_all(none, new).subquery(name)
        own = dict(zip(values, rows.c, strict=True))
        rows, places = with_generated(rows, own, self.generated, stored)
        key: Any = select(*(with_values(part, places) for part in parts))
        return key.select_from(rows)  # type: ignore[no-any-return]


def keys_of(table: Table, dialect: Dialect) -> list[Key]:
    """Return the keys of a table that its metadata contains, as a dialect's database has them."""
    keys = []
    for unique, condition, equates_nulls in dict.fromkeys(uniques(table)):
        bare = []
        for part in unique:  # those of an index may have a name and an order
            element = part
            while isinstance(element, Label) or (
                isinstance(element, UnaryExpression) and element.modifier
            ):
                element = element.element
            bare.append(element)
        parts = tuple(bare)
        inner = [[c for c in visitors.iterate(part) if isinstance(c, Column)] for part in parts]
        if not (inner and all(inner)):  # a part is text, whose columns can't be found
            continue
        columns = dict.fromkeys(c for some in inner for own in some for c in with_sources(own))
        generated = tuple(column for column in columns if column.computed is not None)
        if generated or not all(isinstance(part, Column) for part in parts):
            own = tuple(column for column in columns if column.computed is None)
            key = Key(parts, own, generated)
        else:
            key = Key(parts, parts)
        if condition is not None:
            deciding = [c for own in condition.columns_of(table) for c in with_sources(own)]
            key = replace(
                key,
                condition=condition,
                deciding=frozenset(column.key for column in deciding),
                nulls=frozenset(condition.nulls_of(table)),
            )
        if equates_nulls and dialect.name == "postgresql":
            key = replace(key, equates_nulls=True)
        keys.append(key)
    return keys


@dataclass(frozen=True, slots=True)
class ConflictingRows:
    """The rows that may hold a key of a table with a policy, or of a joined subclass (`sub`)."""

    binding: Binding
    sub: SubBinding | None = None

    @property
    def table(self) -> Table:
        """The table with the keys."""
        return self.binding.table if self.sub is None else self.sub.table

    def at_root(self, condition: ColumnElement[bool]) -> ColumnElement[bool]:
        """Return a condition on the table with the keys as one on the table with the policy."""
        return at_root(self.sub, condition)

    def displace(self, reclaimer: KeyReclaimer, condition: ColumnElement[bool]) -> int:
        """Delete the expired rows that meet a condition; return how many."""
        return reclaimer.displace(self.binding, self.at_root(condition))


@dataclass(frozen=True, slots=True)
class RuledRows:
    """The rows of a table with a rule that may hold a key; otherwise like `ConflictingRows`."""

    rule: Rule

    @property
    def table(self) -> Table:
        """The table with the keys."""
        return self.rule.table

    def displace(self, reclaimer: KeyReclaimer, condition: ColumnElement[bool]) -> int:
        """Delete the expired rows that meet a condition; return how many."""
        return reclaimer.displace_ruled(self.rule, condition)


def with_sources(column: Column[Any], *computed: Column[Any]) -> Iterator[Column[Any]]:
    """Yield a column, after those that it is computed from, if it is a generated one.

    These are recognised by their names, which may also occur as names of functions. So columns that
    are `computed` from this one are not followed again.
    """
    if column.computed is not None:
        words: set[str] = set()
        for element in visitors.iterate(column.computed.sqltext):
            if isinstance(element, (TextClause, ColumnClause)):
                words |= _words(element)
        for other in column.table.c:
            is_new = all(other is not known for known in (column, *computed))
            if is_new and words.intersection(_words(other)):
                yield from with_sources(other, column, *computed)
    yield column


def _words(element: TextClause | ColumnClause[Any]) -> set[str]:
    return set(re.findall(r"[\w$]+", text_of(element).lower()))


def with_generated(
    rows: FromClause,
    places: Mapping[Column[Any], ColumnElement[Any]],
    generated: Iterable[Column[Any]],
    stored: Stored,
) -> tuple[FromClause, Mapping[Column[Any], ColumnElement[Any]]]:
    """Return a subquery with generated columns beside another subquery's columns, and its columns.

    Args:
        rows: A subquery with the name of the table.
        places: The columns of that subquery, by the table's columns: the text of a generated column
            names them.
        generated: The generated columns to add.
        stored: Returns the SQL for what a column stores.

    Returns:
        A subquery with the name of the table, and its columns by the table's columns.
    """
    for column in generated:
        computed: Any = column.computed
        made = stored(with_values(computed.sqltext, places), column).label(column.name)
        wider: Any = select(*rows.c, made).select_from(rows).subquery(column.table.name)
        places = {own: wider.corresponding_column(place) for own, place in places.items()}
        places[column] = wider.c[column.name]
        rows = wider
    return rows, places


def with_values(part: Any, values: Values) -> Any:
    """Return a part of a key with values or SQL in place of columns."""

    def replaced(element: object, **_: object) -> Any:
        return values.get(element) if isinstance(element, Column) else None

    return visitors.replacement_traverse(as_element(part), {}, replaced)


def as_stored(reclaimer: KeyReclaimer, value: object, column: Column[Any]) -> ColumnElement[Any]:
    """Return the SQL for what a column stores for a value or SQL."""
    element = as_sql(value, column)
    if is_kept(value, column):
        return element
    form = forms_of(reclaimer, column.table).get(column.name)
    return element if form is None else in_form(form, element, column)


def in_form(form: str, element: ColumnElement[Any], column: Column[Any]) -> ColumnElement[Any]:
    """Return the SQL for what a column stores for an element, by its form."""
    return SQLTemplate(form, column.type, element)


def forms_of(reclaimer: KeyReclaimer, table: Table) -> Forms:
    """Return the forms of a table's columns, where the stored value may differ."""
    dialect: Any = reclaimer.dialect
    clock = clock_of(dialect)
    name = compat.place_of(reclaimer.options or {}, table)
    query = clock.column_types_query(*name)
    if query is None:
        return {}
    try:
        known = dialect.ttl_odm_stored_forms
    except AttributeError:
        known = dialect.ttl_odm_stored_forms = {}
    forms, end = known.get(name, ({}, 0.0))
    if monotonic() > end:
        # In text() a colon would begin a parameter.
        types = reclaimer.connection.execute(text(query.replace(":", "\\:"))).all()
        forms = {
            column: compat.in_driver_format(dialect, form)
            for column, type_ in types
            if (form := clock.stored_form(type_))
        }
        if types:  # none: there is no such table, or it is a temporary one
            known[name] = forms, monotonic() + _MAX_AGE
    return forms  # type: ignore[no-any-return]


def is_kept(value: object, column: Column[Any]) -> bool:
    """Return whether a column stores a value, or the result of SQL, unchanged on all databases."""
    if value is None:
        return True
    type_ = _undecorated(column.type)
    if type_ is None:
        return False
    if is_sql(value):
        return _is_kept_sql(value, type_)
    if type(value) in _KEPT.get(compat.affinity(type_), ()):
        return True
    for classes, check in _CHECKS:
        if isinstance(value, classes):
            return check(value, type_)
    return isinstance(type_, Enum)


def _undecorated(type_: TypeEngine[Any]) -> TypeEngine[Any] | None:
    """Return the type inside any decorators; None if a decorator changes values."""
    while isinstance(type_, TypeDecorator):
        if type(type_).process_bind_param is not TypeDecorator.process_bind_param:
            return None
        type_ = type_.impl_instance
    return type_


def _is_kept_text(value: str, type_: TypeEngine[Any]) -> bool:
    if compat.affinity(type_) is Integer:
        return _NUMBER.fullmatch(value) is not None
    if isinstance(type_, Enum):
        return not value.endswith(" ")
    if type(type_) not in TEXTS and not isinstance(type_, CHAR):
        return False
    length = getattr(type_, "length", None)
    return (length is None or len(value) <= length) and not value.endswith(" ")


def _is_kept_number(value: int | Decimal, type_: TypeEngine[Any]) -> bool:
    if not isinstance(type_, Numeric) or isinstance(type_, Float) or type_.scale is None:
        return False
    exponent = value.as_tuple().exponent if isinstance(value, Decimal) else 0
    return isinstance(exponent, int) and -exponent <= type_.scale


def _is_kept_time(value: datetime | time, type_: TypeEngine[Any]) -> bool:
    return value.microsecond == 0 and compat.affinity(type_) in {DateTime, Time}


_CHECKS: Final[
    tuple[tuple[type | tuple[type, ...], Callable[[Any, TypeEngine[Any]], bool]], ...]
] = (
    (str, _is_kept_text),
    ((int, Decimal), _is_kept_number),
    ((datetime, time), _is_kept_time),
    (timedelta, lambda value, _: value.microseconds == 0),
    (bytes, lambda _, type_: isinstance(type_, LargeBinary)),
    # MySQL's may have a scale.
    (float, lambda _, type_: isinstance(type_, Double) and not getattr(type_, "scale", None)),
)
"""By classes of values: whether a type stores a value exactly."""


def _is_kept_sql(element: Any, type_: TypeEngine[Any]) -> bool:
    own = compat.affinity(type_)
    is_text = issubclass(own, String) and type(type_) in TEXTS
    while isinstance(element, Grouping):
        element = element.element
    is_literal = isinstance(element, (TextClause, ColumnClause)) and not isinstance(element, Column)
    if is_literal and _NUMBER.fullmatch(text_of(element)):  # as most defaults are
        return is_text or own in {Integer, Numeric, Boolean}
    return is_text or (own in _KEPT and own is compat.affinity(element.type))
