"""Autogenerate and ``alembic check``: the models' ``__ttl__`` against what the database has.

Alembic compares columns and indexes by itself, knows nothing of partial or virtual ones, and
would write a dozen loose lines that lock the table. This runs after it, takes those lines out
and puts one operation in their place; where Alembic saw nothing (an index that is not valid, one
that it can't reflect) it adds one. The sweeper's lease table is nobody's mistake either.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import alembic.util
from alembic.autogenerate import comparators
from alembic.operations import ops
from sqlalchemy import MetaData, Table

from ttl_odm.alembic.enforcement import enforced_defaults
from ttl_odm.alembic.operations import AddTTLOp, AlterTTLOp, DropTTLOp
from ttl_odm.alembic.progress import PROGRESS_TABLE
from ttl_odm.alembic.reflection import look
from ttl_odm.alembic.target_schema import LAST_MODIFIED, OWN_TTL, Wanted
from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END
from ttl_odm.sqlalchemy.policy.binding import INFO_KEY, Binding, binding_of
from ttl_odm.sqlalchemy.sweep.leases import NAME as LEASE_TABLE
from ttl_odm.sqlalchemy.time.column_types import Seconds

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

    from ttl_odm.alembic.reflection import Found

_OURS: Final = (LEASE_TABLE, PROGRESS_TABLE)

# Alembic 1.18 runs comparisons by priority; before, in the order in which they were registered.
_LAST: Final[dict[str, Any]] = (
    {"priority": alembic.util.DispatchPriority.LAST}
    if hasattr(alembic.util, "DispatchPriority")
    else {}
)


# SQLAlchemy and Alembic say of each expression index on SQLite that they can't see it. Ours is
# compared below, so the reader of a migration's output need not worry about it.
for _said in (
    "Skipped unsupported reflection of expression-based index ix_.*_ttl_(own|inherited)",
    "autogenerate skipping .*expression-based index 'ix_.*_ttl_(own|inherited)'",
):
    warnings.filterwarnings("ignore", message=_said)


@comparators.dispatch_for("schema", **_LAST)
def _compare(
    autogen_context: AutogenContext, upgrade_ops: ops.UpgradeOps, schemas: set[str | None]
) -> None:
    _Comparison(autogen_context, upgrade_ops, schemas).run()


class _Comparison:
    """One run over one database."""

    def __init__(
        self, context: AutogenContext, upgrade: ops.UpgradeOps, schemas: set[str | None]
    ) -> None:
        self._context = context
        self._upgrade = upgrade
        self._schemas = schemas
        assert context.connection is not None  # noqa: S101 (autogenerate is never offline)
        self._connection = context.connection
        self._default_schema = context.dialect.default_schema_name

    def run(self) -> None:
        self._ignore_our_tables()
        for each in self._upgrade.ops:
            if isinstance(each, ops.CreateTableOp):
                # Alembic writes a table's info into the revision; our policy is no Python text.
                each.info = {
                    key: value for key, value in (each.info or {}).items() if key != INFO_KEY
                }
        declared = {self._key(table): table for table in self._context.sorted_tables}
        for key, table in declared.items():
            binding = binding_of(table)
            if binding is not None and _is_of_the_contract(binding):
                self._compare_declared(key, table, binding)
        for each in list(self._upgrade.ops):
            if isinstance(each, ops.ModifyTableOps):
                self._compare_undeclared(each)
                self._compare_dates(each, declared.get((each.schema, each.table_name)))
            elif isinstance(each, ops.DropTableOp):
                self._compare_dropped(each)

    def _key(self, table: Table) -> tuple[str | None, str]:
        schema = None if table.schema == self._default_schema else table.schema
        return schema, table.name

    def _ignore_our_tables(self) -> None:
        declared = {table.name for table in self._context.sorted_tables}
        ignored = [name for name in _OURS if name not in declared]
        self._upgrade.ops[:] = [
            each
            for each in self._upgrade.ops
            if not isinstance(each, (ops.DropTableOp, ops.ModifyTableOps))
            or each.table_name not in ignored
        ]

    # --- tables that declare a policy ------------------------------------------------------

    def _compare_declared(
        self, key: tuple[str | None, str], table: Table, binding: Binding
    ) -> None:
        wanted = Wanted.of(table.name, TTL(binding.default()), table.schema)
        for each in self._upgrade.ops:
            if isinstance(each, ops.CreateTableOp) and _creates(each, key):
                self._add_to_created(each, wanted, binding)
                return
        if key[0] not in self._schemas or not self._context.inspector.has_table(
            table.name, schema=key[0]
        ):
            return
        found = look(self._connection, wanted)
        op = _difference(wanted, binding, found, self._enforced(wanted))
        changed = self._modifications(key)
        position = len(self._upgrade.ops)
        for each in changed:
            position = self._strip(each, wanted) + 1
        if op is not None and (changed or self._is_included(table, key)):
            self._upgrade.ops.insert(min(position, len(self._upgrade.ops)), op)

    def _add_to_created(self, created: ops.CreateTableOp, wanted: Wanted, binding: Binding) -> None:
        """A new table gets its TTL by the same operation, in the same transaction."""
        created.columns = _without(created.columns, wanted)
        for each in self._modifications(
            (created.schema, created.table_name), also=wanted.table.schema
        ):
            self._strip(each, wanted)
        op = AddTTLOp(
            wanted.table.name,
            binding.default(),
            wanted.table.schema,
            sweep=binding.sweep,
            in_transaction=True,
        )
        self._upgrade.ops.insert(self._upgrade.ops.index(created) + 1, op)

    def _enforced(self, wanted: Wanted) -> set[str]:
        if self._connection.dialect.name != "postgresql":
            return set()
        return enforced_defaults(self._connection, wanted)

    def _is_included(self, table: Table, key: tuple[str | None, str]) -> bool:
        """Ask the filters of env.py about a table of which Alembic had nothing to say."""
        schema, name = key
        if not self._context.run_name_filters(name, "table", {"schema_name": schema}):
            return False
        reflected = Table(name, MetaData(), schema=schema)
        self._context.inspector.reflect_table(reflected, None, resolve_fks=False)
        return self._context.run_object_filters(table, name, "table", False, reflected)  # noqa: FBT003

    # --- tables that don't, or are no longer there -----------------------------------------

    def _compare_undeclared(self, modified: ops.ModifyTableOps) -> None:
        names = {each.column_name for each in modified.ops if isinstance(each, ops.DropColumnOp)}
        wanted = Wanted.of(modified.table_name, TTL(None), modified.schema)
        if wanted.last_modified.name not in names:
            return
        found = look(self._connection, wanted)
        if found.check == "missing":
            return  # A column of that name, but not one that TTL has put there.
        keep_ttl = wanted.own_ttl.name not in names
        position = self._upgrade.ops.index(modified)
        self._strip(modified, wanted)
        self._upgrade.ops.insert(position, _removed(wanted, found, keep_ttl=keep_ttl))

    def _compare_dates(self, modified: ops.ModifyTableOps, table: Table | None) -> None:
        """The index of `ExpireAt` and `ExpireAfter`, which Alembic would add under a lock."""
        key = (modified.schema, modified.table_name)
        if modified not in self._upgrade.ops or any(
            (isinstance(each, ops.CreateTableOp) and _creates(each, key))
            or (isinstance(each, ops.DropTableOp) and (each.schema, each.table_name) == key)
            for each in self._upgrade.ops
        ):
            return
        for line in list(modified.ops):
            op = _over_dates(line, table, modified.schema)
            if op is not None:
                modified.ops.remove(line)
                self._upgrade.ops.insert(self._upgrade.ops.index(modified) + 1, op)
        if not modified.ops:
            self._upgrade.ops.remove(modified)

    def _compare_dropped(self, dropped: ops.DropTableOp) -> None:
        """So that the downgrade creates the table with its TTL again."""
        wanted = Wanted.of(dropped.table_name, TTL(None), dropped.schema)
        reverse = dropped._reverse  # noqa: SLF001 (what the downgrade will be)
        names = {getattr(each, "name", None) for each in reverse.columns} if reverse else set()
        if reverse is None or wanted.last_modified.name not in names:
            return
        found = look(self._connection, wanted)
        if found.check == "missing":
            return
        reverse.columns = _without(reverse.columns, wanted)
        for each in self._modifications((dropped.schema, dropped.table_name)):
            self._strip(each, wanted)
        op = _removed(wanted, found, keep_ttl=False, in_transaction=True)
        self._upgrade.ops.insert(self._upgrade.ops.index(dropped), op)

    # --- Alembic's own lines ---------------------------------------------------------------

    def _modifications(
        self, key: tuple[str | None, str], *, also: str | None = None
    ) -> list[ops.ModifyTableOps]:
        return [
            each
            for each in self._upgrade.ops
            if isinstance(each, ops.ModifyTableOps)
            and each.table_name == key[1]
            and each.schema in (key[0], also)
        ]

    def _strip(self, modified: ops.ModifyTableOps, wanted: Wanted) -> int:
        """Take out what the operation does itself; return where the table's lines end."""
        modified.ops[:] = [each for each in modified.ops if not _is_ours(each, wanted)]
        position = self._upgrade.ops.index(modified)
        if modified.ops:
            return position
        del self._upgrade.ops[position]
        return position - 1


