"""Autogenerate and ``alembic check``: the models' ``__ttl__`` against what the database has.

Alembic's own comparison doesn't know partial indexes and virtual columns, and would write a dozen
separate operations that lock the table. This comparison runs after it and replaces these operations
by one. Where Alembic sees no difference (an invalid index, one that it can't reflect), this adds an
operation. Tables of ours that no model declares, such as the sweepers' lease table, are left alone.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import alembic.util
from alembic.autogenerate import comparators
from alembic.operations import ops
from sqlalchemy import CheckConstraint, MetaData, Table, UniqueConstraint
from sqlalchemy.schema import ColumnCollectionConstraint

from ttl_odm.alembic.aspects import (
    aspect_of,
    in_database,
    of_table,
    of_tables,
    on_table,
    seconds_of,
)
from ttl_odm.alembic.link_comparison import LinkComparison, compared_links
from ttl_odm.alembic.operations import AddTTLOp, AlterTTLOp, Declared, DropTTLOp
from ttl_odm.alembic.progress import PROGRESS_TABLE
from ttl_odm.alembic.reflection import read_schema
from ttl_odm.alembic.target_schema import TargetSchema, adds_columns, is_of_sweeper
from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt, default_extension
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END
from ttl_odm.sqlalchemy.policy.bindings import INFO_KEY, binding_of
from ttl_odm.sqlalchemy.policy.references import RULE_KEY, index_link
from ttl_odm.sqlalchemy.policy.schema import LOOKED_UP, default_now, whole_policy
from ttl_odm.sqlalchemy.sweep.leases import NAME as LEASE_TABLE
from ttl_odm.sqlalchemy.time.clock import LastModified, Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alembic.autogenerate.api import AutogenContext
    from alembic.runtime.environment import NameFilterParentNames
    from sqlalchemy.schema import SchemaItem

    from ttl_odm.alembic.aspects import Aspect, IsTable
    from ttl_odm.alembic.link_comparison import Key
    from ttl_odm.alembic.reflection import ExistingSchema
    from ttl_odm.core.extension import DefaultExtension
    from ttl_odm.core.policy import Policy
    from ttl_odm.sqlalchemy.policy.bindings import Binding

_OURS: Final = (LEASE_TABLE, PROGRESS_TABLE)
"""Tables of ours, which exist although no model declares them."""
_HIDDEN: Final = ("index", "column")
_POLICY_KEYS: Final = (INFO_KEY, RULE_KEY)
_RENDER_ITEM: Final = "render_item"

# Alembic 1.18 runs comparisons by priority, earlier releases in the order of their registration.
_FIRST: dict[str, Any]
_LAST: dict[str, Any]
_FIRST, _LAST = (
    {"priority": getattr(alembic.util.DispatchPriority, name)}
    if hasattr(alembic.util, "DispatchPriority")
    else {}
    for name in ("FIRST", "LAST")
)


# SQLAlchemy and Alembic warn that they can't reflect expression indexes on SQLite. Ours are
# compared below, so these warnings would only worry the user.
for _message in (
    "Skipped unsupported reflection of expression-based index ix_.*_ttl_(own|inherited)",
    "autogenerate skipping .*expression-based index 'ix_.*_ttl_(own|inherited)'",
):
    warnings.filterwarnings("ignore", message=_message)


@comparators.dispatch_for("schema", **_FIRST)
def _prepare(
    autogen_context: AutogenContext, _upgrade_ops: ops.UpgradeOps, _schemas: set[str | None]
) -> None:
    """Hide tables, indexes and columns of ours from Alembic, and import our types in revisions.

    Alembic would log that they were changed or removed: it can't match an expression with the
    database's form of it, and no model declares our tables, or the virtual columns of MariaDB and
    MySQL.
    """
    for table in autogen_context.sorted_tables:
        index_link(table)
    declared = {table.name for table in autogen_context.sorted_tables}
    of_extensions = _tables_of_extensions(autogen_context)
    ours = {
        (_schema_key(autogen_context, table.schema), table.name, name)
        for table in autogen_context.sorted_tables
        for name in (*_compared_names(table), *compared_links(autogen_context, table))
    }

    def is_compared_below(name: str | None, schema: str | None, table: str | None) -> bool:
        return (_schema_key(autogen_context, schema), table, name) in ours

    def is_table_of_ours(name: str | None, schema: str | None) -> bool:
        if name is None:
            return False
        key = _schema_key(autogen_context, schema)
        return (name in _OURS and name not in declared) or any(
            is_table(key, name) for is_table in of_extensions
        )

    def by_name(name: str | None, kind: str, parents: NameFilterParentNames) -> bool:
        if kind == "table":
            return not is_table_of_ours(name, parents["schema_name"])
        return kind not in _HIDDEN or not is_compared_below(
            name, parents["schema_name"], parents["table_name"]
        )

    def by_object(item: Any, name: str | None, kind: str, *_: object) -> bool:
        if kind == "table":
            return not is_table_of_ours(name, item.schema)
        if kind not in _HIDDEN:
            return True
        return not is_compared_below(name, item.table.schema, item.table.name)

    # These have the effect of include_name and include_object in env.py.
    autogen_context._name_filters.append(by_name)  # noqa: SLF001
    autogen_context._object_filters.append(by_object)  # noqa: SLF001
    _import_for_types(autogen_context)


if not _FIRST:  # Alembic has registered its own before
    _registered: list[Any] = comparators._registry["schema", "default"]  # noqa: SLF001
    _registered.insert(0, _registered.pop())


def _schema_key(context: AutogenContext, schema: str | None) -> str | None:
    """Return a table's schema; None for the connection's own."""
    return None if schema == context.dialect.default_schema_name else schema


def _import_for_types(autogen_context: AutogenContext) -> None:
    """Let a revision that names a type of ours import `ttl_odm.alembic`.

    A policy may use one of the mixin's columns without the other (``TTL(3600, override=None)``,
    ``TTL(3600, last_modified="issued_at")``). Alembic's own operations add such a column.
    """
    configured = autogen_context.opts.get(_RENDER_ITEM)

    def render(kind: str, item: object, context: AutogenContext) -> str | Literal[False]:
        rendered: str | Literal[False] = configured(kind, item, context) if configured else False
        if rendered is False and isinstance(item, (LastModified, Seconds)):
            context.imports.add("import ttl_odm.alembic")
        return rendered

    # Wraps env.py's own render_item, which goes first.
    autogen_context.opts = {**autogen_context.opts, _RENDER_ITEM: render}


def _tables_of_extensions(context: AutogenContext) -> list[IsTable]:
    """Return what recognizes the extensions' own tables, which no model has to declare."""
    assert context.connection is not None  # noqa: S101 (autogenerate is never offline)
    bindings = filter(None, map(binding_of, context.sorted_tables))
    return [kind.tables(context.connection, context.sorted_tables) for kind in of_tables(bindings)]


