"""Objects whose rows follow others: memory doesn't know their ends, so the database is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Table, select
from sqlalchemy.orm import object_session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import visitors

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.gate import functions
from ttl_odm.sqlalchemy.policy.following import following_of
from ttl_odm.sqlalchemy.policy.parameters import include_expired

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Mapper

_TABLES: Final = "ttl_odm_tables"


def tables_of(mapper: Mapper[Any]) -> list[Table]:
    """The tables in what a class is mapped to: a join or a subquery."""
    memo = compat.memo_of(mapper)
    if _TABLES not in memo:
        elements = visitors.iterate(mapper.local_table)
        memo[_TABLES] = [element for element in elements if isinstance(element, Table)]
    tables: list[Table] = memo[_TABLES]
    return tables


def follows(mapper: Mapper[Any]) -> bool:
    """Whether a class has no lifetime because its rows follow others, of which memory knows none.

    To be asked where `lifetime_of` says None.
    """
    info = getattr(mapper.local_table, "info", None)
    if info is None:
        return any(following_of(table) is not None for table in tables_of(mapper))
    return bool(info) and following_of(mapper.local_table) is not None


def end_of_parent(row: object, mapper: Mapper[Any]) -> datetime | None:
    """The instant at which the parent of a row expires; None for never, and for an orphan."""
    end: datetime | None = _asked(row, mapper, functions.expires_at(mapper.local_table))
    return end


def is_expired_by_parent(row: object, mapper: Mapper[Any]) -> bool:
    """Whether the parent of a row has expired; of an orphan what `Follows.orphan` says."""
    return bool(_asked(row, mapper, functions.expired(mapper.local_table)))


def _asked(row: object, mapper: Mapper[Any], what: ColumnElement[Any]) -> Any:
    session = object_session(row)
    if session is None or not instance_state(row).has_identity:
        raise TTLConfigurationError(
            f"{type(row).__name__} follows its parent, and the end of a row that is in no session, "
            "or wasn't flushed yet, can't be asked for."
        )
    key = zip(mapper.primary_key, mapper.primary_key_from_instance(row), strict=True)
    found = select(what).select_from(mapper.local_table).options(include_expired())
    return session.scalar(found.where(*(column == value for column, value in key)))