def _is_of_the_contract(binding: Binding) -> bool:
    """Whether TTL brought the columns with it; to other columns Alembic sees by itself."""
    own = binding.override
    return (
        isinstance(binding.policy, TTL)
        and (binding.last_modified.name, own is not None and own.name) == (LAST_MODIFIED, OWN_TTL)
        and binding.instants.native
        and own is not None
        and isinstance(own.type, Seconds)
    )


def _over_dates(op: Any, table: Table | None, schema: str | None) -> Any:
    """The operation in place of a loose line about the index of dates; None for other lines."""
    if not isinstance(op, (ops.CreateIndexOp, ops.DropIndexOp)):
        return None
    columns = [str(getattr(each, "name", each)) for each in op.to_index().expressions]
    if len(columns) != 1:
        return None
    name = str(op.table_name)
    wanted = Wanted.of(name, ExpireAt(columns[0]), schema)
    if op.index_name not in wanted.index_names:
        return None
    binding = None if table is None else binding_of(table)
    policy: Any = wanted.policy
    if binding is not None and not isinstance(binding.policy, TTL):
        policy = binding.default.policy
    elif binding is not None and binding.max_lifetime is not None:
        policy = ExpireAfter(columns[0], binding.max_lifetime.seconds)
    if isinstance(op, ops.DropIndexOp):
        return DropTTLOp(name, policy, schema)
    return AddTTLOp(name, policy, schema)