def _compared_names(table: Table) -> Sequence[str]:
    """Return the names of the indexes that come with TTL's columns, and of the virtual columns."""
    binding = binding_of(table)
    if binding is None or not adds_columns(binding):
        return ()
    names = TargetSchema.of(table.name, TTL(None), table.schema).index_names
    return (*names, INHERITED_END, OWN_END)


@comparators.dispatch_for("schema", **_LAST)
def _compare(
    autogen_context: AutogenContext, upgrade_ops: ops.UpgradeOps, schemas: set[str | None]
) -> None:
    _Comparison(autogen_context, upgrade_ops, schemas).run()


class _Comparison:
    """One comparison of the models with a database."""

    def __init__(
        self, context: AutogenContext, upgrade: ops.UpgradeOps, schemas: set[str | None]
    ) -> None:
        self._context = context
        self._upgrade = upgrade
        self._schemas = schemas
        assert context.connection is not None  # noqa: S101 (autogenerate is never offline)
        self._connection = context.connection

    def run(self) -> None:
        for op in self._upgrade.ops:
            if isinstance(op, ops.CreateTableOp):
                # Alembic writes a table's info into the revision, and a policy isn't valid source.
                op.info = {
                    key: value for key, value in (op.info or {}).items() if key not in _POLICY_KEYS
                }
        declared = {
            (_schema_key(self._context, table.schema), table.name): table
            for table in self._context.sorted_tables
        }
        for key, table in declared.items():
            binding = binding_of(table)
            if binding is not None:
                compare = self._compare_columns if adds_columns(binding) else self._compare_notes
                compare(key, table, binding)
        for op in list(self._upgrade.ops):
            if isinstance(op, ops.ModifyTableOps):
                self._compare_removed(op)
                self._compare_date_index(op, declared.get((op.schema, op.table_name)))
            elif isinstance(op, ops.DropTableOp):
                self._compare_removed(op)
        for key, table in declared.items():
            binding = binding_of(table)
            if binding is not None and binding.layout is not None:
                self._compare_layout(key, table, binding)
        LinkComparison(self._connection, self._upgrade).run(
            declared,
            lambda key, table: self._exists(key) and self._is_included(key, table),
        )

    def _aspects(self, target: TargetSchema, binding: Binding) -> list[Aspect]:
        models = [binding.table.metadata]
        return on_table(of_table(binding), self._connection, target, models)

    # --- tables that declare a policy ------------------------------------------------------

    def _compare_columns(self, key: Key, table: Table, binding: Binding) -> None:
        """Compare a table that gets the contract's columns."""
        target = TargetSchema.of(table.name, whole_policy(binding), table.schema)
        for op in self._upgrade.ops:
            if isinstance(op, ops.CreateTableOp) and _creates(op, key):
                self._add_to_created(op, target, binding)
                return
        if not self._exists(key):
            return
        existing = read_schema(self._connection, target)
        aspects = self._aspects(target, binding)
        lacking = _lacking(aspects, binding)
        operation = _difference(target, binding, existing, aspects, lacking)
        if lacking:
            operation = operation or _unchanged(table, default_now(binding))
            for arguments in lacking:
                operation.change(arguments)
        changed = self._modifications(table.name, key[0])
        position = len(self._upgrade.ops)
        for modified in changed:
            position = self._strip(modified, target) + 1
        if operation is None:
            return
        if not changed and not self._is_included(key, table):
            return
        position = min(position, len(self._upgrade.ops))
        self._upgrade.ops.insert(position, operation)
        if isinstance(operation, AddTTLOp):
            self._move(changed, target, position + 1)

    def _compare_notes(self, key: Key, table: Table, binding: Binding) -> None:
        """Replace an older policy that the database holds for a table with dates of its own."""
        if not self._exists(key):
            return
        policy = whole_policy(binding)
        target = TargetSchema.of(table.name, policy, table.schema)
        aspects = self._aspects(target, binding)
        others, lacking = _other_notes(aspects, target), _lacking(aspects, binding)
        if (others or lacking) and self._is_included(key, table):
            op = _unchanged(table, policy)
            for arguments in lacking:
                op.change(arguments)
            if others and isinstance(policy, ExpireAfter):
                op.existing_ttl = replace(policy, seconds=int(min(others).partition("_")[0]))
            elif others and isinstance(policy, TTL):
                op.existing_ttl = _before(policy, others, aspects)
            self._upgrade.ops.append(op)

    def _exists(self, key: Key) -> bool:
        schema, name = key
        return schema in self._schemas and self._context.inspector.has_table(name, schema=schema)

    def _is_included(self, key: Key, table: Table) -> bool:
        """Whether env.py's filters include a table; Alembic asks them only for its own changes."""
        schema, name = key
        if not self._context.run_name_filters(name, "table", {"schema_name": schema}):
            return False
        reflected = Table(name, MetaData(), schema=schema)
        self._context.inspector.reflect_table(reflected, None, resolve_fks=False)
        return self._context.run_object_filters(table, name, "table", False, reflected)  # noqa: FBT003

    def _add_to_created(
        self, created: ops.CreateTableOp, target: TargetSchema, binding: Binding
    ) -> None:
        """Add TTL to a new table, in the transaction that creates it."""
        name, schema, policy = target.table.name, target.table.schema, default_now(binding)
        op: AddTTLOp | AlterTTLOp
        if binding.layout is None and any(_names(item, target) for item in created.columns):
            # Alembic makes TTL's columns, because other constraints of the table name them.
            op = AlterTTLOp(name, policy, schema=schema, sweep=binding.sweep, in_transaction=True)
            op.existing_ttl, op.existing_sweep = policy, "scan"
        else:
            created.columns = _without(created.columns, target)
            op = AddTTLOp(name, policy, schema=schema, sweep=binding.sweep, in_transaction=True)
        for modified in self._modifications(name, created.schema, schema):
            self._strip(modified, target)
        self._upgrade.ops.insert(self._upgrade.ops.index(created) + 1, op)

    # --- tables with a layout ----------------------------------------------------------------

    def _compare_layout(self, key: Key, table: Table, binding: Binding) -> None:
        """Give a table its layout, by the operation that it gets anyway or by one of its own."""
        assert binding.layout is not None  # noqa: S101 (that is why it is compared)
        creations = (op for op in self._upgrade.ops if isinstance(op, ops.CreateTableOp))
        created = next((op for op in creations if _creates(op, key)), None)
        if created is None and not self._exists(key):
            return
        target = TargetSchema.of(table.name, whole_policy(binding), table.schema)
        layout = aspect_of(binding.layout.declared)(self._connection, target)
        arguments = layout.lacking(binding)
        if arguments is None or (created is None and not self._is_included(key, table)):
            return
        op = self._added(key, table, binding)
        if op is None and created is None:
            op = AlterTTLOp(table.name, _policy(binding), schema=table.schema)
            op.existing_ttl = op.default_ttl
        elif op is None:
            op = AddTTLOp(table.name, None, schema=table.schema, sweep=binding.sweep)
            op.in_transaction = True
        else:
            self._upgrade.ops.remove(op)
        op.default_ttl = _policy(binding)
        op.change(arguments)
        # After the indexes, which can be built without a lock only before the table has its layout.
        position = len(self._upgrade.ops)
        if created is not None:
            position = self._upgrade.ops.index(created) + 1
            target = TargetSchema.of(table.name, _policy(binding), table.schema)
            for modified in self._modifications(table.name, created.schema, table.schema):
                self._strip(modified, target)
        self._upgrade.ops.insert(position, op)

    def _added(self, key: Key, table: Table, binding: Binding) -> AddTTLOp | AlterTTLOp | None:
        """Return the operation that adds a table's columns, or the index on its dates, if any."""
        is_ttl = isinstance(_policy(binding), TTL)
        return next(
            (
                op
                for op in self._upgrade.ops
                if isinstance(op, AddTTLOp)
                and op.table_name == table.name
                and op.schema in (key[0], table.schema)
                and is_ttl is not isinstance(op.default_ttl, (ExpireAfter, ExpireAt))
            ),
            None,
        )

    # --- tables without a policy, or without a model ----------------------------------------

    def _compare_removed(self, op: ops.ModifyTableOps | ops.DropTableOp) -> None:
        """Drop TTL with its columns or its table; the downgrade adds it to that table again."""
        reverse = None
        if isinstance(op, ops.DropTableOp):
            reverse = op._reverse  # noqa: SLF001 (it becomes the downgrade)
            names = {getattr(item, "name", None) for item in reverse.columns} if reverse else set()
        else:
            names = {line.column_name for line in op.ops if isinstance(line, ops.DropColumnOp)}
        target = TargetSchema.of(op.table_name, TTL(None), op.schema)
        if target.last_modified.name not in names:
            return
        existing = read_schema(self._connection, target)
        indexes = [name for name in existing.indexes if is_of_sweeper(name)]
        if existing.check == "missing" and not indexes:
            return  # A column of that name that TTL didn't add.
        added = AddTTLOp(
            op.table_name,
            None,
            schema=op.schema,
            sweep="index" if indexes else "scan",
            keep_ttl=reverse is None and target.own_ttl.name not in names,
            in_transaction=reverse is not None,
        )
        for aspect in on_table(in_database(), self._connection, target, []):
            added.change(aspect.keeping(added.verb))
        position = self._upgrade.ops.index(op)
        self._upgrade.ops.insert(position, added.reverse())
        if reverse is not None:
            reverse.columns = _without(reverse.columns, target, existing.check_name)
        modifications = self._modifications(op.table_name, op.schema)
        for modified in modifications:
            self._strip(modified, target, *indexes)
        if reverse is None:
            self._move(modifications, target, position)  # here: before the columns are dropped

    def _compare_date_index(self, modified: ops.ModifyTableOps, table: Table | None) -> None:
        """Replace Alembic's operation for the index on a table's dates, which would lock it."""
        key = (modified.schema, modified.table_name)
        if modified not in self._upgrade.ops or any(
            (isinstance(op, ops.CreateTableOp) and _creates(op, key))
            or (isinstance(op, ops.DropTableOp) and (op.schema, op.table_name) == key)
            for op in self._upgrade.ops
        ):
            return
        binding = None if table is None else binding_of(table)
        for line in list(modified.ops):
            if not isinstance(line, (ops.CreateIndexOp, ops.DropIndexOp)):
                continue
            names = [str(getattr(column, "name", column)) for column in line.to_index().expressions]
            if len(names) != 1:
                continue
            target = TargetSchema.of(modified.table_name, ExpireAt(names[0]), modified.schema)
            if line.index_name not in target.index_names:
                continue
            policy = target.policy if binding is None else _policy_on(names[0], binding)
            modified.ops.remove(line)
            position = self._upgrade.ops.index(modified)
            make: type[AddTTLOp | DropTTLOp] = DropTTLOp  # before its column is dropped
            if isinstance(line, ops.CreateIndexOp):
                make, position = AddTTLOp, position + 1
            self._upgrade.ops.insert(
                position, make(modified.table_name, policy, schema=modified.schema)
            )
        if not modified.ops:
            self._upgrade.ops.remove(modified)

    # --- Alembic's own operations ----------------------------------------------------------

    def _modifications(self, name: str, *schemas: str | None) -> list[ops.ModifyTableOps]:
        return [
            op
            for op in self._upgrade.ops
            if isinstance(op, ops.ModifyTableOps) and op.table_name == name and op.schema in schemas
        ]

    def _move(self, changed: list[ops.ModifyTableOps], target: TargetSchema, position: int) -> None:
        """Move what makes or drops the application's indexes on TTL's columns to a position."""
        columns = set(target.table.c.keys())
        for modified in changed:
            late = [op for op in modified.ops if not columns.isdisjoint(_indexed(op))]
            if not late:
                continue
            later = ops.ModifyTableOps(modified.table_name, late, schema=modified.schema)
            self._upgrade.ops.insert(position, later)
            modified.ops[:] = [op for op in modified.ops if op not in late]
            if not modified.ops:
                self._upgrade.ops.remove(modified)

    def _strip(self, modified: ops.ModifyTableOps, target: TargetSchema, *indexes: str) -> int:
        """Remove what our operation does; return the position after the table's operations."""
        ours = {*target.table.c.keys(), INHERITED_END, OWN_END, *target.index_names, *indexes}

        def subject(op: ops.MigrateOperation) -> str | None:
            if isinstance(op, ops.AddColumnOp):
                return op.column.name
            return getattr(op, "column_name", getattr(op, "index_name", None))

        modified.ops[:] = [op for op in modified.ops if subject(op) not in ours]
        position = self._upgrade.ops.index(modified)
        if modified.ops:
            return position
        del self._upgrade.ops[position]
        return position - 1


