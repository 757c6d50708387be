"""``op.add_ttl``, ``op.alter_ttl`` and ``op.drop_ttl``.

What users write and what autogenerate writes for them: each operation stands beside its reverse and
its text in a revision. What it then does to a database is in `ttl_odm.alembic.implementation`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from alembic.autogenerate import renderers
from alembic.operations import BatchOperations, MigrateOperation, Operations

from ttl_odm.core.policy import ExpireAfter, ExpireAt, Policy

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

    from ttl_odm.alembic.enforcement import Enforce
    from ttl_odm.alembic.target_schema import Sweep

Declared = int | float | timedelta | Policy | None
"""What ``__ttl__`` may be."""


class _Operation(MigrateOperation):
    """What the three have in common: a table, and a text in a revision."""

    verb: ClassVar[str]
    table_name: str
    schema: str | None

    def arguments(self) -> list[str]:
        """What stands behind the table's name in a revision."""
        raise NotImplementedError

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """What ``alembic check`` shows."""
        return (f"{self.verb}_ttl", self.schema, self.table_name, *self.arguments())


def _keywords(**given: Any) -> list[str]:
    return [f"{name}={value!r}" for name, value in given.items() if value is not None]


@renderers.dispatch_for(_Operation)
def _render(autogen_context: AutogenContext, op: _Operation) -> str:
    in_batch = getattr(autogen_context, "_has_batch", False)
    table = [] if in_batch else [repr(str(op.table_name))]
    schema = [] if in_batch or op.schema is None else [f"schema={str(op.schema)!r}"]
    if _is_over_dates(getattr(op, "default_ttl", None)):
        autogen_context.imports.add("import ttl_odm")
    prefix = "batch_op." if in_batch else autogen_context.opts.get("alembic_module_prefix", "op.")
    return f"{prefix}{op.verb}_ttl({', '.join([*table, *op.arguments(), *schema])})"


# --- add ---------------------------------------------------------------------------------------


@Operations.register_operation("add_ttl")
@BatchOperations.register_operation("add_ttl", "batch_add_ttl")
@dataclass
class AddTTLOp(_Operation):
    """Put TTL on a table."""

    verb: ClassVar[str] = "add"

    table_name: str
    default_ttl: Any
    schema: str | None = None
    backfill: str | None = "now"
    sweep: Sweep = "index"
    touch_trigger: bool = False
    enforce: Enforce | None = None
    keep_ttl: bool = False
    max_expired_now: float | None = None
    in_transaction: bool = False

    @classmethod
    def add_ttl(  # noqa: PLR0913 (all but two by keyword)
        cls,
        operations: Operations,
        table_name: str,
        default_ttl: Declared,
        *,
        schema: str | None = None,
        backfill: str | None = "now",
        sweep: Literal["index", "scan"] = "index",
        touch_trigger: bool = False,
        enforce: Literal["view", "rls"] | None = None,
        keep_ttl: bool = False,
        max_expired_now: float | None = None,
        in_transaction: bool = False,
    ) -> None:
        """Put TTL on a table that may be in use.

        Args:
            operations: Alembic's ``op``.
            table_name: the table.
            default_ttl: what the model says: seconds, a timedelta, -1 (rows live for ever by
                default) or None (TTL is off). It is not stored with the rows.
            schema: the table's schema.
            backfill: when old rows begin to live: "now", or a column of dates and times with the
                moment of their last modification (NULL there means now). None: they never expire
                (ttl -1).
            sweep: "index" if the model's ``__ttl_sweep__`` is, which is the default, or "scan".
            touch_trigger: let a trigger stamp rows that are updated by raw SQL.
            enforce: hide expired rows from readers outside Python, by a view TABLE_live or by
                row-level security (PostgreSQL).
            keep_ttl: take over a column ``ttl`` that is there, with its values.
            max_expired_now: refuse if more than this part of the rows (0 to 1) would expire at
                once.
            in_transaction: stay in the migration's transaction (PostgreSQL), with its locks until
                the end: for a table that the same revision creates.

        Raises:
            MigrationRefusedError: before anything was changed.
        """
        operations.invoke(
            cls(
                table_name,
                default_ttl,
                schema,
                backfill,
                sweep,
                touch_trigger,
                enforce,
                keep_ttl,
                max_expired_now,
                in_transaction,
            )
        )

    @classmethod
    def batch_add_ttl(  # noqa: PLR0913 (all but one by keyword)
        cls,
        operations: BatchOperations,
        default_ttl: Declared,
        *,
        backfill: str | None = "now",
        sweep: Literal["index", "scan"] = "index",
        touch_trigger: bool = False,
        enforce: Literal["view", "rls"] | None = None,
        keep_ttl: bool = False,
        max_expired_now: float | None = None,
        in_transaction: bool = False,
    ) -> None:
        """Put TTL on the table of the batch, after all of the batch's own operations."""
        table_name, schema = _batch_table(operations)
        op = cls(
            table_name,
            default_ttl,
            schema,
            backfill,
            sweep,
            touch_trigger,
            enforce,
            keep_ttl,
            max_expired_now,
            in_transaction,
        )
        _after_batch(operations, op)

    def reverse(self) -> DropTTLOp:
        """Take it off again."""
        return DropTTLOp(
            self.table_name,
            self.default_ttl if _is_over_dates(self.default_ttl) else None,
            self.schema,
            keep_ttl=self.keep_ttl,
            in_transaction=self.in_transaction,
            added=self,
        )

    @property
    def _is_plain(self) -> bool:
        """Whether there are no old rows to think of."""
        return self.in_transaction or _is_over_dates(self.default_ttl)

    def arguments(self) -> list[str]:
        """What stands behind the table's name in a revision."""
        return [
            written(self.default_ttl),
            *_keywords(
                backfill=None if self._is_plain else self.backfill,
                sweep=None if self.sweep == "index" else self.sweep,
                touch_trigger=self.touch_trigger or None,
                enforce=self.enforce,
                keep_ttl=self.keep_ttl or None,
                max_expired_now=self.max_expired_now,
                in_transaction=self.in_transaction or None,
            ),
        ]


