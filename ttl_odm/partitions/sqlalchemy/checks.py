"""What `ttl-odm check` reports of a table that is declared with partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.partitions.dialects import partition_ddl
from ttl_odm.partitions.dialects.ddl import HINDRANCES
from ttl_odm.partitions.sqlalchemy.catalogue import read_leaves
from ttl_odm.partitions.sqlalchemy.layout import partitioning_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.sqlalchemy.policy.rules import Checked
    from ttl_odm.sweeper.findings import Finding


def partitions(checked: Checked) -> Iterator[Finding]:
    """See that a table is cut as it is declared, and that its partitions can go."""
    partitioning, dialect = partitioning_on(checked.binding), checked.dialect.name
    if partitioning is None or partition_ddl(dialect) is None:
        return
    column, span = partitioning.column.name, partitioning.declared.span
    leaves = read_leaves(checked.connection, checked.binding)
    if leaves is None:
        by = "RANGE COLUMNS" if dialect in MYSQL_FAMILY else "RANGE"
        yield checked.warning(
            "not-partitioned",
            f"it is declared with Partitions({span!r}), but isn't partitioned by {column} in "
            "the database: its rows are deleted in batches",
            f"recreate it with PARTITION BY {by} ({column}), or remove __ttl_partition__",
        )
        return
    missing = [leaf.name for leaf in leaves.missing()]
    if missing:
        yield checked.warning(
            "missing-partitions",
            f"{len(missing):,} of its partitions don't exist yet, the first is {missing[0]}: rows "
            "for it go to the default partition, or are rejected",
            f"ttl-odm sweep --model {checked.model}",
        )
    for hindrance in sorted({leaf.hindrance for leaf in leaves.every if leaf.hindrance}):
        yield checked.warning(
            "partitions-stay",
            "its partitions are not dropped, but rows are deleted in batches: "
            f"{HINDRANCES[hindrance]}",
            "see docs/partitions.md for what is deleted in batches",
        )