def _unchanged(table: Table, policy: Declared) -> AlterTTLOp:
    """Return an operation that leaves the policy of a table as it is."""
    op = AlterTTLOp(table.name, policy, schema=table.schema)
    op.existing_ttl = policy
    return op


def _policy(binding: Binding) -> Policy:
    """Return the policy of a table with a layout as its operation gets it, with today's numbers."""
    policy, limit = binding.policy, binding.max_lifetime
    if not isinstance(policy, TTL):
        return whole_policy(binding)
    assert limit is not None  # noqa: S101 (a layout of such a table requires it)
    created, seconds, zone = limit.created.name, limit.seconds, policy.timezone
    if adds_columns(binding):
        return TTL(default_now(binding), max_lifetime=seconds, created=created, timezone=zone)
    return ExpireAfter(created, seconds, timezone=zone, unit=policy.unit)


def _indexed(op: ops.MigrateOperation) -> set[str]:
    """Return the columns of an index or a unique key that an operation makes or drops."""
    if isinstance(op, (ops.CreateIndexOp, ops.DropIndexOp)):
        columns = op.to_index().expressions
        return {str(getattr(column, "name", column)) for column in columns}
    if isinstance(op, (ops.CreateUniqueConstraintOp, ops.DropConstraintOp)):
        constraint = op.to_constraint()
        return set(constraint.columns.keys()) if isinstance(constraint, UniqueConstraint) else set()
    return set()