# --- alter -------------------------------------------------------------------------------------


@Operations.register_operation("alter_ttl")
@BatchOperations.register_operation("alter_ttl", "batch_alter_ttl")
@dataclass
class AlterTTLOp(_Operation):
    """Change a table's TTL."""

    verb: ClassVar[str] = "alter"

    table_name: str
    default_ttl: Any
    schema: str | None = None
    sweep: Sweep | None = None
    touch_trigger: bool | None = None
    enforce: Enforce | Literal["off"] | None = None
    max_expired_now: float | None = None
    in_transaction: bool = False
    existing_ttl: Any = None
    existing_sweep: Sweep | None = None

    @classmethod
    def alter_ttl(  # noqa: PLR0913 (all but two by keyword)
        cls,
        operations: Operations,
        table_name: str,
        default_ttl: Declared,
        *,
        schema: str | None = None,
        sweep: Literal["index", "scan"] | None = None,
        touch_trigger: bool | None = None,
        enforce: Literal["view", "rls", "off"] | None = None,
        max_expired_now: float | None = None,
        in_transaction: bool = False,
    ) -> None:
        """Change what a table's TTL has in the database, or fix it.

        A default ttl is not stored: a new one changes no row and needs no migration. It is written
        here for the view and the row-level security, which hold it, and for max_expired_now.

        Args:
            operations: Alembic's ``op``.
            table_name: the table.
            default_ttl: what the model says now.
            schema: the table's schema.
            sweep: "index" adds the indexes that are missing or invalid, "scan" drops them.
            touch_trigger: add the trigger, or drop it.
            enforce: put "view" or "rls", or take both "off".
            max_expired_now: refuse if more than this part of the rows (0 to 1) would be expired
                under the new default.
            in_transaction: as for ``add_ttl``.

        What is left out stays as it is.

        Raises:
            MigrationRefusedError: before anything was changed.
        """
        operations.invoke(
            cls(
                table_name,
                default_ttl,
                schema,
                sweep,
                touch_trigger,
                enforce,
                max_expired_now,
                in_transaction,
            )
        )

    @classmethod
    def batch_alter_ttl(  # noqa: PLR0913 (all but one by keyword)
        cls,
        operations: BatchOperations,
        default_ttl: Declared,
        *,
        sweep: Literal["index", "scan"] | None = None,
        touch_trigger: bool | None = None,
        enforce: Literal["view", "rls", "off"] | None = None,
        max_expired_now: float | None = None,
        in_transaction: bool = False,
    ) -> None:
        """Change the TTL of the batch's table, after all of the batch's own operations."""
        table_name, schema = _batch_table(operations)
        op = cls(
            table_name,
            default_ttl,
            schema,
            sweep,
            touch_trigger,
            enforce,
            max_expired_now,
            in_transaction,
        )
        _after_batch(operations, op)

    def reverse(self) -> AlterTTLOp:
        """Back to what autogenerate found."""
        return replace(
            self,
            default_ttl=self.existing_ttl,
            existing_ttl=self.default_ttl,
            sweep=self.existing_sweep,
            existing_sweep=self.sweep,
        )

    def arguments(self) -> list[str]:
        """What stands behind the table's name in a revision."""
        return [
            written(self.default_ttl),
            *_keywords(
                sweep=self.sweep,
                touch_trigger=self.touch_trigger,
                enforce=self.enforce,
                max_expired_now=self.max_expired_now,
                in_transaction=self.in_transaction or None,
            ),
        ]