def _creates(op: ops.CreateTableOp, key: tuple[str | None, str]) -> bool:
    # Alembic keeps the name of the default schema where the metadata says it.
    return op.table_name == key[1] and (op.schema == key[0] or key[0] is None)


def _without(columns: Any, wanted: Wanted) -> list[Any]:
    names = {*wanted.table.c.keys(), INHERITED_END, OWN_END, wanted.check_name}
    return [each for each in columns if getattr(each, "name", None) not in names]


def _is_ours(op: Any, wanted: Wanted) -> bool:
    columns = {*wanted.table.c.keys(), INHERITED_END, OWN_END}
    if isinstance(op, ops.AddColumnOp):
        return op.column.name in columns
    if isinstance(op, (ops.DropColumnOp, ops.AlterColumnOp)):
        return op.column_name in columns
    if isinstance(op, (ops.CreateIndexOp, ops.DropIndexOp)):
        return op.index_name in wanted.index_names
    return False


def _difference(
    wanted: Wanted, binding: Binding, found: Found, enforced: set[str]
) -> AddTTLOp | AlterTTLOp | None:
    """The operation that makes the table what the model says; None where it is."""
    name, schema, default = wanted.table.name, wanted.table.schema, binding.default()
    if wanted.last_modified.name not in found.columns:
        kept = wanted.own_ttl.name in found.columns
        return AddTTLOp(name, default, schema, sweep=binding.sweep, keep_ttl=kept)
    valid = [found.has_index(each) for each in wanted.index_names]
    any_there = bool(found.virtual) or any(each in found.indexes for each in wanted.index_names)
    op = AlterTTLOp(name, default, schema, existing_ttl=default)
    if binding.sweep == "index" and not all(valid):
        op.sweep, op.existing_sweep = "index", "index" if any_there else "scan"
    elif binding.sweep == "scan" and any_there:
        op.sweep, op.existing_sweep = "scan", "index"
    elif enforced - {str(default)}:
        op.existing_ttl = _as_default(min(enforced - {str(default)}))
    elif found.check == "there" and found.stamps:
        return None
    return op


def _as_default(written: str) -> int | None:
    return None if written == "None" else int(written)


def _removed(
    wanted: Wanted, found: Found, *, keep_ttl: bool, in_transaction: bool = False
) -> DropTTLOp:
    name, schema = wanted.table.name, wanted.table.schema
    indexed = any(each in found.indexes for each in wanted.index_names)
    added = AddTTLOp(
        name,
        None,
        schema,
        sweep="index" if indexed else "scan",
        keep_ttl=keep_ttl,
        in_transaction=in_transaction,
    )
    return DropTTLOp(
        name, schema=schema, keep_ttl=keep_ttl, in_transaction=in_transaction, added=added
    )
