"""What `partition=` of an operation means for its table, before any database is changed.

An operation knows a table by its name, and by what the database says of its columns. So a stand-in
for the model's table is made of these, and goes through the rules for tables that are declared:
what may be cut, and by which column, is said in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, DateTime, MetaData, Table

from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.partitions.sqlalchemy.layout import partitioning_of
from ttl_odm.sqlalchemy.policy.bindings import Binding, MaxLifetime
from ttl_odm.sqlalchemy.policy.sources import DefaultTTL
from ttl_odm.sqlalchemy.time.instants import instants_of

if TYPE_CHECKING:
    from ttl_odm.alembic.reflection import ExistingSchema
    from ttl_odm.alembic.target_schema import TargetSchema
    from ttl_odm.partitions import Partitions


def stand_in(
    target: TargetSchema, existing: ExistingSchema, declared: Partitions, where: str
) -> Binding:
    """The policy of a table, with how it is to be cut.

    Its keys are not the model's: what has to be unique is for the database to say.

    Raises:
        MigrationRefusedError: A table with this policy, or with such a column, can't be cut.
    """
    policy = target.policy
    columns = dict(existing.columns)
    dates = policy.created if isinstance(policy, TTL) else policy.field
    if not columns and dates is not None:  # a script knows the names only
        columns[dates] = Column(dates, BigInteger() if policy.unit else DateTime(timezone=True))
    if dates is not None and dates not in columns:
        raise MigrationRefusedError(
            f"Table {target.label} has no column {dates!r}; it has {', '.join(columns)}."
        )
    # Without keys: the operation makes the primary key what it has to be.
    copies: list[Column[Any]] = [Column(name, column.type) for name, column in columns.items()]
    table = Table(target.table.name, MetaData(), *copies, schema=target.table.schema)
    owner = type(target.table.name, (), {"__ttl__": policy})
    try:
        limit, stamp = None, target.last_modified
        if dates is not None:
            column = table.c[dates]
            instants = instants_of(column, policy.timezone, policy.unit, where)
            if not isinstance(policy, TTL):
                stamp = column
            elif policy.max_lifetime is not None:
                limit = MaxLifetime(column, instants, policy.max_lifetime)
        binding = Binding(
            table=table,
            last_modified=stamp,
            override=None,
            default=DefaultTTL(owner, policy),
            policy=policy,
            instants=instants_of(stamp, policy.timezone, None if limit else policy.unit, where),
            max_lifetime=limit,
        )
        binding.layout = partitioning_of(binding, declared, where)
    except TTLConfigurationError as error:
        raise MigrationRefusedError(str(error)) from error
    return binding
