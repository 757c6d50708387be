"""What the database stores for a value of a key, where that isn't the value itself.

A column rounds, pads and cuts what it is given: 1.236 becomes 1.24 in a NUMERIC(10, 2), a datetime
becomes a day in a DATE. A comparison does none of that, so an expired row that has the stored value
would not be found, and the write would fail on it. Values that may be converted are compared as
their columns store them, by SQL that the column's type decides (`Family.stored_form`). The database
says which type that is: a model may be less exact.

Most values are stored as they are, which their own types tell (`is_kept`). For these there is
nothing to ask, and statements are what they would be without this module.
"""

from __future__ import annotations

import re
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    CHAR,
    NVARCHAR,
    VARCHAR,
    Boolean,
    Column,
    ColumnElement,
    Date,
    DateTime,
    Double,
    Enum,
    Float,
    Integer,
    LargeBinary,
    Numeric,
    String,
    Text,
    TextClause,
    Time,
    TypeDecorator,
    Unicode,
    UnicodeText,
    Uuid,
    literal,
    text,
)
from sqlalchemy.sql.elements import ColumnClause, Grouping

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.rewrite.writes import is_sql
from ttl_odm.sqlalchemy.time.clock import clock_of, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Table
    from sqlalchemy.types import TypeEngine

    from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer

    Forms = Mapping[str, str]
    """Templates of what columns store, by the columns' names; none where that is the value."""

_MAX_AGE: Final = 300.0
"""Seconds after which a database is asked for a table's types anew."""

_KEPT: Final[dict[type[Any], frozenset[type[Any]]]] = {
    Integer: frozenset({int, bool}),
    Boolean: frozenset({int, bool}),
    Date: frozenset({date}),
    Uuid: frozenset({uuid.UUID}),
}
"""By kinds of types: classes of values that they hold exactly."""

_TEXTS: Final = frozenset({String, Text, Unicode, UnicodeText, VARCHAR, NVARCHAR})
"""Types of texts that are compared as they are; CITEXT, which isn't among them, needs a cast."""

_NUMBER: Final = re.compile(r"-?\d+")


def as_sql(value: Any, column: Column[Any]) -> ColumnElement[Any]:
    """A value, or SQL, of a column as SQL."""
    return value if is_sql(value) else literal(value, column.type)


def as_stored(reclaimer: KeyReclaimer, value: Any, column: Column[Any]) -> ColumnElement[Any]:
    """The same as the column stores it."""
    element = as_sql(value, column)
    if is_kept(value, column):
        return element
    form = forms_of(reclaimer, column.table).get(column.name)
    return element if form is None else in_form(form, element, column)


def in_form(form: str, element: ColumnElement[Any], column: Column[Any]) -> ColumnElement[Any]:
    """SQL for what a column stores for an element."""
    return SQLTemplate(form, column.type, element)


def forms_of(reclaimer: KeyReclaimer, table: Table) -> Forms:
    """What the columns of a table store, where that isn't what they are given."""
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
        every = {column: clock.stored_form(type_) for column, type_ in types}
        forms = {
            column: compat.in_driver_format(dialect, form) for column, form in every.items() if form
        }
        if types:  # else there is no such table, or it is a temporary one
            known[name] = forms, monotonic() + _MAX_AGE
    return forms  # type: ignore[no-any-return]


def is_kept(value: Any, column: Column[Any]) -> bool:
    """Whether a column stores a value, or what SQL computes, as it is, whatever the database."""
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
    """A type, or what a decorator is around; None where the decorator changes values."""
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
    if type(type_) not in _TEXTS and not isinstance(type_, CHAR):
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


_CHECKS: Final[tuple[tuple[Any, Callable[[Any, TypeEngine[Any]], bool]], ...]] = (
    (str, _is_kept_text),
    ((int, Decimal), _is_kept_number),
    ((datetime, time), _is_kept_time),
    (timedelta, lambda value, _: value.microseconds == 0),
    (bytes, lambda _, type_: isinstance(type_, LargeBinary)),
    # MySQL's may have a scale.
    (float, lambda _, type_: isinstance(type_, Double) and not getattr(type_, "scale", None)),
)
"""By classes of values."""


def _is_kept_sql(element: Any, type_: TypeEngine[Any]) -> bool:
    own = compat.affinity(type_)
    is_text = issubclass(own, String) and type(type_) in _TEXTS
    while isinstance(element, Grouping):
        element = element.element
    if isinstance(element, (TextClause, ColumnClause)) and not isinstance(element, Column):
        words = element.text if isinstance(element, TextClause) else element.name
        if _NUMBER.fullmatch(words):  # as most defaults are
            return is_text or own in {Integer, Numeric, Boolean}
    return is_text or (own in _KEPT and own is compat.affinity(element.type))
