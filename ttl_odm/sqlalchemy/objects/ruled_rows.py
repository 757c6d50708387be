"""Objects of tables with a rule: memory doesn't know their ends, so the database is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Table, select
from sqlalchemy.orm import object_session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.gate import functions
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.policy.rules import rule_of

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Mapper

    from ttl_odm.sqlalchemy.policy.rules import Rule

_TABLES: Final = "ttl_odm_tables"


def tables_of(mapper: Mapper[Any]) -> list[Table]:
    """The tables in what a class is mapped to: a join or a subquery."""
    memo = compat.memo_of(mapper)
    if _TABLES not in memo:
        elements = visitors.iterate(mapper.local_table)
        memo[_TABLES] = [element for element in elements if isinstance(element, Table)]
    tables: list[Table] = memo[_TABLES]
    return tables


def has_rule(mapper: Mapper[Any]) -> bool:
    """Whether the rows of a class expire by a rule, so that memory knows no ends of theirs.

    To be asked where `lifetime_of` says None.
    """
    info = getattr(mapper.local_table, "info", None)
    if info is None:
        return any(rule_of(table) is not None for table in tables_of(mapper))
    return bool(info) and rule_of(mapper.local_table) is not None


def end_by_rule(row: object, mapper: Mapper[Any], rule: Rule) -> datetime | None:
    """The instant at which a row expires with its parent; None for never, or without a parent."""
    end: datetime | None = _asked(row, mapper, rule, functions.expires_at(mapper.local_table))
    return end


def is_expired_by_rule(row: object, mapper: Mapper[Any], rule: Rule) -> bool:
    """Whether a row has expired with its parent."""
    return bool(_asked(row, mapper, rule, functions.expired(mapper.local_table)))


def _asked(row: object, mapper: Mapper[Any], rule: Rule, what: ColumnElement[Any]) -> Any:
    session = object_session(row)
    if session is None or not instance_state(row).has_identity:
        raise rule.rejected("unread", type(row).__name__)
    key = zip(mapper.primary_key, mapper.primary_key_from_instance(row), strict=True)
    answer = select(what).select_from(mapper.local_table).options(include_expired())
    return session.scalar(answer.where(*(column == value for column, value in key)))
