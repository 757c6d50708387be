"""The predicate and the expiry for users, as SQL: `live`, `expired`, `expires_at`.

The expressions are independent of the database. Each becomes that of the gate when it is compiled,
so an expression that a user selects and one that the gate adds can't differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, ColumnElement, FromClause, false, func, inspect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.sqlalchemy.compat import leaves, mapper_of, table_of
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.rewrite.from_clauses import (
    binding_of_source,
    statement_rule_of,
    target_name,
    without_ttl,
)
from ttl_odm.sqlalchemy.time.clock import LastModified, UnwrappedConfigurationError, clock_of

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import SourceColumns
    from ttl_odm.sqlalchemy.rewrite.statement_rules import Asked


class Live(FunctionElement[bool]):
    """True for live rows of one FROM element, false for expired ones."""

    inherit_cache = True
    type = Boolean()

    def __init__(self, binding: Binding, columns: SourceColumns) -> None:
        """Take the columns as arguments, so that aliasing and cache keys include them."""
        super().__init__(*columns.present())
        self.binding = binding


class Expired(Live):
    """True for expired rows, false for live ones."""

    inherit_cache = True


class ExpiresAt(FunctionElement[Any]):
    """The instant at which a row expires; NULL for never."""

    inherit_cache = True
    type = LastModified()

    def __init__(self, binding: Binding, columns: SourceColumns) -> None:
        super().__init__(*columns.present())
        self.binding = binding


@compiles(Live)
@compiles(Expired)
def _render_live(element: Live, compiler: SQLCompiler, **kw: object) -> str:
    predicate = Predicate(clock_of(compiler.dialect))
    make = predicate.expired if isinstance(element, Expired) else predicate.live
    # For a NULL ttl the predicate is NULL instead of false. That is the same in WHERE, but not
    # when it is selected or negated.
    return render(func.coalesce(make(*_bound_now(element)), false()), compiler, kw)


@compiles(ExpiresAt)
def _render_expires_at(element: ExpiresAt, compiler: SQLCompiler, **kw: object) -> str:
    predicate = Predicate(clock_of(compiler.dialect))
    return render(predicate.expires_at(*_bound_now(element)), compiler, kw)


def _bound_now(element: Live | ExpiresAt) -> tuple[Binding, SourceColumns]:
    """Return the current policy of the table; an expression may be older than `enable`."""
    then = element.binding
    now = binding_of(then.table)
    if now is None or now.default.shape != then.default.shape:
        raise UnwrappedConfigurationError(
            f"live(), expired() or expires_at() of {then.name} was made for "
            f"{then.default.shape!r}, but the table has "
            f"{'no policy' if now is None else repr(now.default.shape)} now: create the "
            "expression again."
        )
    return now, then.columns_from(list(element.clauses))


def render(expression: ColumnElement[Any], compiler: SQLCompiler, kw: dict[str, object]) -> str:
    """Render the SQL that one of these elements stands for."""
    kw.pop("add_to_result_map", None)  # the element itself is the result column, not its parts
    return str(compiler.process(expression.self_group(operators.and_), **kw))


def live(target: object) -> ColumnElement[bool]:
    """Return the predicate for live rows of a class, an alias or a Table.

    Statements on a TTL table have it anyway. Use this to select it, or in statements with
    ``include_expired``.

    Raises:
        TTLConfigurationError: The target has no TTL.
    """
    return _expression(target, Live, "live")


def expired(target: object) -> ColumnElement[bool]:
    """Return the opposite of `live`: true for expired rows that have not been purged yet.

    Use it with ``include_expired``, or the statement returns no rows.

    Raises:
        TTLConfigurationError: The target has no TTL.
    """
    return _expression(target, Expired, "expired")


def expires_at(target: object) -> ColumnElement[datetime | None]:
    """Return the instant at which a row expires, as SQL (aware, UTC in results; None for never).

    Raises:
        TTLConfigurationError: The target has no TTL.
    """
    return _expression(target, ExpiresAt, "expires_at")


def _expression(target: object, make: type[Live | ExpiresAt], name: Asked) -> ColumnElement[Any]:
    source = target if isinstance(target, FromClause) else None
    if source is None and (not isinstance(target, type) or mapper_of(target) is not None):
        source = inspect(target).selectable
    # The first one is enough: in the join of a joined subclass, its base has the columns.
    for candidate in () if source is None else leaves(source):
        binding = binding_of_source(candidate)
        if binding is not None:
            return make(binding, binding.columns_of(candidate))
        rule = statement_rule_of(table_of(candidate))
        if rule is not None:
            return rule.expression(name, candidate)
    raise without_ttl(target_name(target))