def _policy_on(dates: str, binding: Binding) -> Policy:
    """Return a table's policy on a column of dates, as the operation for its index gets it."""
    policy: Policy = ExpireAt(dates)
    if not isinstance(binding.policy, TTL):
        policy = binding.default.policy
    elif binding.max_lifetime is not None:
        policy = ExpireAfter(dates, binding.max_lifetime.seconds)
    # The model may read another column by now.
    is_former = not isinstance(policy, (ExpireAfter, ExpireAt)) or policy.field != dates
    return ExpireAt(dates) if is_former else policy


def _creates(op: ops.CreateTableOp, key: Key) -> bool:
    # Alembic keeps the name of the default schema if the metadata names it.
    return op.table_name == key[1] and (op.schema == key[0] or key[0] is None)


def _names(item: SchemaItem, target: TargetSchema) -> bool:
    """Return whether a constraint of a new table, other than TTL's own, names TTL's columns."""
    columns = (target.last_modified.name, target.own_ttl.name)
    if isinstance(item, CheckConstraint):
        words = re.findall(r"\w+", str(item.sqltext))
        return item.name != target.check_name and not set(columns).isdisjoint(words)
    if isinstance(item, ColumnCollectionConstraint):
        return not set(columns).isdisjoint(item.columns.keys())
    return False


