"""`touch` as a statement: rows restart their lives without being loaded.

It is an ordinary UPDATE with a SET clause and conditions, to which a caller adds ``where()`` and
``returning()``. The gate treats it like any UPDATE.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Float,
    FromClause,
    and_,
    false,
    inspect,
    literal,
    or_,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm.util import AliasedClass
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

from ttl_odm.core.lifetime import check_only_if, interval, life_seconds
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy.compat import mapper_of, memo_of, table_of
from ttl_odm.sqlalchemy.gate.functions import ExpiresAt
from ttl_odm.sqlalchemy.objects import lifetime
from ttl_odm.sqlalchemy.policy.bindings import root_binding_of, sub_binding_of
from ttl_odm.sqlalchemy.policy.references import rule_of
from ttl_odm.sqlalchemy.rewrite.from_clauses import binding_of_source, target_name, without_ttl
from ttl_odm.sqlalchemy.rewrite.writes import Ago, Granted, IfGranted, Stamp
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Update
    from sqlalchemy.orm import Mapper
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.core.lifetime import OnlyIf
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import SourceColumns
    from ttl_odm.sqlalchemy.time.clock import Instants

    SQL = ColumnElement[Any]


_STATEMENT: Final = "ttl_odm_touch"
"""The name under which a mapper remembers the UPDATE."""


@overload
def touch(  # type: ignore[overload-overlap] # a class is an object, but no row
    target: type | AliasedClass[Any] | FromClause,
    *,
    at_most_every: float | timedelta | None = None,
    only_if: OnlyIf | None = None,
    expire_in: float | timedelta | None = None,
) -> Update: ...
@overload
def touch(
    target: object,
    *,
    at_most_every: float | timedelta | None = None,
    only_if: OnlyIf | None = None,
) -> bool: ...
def touch(
    target: object,
    *,
    at_most_every: float | timedelta | None = None,
    only_if: OnlyIf | None = None,
    expire_in: float | timedelta | None = None,
) -> Update | bool:
    """Restart lifetimes: of a row in memory, or of rows of a class or Table by a statement.

    ``touch(row)`` is the method ``row.touch()``, for rows of any class: the next flush writes it.
    ``touch(WebSession).where(WebSession.id == key)`` is an UPDATE to execute. Like every UPDATE, it
    matches live rows only. ``result.rowcount`` is the number of rows that it renewed.

    With ``.returning(WebSession)`` every live row that the WHERE clause matches comes back, also
    one that a condition below leaves as it is. That distinguishes a session that was renewed a
    moment ago from one that has expired.

    Args:
        target: An object of a mapped class with a TTL; or a mapped class, an alias of one, or a
            Table.
        at_most_every: Seconds, or a timedelta. Rows that were written more recently are left alone.
            For an object in memory there is no statement then. If its data isn't in memory (after a
            commit), it is loaded first; an AsyncSession can't load it here, so the row is touched.
        only_if: With "longer" or "has_ttl", rows that never expire are left alone; with "no_ttl",
            all others. With "shorter", rows are left alone unless `expire_in` makes their life
            shorter.
        expire_in: For statements: the rows' new life in whole seconds, or a timedelta of them, as
            `expire_in` gives it to a row. With zero or less the rows expire at once.

    Returns:
        An UPDATE; for an object, whether its lifetime will be restarted.

    Raises:
        TTLConfigurationError: The target has no TTL of its own, or an argument is invalid.
        TTLError: The policy is one that writes don't extend, or has no lifetimes of rows' own.
        InvalidTTL: `expire_in` isn't whole, or is over 2147483647.
    """
    if isinstance(target, (type, FromClause, AliasedClass)):
        if at_most_every is None and only_if is None and expire_in is None:
            return _plain_statement(target)
        return _statement(target, at_most_every, only_if, expire_in)
    if expire_in is not None:
        name = type(target).__name__
        raise TTLConfigurationError(
            f"touch() of an object of {name} doesn't accept expire_in: call expire_in(row, "
            f"seconds), or touch({name}, expire_in=...) for a statement."
        )
    return lifetime.touch(target, at_most_every=at_most_every, only_if=only_if)


class WrittenBefore(FunctionElement[bool]):
    """Whether a row was written at least so many seconds ago, or at an unknown time."""

    inherit_cache = True
    type = Boolean()
    _traverse_internals = [  # noqa: RUF012 (SQLAlchemy's)
        *FunctionElement._traverse_internals,  # noqa: SLF001 (a subclass's)
        ("instants", InternalTraversal.dp_plain_obj),
    ]

    def __init__(self, instants: Instants, column: SQL, ago: timedelta) -> None:
        seconds = ago.total_seconds()
        is_whole = seconds.is_integer()
        value = literal(int(seconds), BigInteger()) if is_whole else literal(seconds, Float(53))
        super().__init__(column, value)
        self.instants = instants

    def self_group(self, against: object = None) -> WrittenBefore:  # noqa: ARG002 (SQLAlchemy's signature)
        """Return the element itself: it is rendered in parentheses."""
        return self


@compiles(WrittenBefore)
def _render_written_before(element: WrittenBefore, compiler: SQLCompiler, **kw: object) -> str:
    column, seconds = element.clauses
    clock = clock_of(compiler.dialect)
    column_format = element.instants.on(clock)
    moment = clock.literal(clock.now_at_write) - clock.span(seconds)
    condition = column_format.reached(column, moment)
    if element.instants.column.nullable or not element.instants.native:
        condition = or_(condition, column_format.instant(column).is_(None))
    return f"({compiler.process(condition, **kw)})"


class _Rows(NamedTuple):
    """The entity of the UPDATE, its table or alias, the policy, and the conditions of a join."""

    entity: Any
    source: FromClause
    binding: Binding
    joined: tuple[ColumnElement[bool], ...] = ()


def _rows_of(target: Any, name: str) -> _Rows:
    """Return the rows to update for a target.

    For a joined subclass, update its root, which has the columns, joined to the target.
    """
    mapper: Mapper[Any] | None = None
    source: Any = target
    if not isinstance(target, FromClause):
        mapper = mapper_of(target) if isinstance(target, type) else inspect(target).mapper
        source = mapper and (
            mapper.local_table if isinstance(target, type) else inspect(target).selectable
        )
    binding = binding_of_source(source)
    if binding is not None:
        return _Rows(target, source, binding)
    table = table_of(source)
    rule = rule_of(table)
    if rule is not None:
        raise rule.rejected("lifetime", name)
    sub = sub_binding_of(table)
    if sub is None:
        raise without_ttl(name)
    root = sub.base.table
    if mapper is None:
        return _Rows(root, root, sub.base, tuple(own == key for own, key in sub.keys_of(source)))
    if not isinstance(target, type):
        raise TTLConfigurationError(
            f"touch() doesn't accept an alias of {name}, whose lifetime is in table "
            f"{root.fullname!r}: pass the class."
        )
    lineage = [base for base in mapper.iterate_to_root() if base.local_table is not root]
    joined = [base.inherit_condition for base in lineage if base.inherit_condition is not None]
    if mapper.single and mapper.polymorphic_on is not None:
        kinds = [kind.polymorphic_identity for kind in mapper.self_and_descendants]
        joined.append(mapper.polymorphic_on.in_(kinds))
    return _Rows(mapper.base_mapper.class_, root, sub.base, tuple(joined))


def _plain_statement(target: object) -> Update:
    """Return the UPDATE without conditions; a mapper remembers it, as it takes 25 µs to make."""
    mapper = mapper_of(target) if isinstance(target, type) else None
    if mapper is None:
        return _statement(target, None, None, None)
    memo, binding = memo_of(mapper), root_binding_of(mapper.local_table)
    known: tuple[Binding | None, Update] | None = memo.get(_STATEMENT)
    if known is None or known[0] is not binding:
        known = memo[_STATEMENT] = binding, _statement(target, None, None, None)
    return known[1]


def _statement(
    target: object,
    at_most_every: float | timedelta | None,
    only_if: OnlyIf | None,
    life: float | timedelta | None,
) -> Update:
    name = target_name(target)
    entity, source, binding, joined = _rows_of(target, name)
    columns = binding.columns_of(source)
    seconds = None
    if life is None:
        lifetime.check_extended(name, binding)
        new = replace(columns, last_modified=binding.instants.stored(Stamp()))
    else:
        lifetime.check_written(name, "expire_in()", binding)
        field = binding.last_modified if binding.override is None else binding.override
        where = f"{name}.{field.key}"
        seconds = life_seconds(life, where=where)
        own, stamp = lifetime.values_for_life(name, binding, seconds, where)
        new = replace(columns, last_modified=stamp)
        if columns.override is not None:
            override = literal(own, columns.override.type)
            new = replace(columns, last_modified=binding.instants.stored(stamp), override=override)
    before_and_after = zip(columns.present(), new.present(), strict=True)
    values = {column: value for column, value in before_and_after if value is not column}
    conditions: list[ColumnElement[bool]] = []
    if at_most_every is not None:
        if not binding.stamps:
            raise TTLError(
                f"{name}.touch(at_most_every=...): with {binding.policy!r}, no column records "
                "when a row was last written; leave at_most_every out."
            )
        apart = interval(at_most_every)
        conditions.append(WrittenBefore(binding.instants, columns.last_modified, apart))
    if only_if is not None:
        check_only_if(only_if)
        conditions.append(_change_is(only_if, binding, columns, new, seconds))
    statement = update(entity)
    if joined:
        statement = statement.where(*joined)
    if conditions:
        granted = and_(*conditions)
        statement = statement.where(Granted(granted))
        values = {column: IfGranted(granted, value, column) for column, value in values.items()}
    return statement.values(values)


def _change_is(
    only_if: OnlyIf,
    binding: Binding,
    columns: SourceColumns,
    new: SourceColumns,
    seconds: int | None,
) -> ColumnElement[bool]:
    """Return `ttl_odm.core.lifetime.grants` in SQL; a touch always makes an end later."""
    end: SQL = ExpiresAt(binding, columns)
    if only_if == "has_ttl":
        return end.is_not(None)
    if only_if == "no_ttl":
        return end.is_(None)
    if seconds is None and only_if == "shorter":
        return false()
    if seconds is None and binding.max_lifetime is None:
        return end.is_not(None)
    has_limit = seconds is None or binding.max_lifetime is not None
    new_end: SQL = ExpiresAt(binding, new) if has_limit else Ago(-(seconds or 0))
    return new_end > end if only_if == "longer" else or_(end.is_(None), new_end < end)