# --- drop --------------------------------------------------------------------------------------


@Operations.register_operation("drop_ttl")
@BatchOperations.register_operation("drop_ttl", "batch_drop_ttl")
@dataclass
class DropTTLOp(_Operation):
    """Take a table's TTL off."""

    verb: ClassVar[str] = "drop"

    table_name: str
    default_ttl: Any = None
    schema: str | None = None
    keep_ttl: bool = False
    in_transaction: bool = False
    added: AddTTLOp | None = None

    @classmethod
    def drop_ttl(  # noqa: PLR0913 (all but two by keyword)
        cls,
        operations: Operations,
        table_name: str,
        default_ttl: Declared = None,
        *,
        schema: str | None = None,
        keep_ttl: bool = False,
        in_transaction: bool = False,
    ) -> None:
        """Take TTL off a table, with all that ``add_ttl`` and ``alter_ttl`` put on it.

        No row is deleted: those that were expired and not purged yet can be seen again.

        Args:
            operations: Alembic's ``op``.
            table_name: the table.
            default_ttl: the `ExpireAt` or `ExpireAfter` whose index is to go; else nothing.
            schema: the table's schema.
            keep_ttl: leave the column ``ttl`` where it is, with rows' own ttl, for a later
                ``add_ttl(..., keep_ttl=True)``.
            in_transaction: as for ``add_ttl``.

        Raises:
            MigrationRefusedError: before anything was changed.
        """
        operations.invoke(cls(table_name, default_ttl, schema, keep_ttl, in_transaction))

    @classmethod
    def batch_drop_ttl(
        cls,
        operations: BatchOperations,
        default_ttl: Declared = None,
        *,
        keep_ttl: bool = False,
        in_transaction: bool = False,
    ) -> None:
        """Take TTL off the batch's table, after all of the batch's own operations."""
        table_name, schema = _batch_table(operations)
        op = cls(table_name, default_ttl, schema, keep_ttl, in_transaction)
        _after_batch(operations, op)

    def reverse(self) -> AddTTLOp:
        """Put it on again."""
        if self.added is not None:
            return self.added
        return AddTTLOp(
            self.table_name,
            self.default_ttl,
            self.schema,
            keep_ttl=self.keep_ttl,
            in_transaction=self.in_transaction,
        )

    def arguments(self) -> list[str]:
        """What stands behind the table's name in a revision."""
        declared = [] if self.default_ttl is None else [written(self.default_ttl)]
        return [
            *declared,
            *_keywords(keep_ttl=self.keep_ttl or None, in_transaction=self.in_transaction or None),
        ]


# --- what they share ---------------------------------------------------------------------------


def _is_over_dates(default_ttl: object) -> bool:
    return isinstance(default_ttl, (ExpireAfter, ExpireAt))


def written(default_ttl: object) -> str:
    """A declaration as it stands in a revision."""
    if isinstance(default_ttl, ExpireAfter):
        return f"ttl_odm.ExpireAfter({default_ttl.field!r}, {default_ttl.seconds})"
    if isinstance(default_ttl, ExpireAt):
        return f"ttl_odm.ExpireAt({default_ttl.field!r})"
    return repr(default_ttl)


def _batch_table(operations: BatchOperations) -> tuple[str, str | None]:
    impl: Any = operations.impl
    return impl.table_name, impl.schema


def _after_batch(operations: BatchOperations, op: _Operation) -> None:
    """Run an operation when the batch has done its own work, for it may replace the table."""
    impl: Any = operations.impl
    flush = impl.flush

    def flush_and_run() -> None:
        flush()
        impl.operations.invoke(op)

    impl.flush = flush_and_run