def _without(
    columns: Sequence[SchemaItem], target: TargetSchema, check_name: str = ""
) -> list[SchemaItem]:
    """Return the columns and constraints that aren't TTL's; MySQL may name the CHECK itself."""
    ours = (target.check_name, check_name or target.check_name)
    names = {*target.table.c.keys(), INHERITED_END, OWN_END, *ours}
    return [item for item in columns if getattr(item, "name", None) not in names]


def _lacking(aspects: Sequence[Aspect], binding: Binding) -> list[Mapping[str, object]]:
    """Return the arguments that add what, according to the extensions, a table lacks."""
    arguments = (aspect.lacking(binding) for aspect in aspects)
    return [needed for needed in arguments if needed is not None]


def _other_notes(aspects: Sequence[Aspect], target: TargetSchema) -> set[str]:
    """Return the notes of policies that the database holds of a table, but shouldn't."""
    return set().union(*(aspect.notes() for aspect in aspects)) - {target.noted}


def _difference(
    target: TargetSchema,
    binding: Binding,
    existing: ExistingSchema,
    aspects: Sequence[Aspect],
    lacking: Sequence[Mapping[str, object]],
) -> AddTTLOp | AlterTTLOp | None:
    """Return the operation that brings the table to the model's state; None if none is needed."""
    name, schema, default = target.table.name, target.table.schema, default_now(binding)
    others = _other_notes(aspects, target)
    if target.last_modified.name not in existing.columns:
        kept = target.own_ttl.name in existing.columns
        return AddTTLOp(name, default, schema=schema, sweep=binding.sweep, keep_ttl=kept)
    names = target.index_names
    is_complete = all(existing.has_index(index) for index in names)
    has_any = bool(existing.virtual) or any(index in existing.indexes for index in names)
    op = AlterTTLOp(name, default, schema=schema)
    op.existing_ttl = default
    if binding.sweep == "index" and not is_complete:
        op.sweep, op.existing_sweep = "index", "index" if has_any else "scan"
        if existing.misled:
            op.existing_ttl = _former(target, existing, aspects)
        for aspect in aspects:
            op.change(aspect.keeping(op.verb))
    elif binding.sweep == "scan" and has_any:
        op.sweep, op.existing_sweep = "scan", "index"
    elif others:
        policy = target.policy
        assert isinstance(policy, TTL)  # noqa: S101 (the table has the contract's columns)
        before = _before(policy, others, aspects)
        extension = default_extension(before)
        op.existing_ttl = before.default if extension is None else extension
        if policy != TTL(default):
            op.default_ttl, op.existing_ttl = policy, before
    elif {} in lacking:  # the stored default itself
        op.existing_ttl = _former(target, existing, aspects)
    elif existing.check in ("there", "unenforced") and existing.stamps:
        return None  # Only the user can decide that MySQL copies the table to enforce the CHECK.
    return op


def _former(
    target: TargetSchema, existing: ExistingSchema, aspects: Sequence[Aspect]
) -> int | DefaultExtension | None:
    """Return the table's former default, as far as the database shows it."""
    start = seconds_of(target)
    stored = (aspect.former(start, existing.scope) for aspect in aspects)
    return next(filter(None, stored), start)


def _before(policy: TTL, notes: set[str], aspects: Sequence[Aspect]) -> TTL:
    """Return the policy that the database holds, as far as its notes show it."""
    first = min(notes).partition("_")[0]
    if policy.kinds:
        return policy
    if first != LOOKED_UP:
        return policy.with_default(None if first == "None" else int(first))
    if default_extension(policy) is not None:
        return policy
    stored = (aspect.former(policy.default) for aspect in aspects)
    return policy.with_default(next(filter(None, stored), policy.default))
