"""``op.add_ttl``, ``op.alter_ttl``, ``op.drop_ttl``, ``op.add_follows`` and ``op.drop_follows``.

Each operation has its reverse and its source in a revision beside it. What it does to a database is
in `ttl_odm.alembic.implementation`.

An operation's fields are its arguments: `_register` makes ``op.add_ttl`` and the other functions
from the classes, with their docstrings.
"""

from __future__ import annotations

import inspect
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from alembic.autogenerate import renderers
from alembic.operations import BatchOperations, MigrateOperation, Operations

from ttl_odm.alembic import aspects
from ttl_odm.core.extension import DefaultExtension, Layout, Packaged
from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt, Policy, default_extension

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alembic.autogenerate.api import AutogenContext

    from ttl_odm.alembic.target_schema import Enforce, Sweep

Declared = int | float | timedelta | Policy | DefaultExtension | None
"""What ``__ttl__`` may be."""


class _Operation(MigrateOperation):
    """The base of all operations: a table, the call of ``op``, and the source in a revision."""

    verb: ClassVar[str]
    noun: ClassVar[str] = "ttl"
    table_name: str
    default_ttl: Declared
    schema: str | None
    in_transaction: bool

    if TYPE_CHECKING:  # the dataclasses below have this signature

        def __init__(self, table_name: str, default_ttl: Declared, **options: Any) -> None: ...

    @classmethod
    def on_table(
        cls, operations: Operations, table_name: str, *default_ttl: Declared, **options: Any
    ) -> None:
        """Run the operation."""
        operations.invoke(cls(table_name, *default_ttl, **options))

    @classmethod
    def in_batch(cls, operations: BatchOperations, *default_ttl: Declared, **options: Any) -> None:
        """Run the operation after the batch's own work, which may replace the table."""
        impl: Any = operations.impl
        op = cls(impl.table_name, *default_ttl, schema=impl.schema, **options)
        flush = impl.flush

        def flush_and_run() -> None:
            flush()
            impl.operations.invoke(op)

        impl.flush = flush_and_run

    def arguments(self) -> list[str]:
        """Return the source of the arguments after the table's name in a revision."""
        return [written(self.default_ttl), *_as_keywords(self.options())]

    def options(self, *without: str) -> dict[str, object]:
        """Return the options that differ from their defaults, without the named ones."""
        return {
            option.name: getattr(self, option.name)
            for option in fields(self)  # type: ignore[arg-type]
            if option.kw_only
            and option.init
            and option.name not in ("schema", *without)
            and getattr(self, option.name) != option.default
        }

    def modules(self) -> set[str]:
        """Return the modules of the application's own declarations that `arguments` name."""
        values: list[object] = [self.argument("default_ttl"), *self.options().values()]
        values += [default_extension(value) for value in values if isinstance(value, TTL)]
        modules = {type(value).__module__ for value in values if isinstance(value, Packaged)}
        return {module for module in modules if not module.startswith("ttl_odm.")}

    def argument(self, name: str) -> Any:
        """Return the value of an argument, or None if the operation doesn't have it."""
        return getattr(self, name, None)

    def change(self, arguments: Mapping[str, object]) -> None:
        """Replace the values of arguments."""
        for name, value in arguments.items():
            setattr(self, name, value)

    def to_diff_tuple(self) -> tuple[object, ...]:
        """Return what ``alembic check`` shows."""
        return (f"{self.verb}_{self.noun}", self.schema, self.table_name, *self.arguments())


Op = TypeVar("Op", bound=_Operation)


def _register(op_class: type[Op]) -> type[Op]:
    """Make ``op.<verb>_<noun>``, and its twin in a batch, from an operation's class."""
    name = f"{op_class.verb}_{op_class.noun}"
    documentation = op_class.__doc__
    signature = inspect.signature(op_class)
    self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for operations, source in ((Operations, "on_table"), (BatchOperations, "in_batch")):
        # Alembic takes the function's docstring from this method's, and changes that one.
        getattr(op_class, source).__func__.__doc__ = documentation
        operations.register_operation(name, source)(op_class)
        is_batch = operations is BatchOperations
        parameters = [
            parameter
            for parameter in signature.parameters.values()
            if not (is_batch and parameter.name in ("table_name", "schema"))
        ]
        function: Any = getattr(operations, name)
        function.__signature__ = signature.replace(parameters=[self_parameter, *parameters])
    return op_class


@renderers.dispatch_for(_Operation)
def _render(autogen_context: AutogenContext, op: _Operation) -> str:
    in_batch = getattr(autogen_context, "_has_batch", False)
    table = [] if in_batch else [repr(str(op.table_name))]
    schema = [] if in_batch or op.schema is None else [f"schema={str(op.schema)!r}"]
    # The import registers the operation even if env.py doesn't, and makes the name ttl_odm known.
    autogen_context.imports.add("import ttl_odm.alembic")
    autogen_context.imports.update(f"import {module}" for module in op.modules())
    prefix = "batch_op." if in_batch else autogen_context.opts.get("alembic_module_prefix", "op.")
    arguments = ", ".join([*table, *op.arguments(), *schema])
    return f"{prefix}{op.verb}_{op.noun}({arguments})"


def written(value: object) -> str:
    """Return the source of a declaration or an option in a revision."""
    if isinstance(value, TTL):
        default = default_extension(value)
        if default is None:
            return f"ttl_odm.{value!r}"
        return f"ttl_odm.{value!r}".replace(repr(default), aspects.written(default), 1)
    if isinstance(value, (DefaultExtension, Layout)):
        return aspects.written(value)
    if isinstance(value, (ExpireAfter, ExpireAt)):
        first = [value.field, value.seconds] if isinstance(value, ExpireAfter) else [value.field]
        options = {
            name: getattr(value, name)
            for name, default in _POLICY_OPTIONS.items()
            if getattr(value, name, default) != default
        }
        arguments = [*map(repr, first), *_as_keywords(options)]
        return f"ttl_odm.{type(value).__name__}({', '.join(arguments)})"
    return repr(value)


_POLICY_OPTIONS: Final = {"null": "never", "timezone": "UTC", "unit": None}
"""The options of `ExpireAfter` and `ExpireAt`, with their defaults."""


def _as_keywords(options: Mapping[str, object]) -> list[str]:
    return [f"{name}={written(value)}" for name, value in options.items()]


@_register
@dataclass
class AddTTLOp(_Operation):
    """Put TTL on a table that may be in use.

    Args:
        table_name: The table.
        default_ttl: The model's default: seconds, a timedelta, -1 (rows live forever by default)
            or None (TTL is off). It is not stored with the rows. With `Stored`, the migration
            creates the policy table and the row with the initial default; existing rows stay as
            they are.
        schema: The table's schema.
        backfill: When the lifetime of existing rows begins: "now", or a column of dates and times
            with their last modification (NULL there means now). None: they never expire (ttl -1).
        sweep: The model's ``__ttl_sweep__``: "index" (the default) or "scan". "database": the
            indexes, and a job of the database's own that deletes expired rows each second, with no
            process of yours.
        window: The hours of the day in which that job works, such as "01:00-05:00"; None for any.
        timezone: The IANA name of the window's time zone.
        max_fraction: The share of the rows, from 0 to 1, that may be expired at once. If more are,
            the job deletes nothing.
        touch_trigger: Add a trigger that stamps rows updated by raw SQL.
        enforce: Hide expired rows from readers outside Python, by a view TABLE_live ("view"), or
            by row-level security ("rls", PostgreSQL).
        view: The name of that view, instead of TABLE_live.
        keep_ttl: Take over an existing column ``ttl``, with its values.
        max_expired_now: Fail if more than this share of the rows (0 to 1) would expire at once.
        partition: Partition the table by time: the model's ``__ttl_partition__``, or only its span
            ("1 day"). An existing table becomes the first partition of the new one, while others
            read and write it. A database without partitions ignores this.
        copy_table: Let MySQL enforce the CHECK on rows' own ttl, for which it copies the table and
            blocks writers meanwhile. Otherwise the CHECK is added at once, as NOT ENFORCED. The
            other databases enforce it without a copy. MariaDB and MySQL also copy a table that they
            can't change instantly, such as one with a FULLTEXT index.
        in_transaction: Stay in the migration's transaction (PostgreSQL) and hold its locks until
            the end, for a table that the same revision creates. On MySQL the same as
            ``copy_table``.

    Raises:
        MigrationRefusedError: Before anything was changed.
    """

    verb: ClassVar[str] = "add"

    table_name: str
    default_ttl: Declared
    _: KW_ONLY
    schema: str | None = None
    backfill: str | None = "now"
    sweep: Sweep = "index"
    window: str | None = None
    timezone: str = "UTC"
    max_fraction: float | None = None
    touch_trigger: bool = False
    enforce: Enforce | None = None
    view: str | None = None
    keep_ttl: bool = False
    max_expired_now: float | None = None
    partition: str | Layout | None = None
    copy_table: bool = False
    in_transaction: bool = False

    def reverse(self) -> DropTTLOp:
        """Return the operation that removes TTL again."""
        is_needed = isinstance(self.default_ttl, (ExpireAfter, ExpireAt, DefaultExtension))
        op = DropTTLOp(
            self.table_name,
            self.default_ttl if is_needed else None,
            schema=self.schema,
            keep_ttl=self.keep_ttl,
            view=self.view,
            in_transaction=self.in_transaction,
        )
        op.added = self
        return op

    def arguments(self) -> list[str]:
        """Return the source of the arguments after the table's name in a revision."""
        options = self.options("backfill")
        # Always written where there may be old rows, since it decides what happens to them.
        if not self.in_transaction and not isinstance(self.default_ttl, (ExpireAfter, ExpireAt)):
            options = {"backfill": self.backfill, **options}
        return [written(self.default_ttl), *_as_keywords(options)]


@_register
@dataclass
class AlterTTLOp(_Operation):
    """Change or repair what a table's TTL has in the database.

    A default ttl is not stored, so a new one changes no row and needs no migration. It is an
    argument here for the view, the row-level security and the job, which contain it, and for
    max_expired_now. If the model now has `Stored`, its row in the policy table is created; if it no
    longer has it, the row is removed.

    Args:
        table_name: The table.
        default_ttl: The model's new default.
        schema: The table's schema.
        sweep: "index" adds missing or invalid indexes, and replaces one that begins with another
            column than ``Stored(..., by=...)`` names; "scan" drops them. Both remove the job that
            "database" adds to the indexes.
        window: The hours in which that job works; "always" for any.
        timezone: The IANA name of the window's time zone.
        max_fraction: The share of the rows that may be expired at once; 1 for any number.
        touch_trigger: Whether to add or drop the trigger.
        enforce: Add a "view" or "rls", or turn both "off".
        view: The name of that view; an existing one with another name is replaced.
        max_expired_now: Fail if more than this share of the rows (0 to 1) would be expired under
            the new default.
        partition: Partition the table by time, as for ``add_ttl``.
        copy_table: Let MySQL enforce a CHECK that is NOT ENFORCED, for which it copies the table;
            and as for ``add_ttl``.
        in_transaction: As for ``add_ttl`` on PostgreSQL.

    Arguments that are left out change nothing.

    Raises:
        MigrationRefusedError: Before anything was changed.
    """

    verb: ClassVar[str] = "alter"

    table_name: str
    default_ttl: Declared
    _: KW_ONLY
    schema: str | None = None
    sweep: Sweep | None = None
    window: str | None = None
    timezone: str = "UTC"
    max_fraction: float | None = None
    touch_trigger: bool | None = None
    enforce: Enforce | Literal["off"] | None = None
    view: str | None = None
    max_expired_now: float | None = None
    partition: str | Layout | None = None
    copy_table: bool = False
    in_transaction: bool = False
    existing_ttl: Declared = field(default=None, init=False)
    existing_sweep: Sweep | None = field(default=None, init=False)

    def reverse(self) -> AlterTTLOp:
        """Return the operation that restores what autogenerate saw."""
        op = replace(
            self,
            default_ttl=self.existing_ttl,
            sweep=self.existing_sweep,
            window=None,
            max_fraction=None,
            partition=None,
            copy_table=False,
        )
        op.existing_ttl, op.existing_sweep = self.default_ttl, self.sweep
        return op


@_register
@dataclass
class DropTTLOp(_Operation):
    """Remove TTL from a table, with everything that ``add_ttl`` and ``alter_ttl`` added.

    No row is deleted: expired rows that were not purged yet become visible again. A partitioned
    table stays partitioned.

    Args:
        table_name: The table.
        default_ttl: The `ExpireAt` or `ExpireAfter` whose index to drop, or the `Stored` whose row
            in the policy table to remove (needed only for ``--sql``); otherwise leave it out.
        schema: The table's schema.
        keep_ttl: Keep the column ``ttl`` with rows' own ttl, for a later ``add_ttl(...,
            keep_ttl=True)``.
        copy_table: Let MariaDB copy a partitioned table, which it needs to drop the columns of the
            sweeper's indexes, and MariaDB and MySQL a table that they can't change instantly.
        view: The name of the view, for ``--sql``, which can't look it up.
        in_transaction: As for ``add_ttl``.

    Raises:
        MigrationRefusedError: Before anything was changed.
    """

    verb: ClassVar[str] = "drop"

    table_name: str
    default_ttl: Declared = None
    _: KW_ONLY
    schema: str | None = None
    keep_ttl: bool = False
    copy_table: bool = False
    view: str | None = None
    in_transaction: bool = False
    added: AddTTLOp | None = field(default=None, init=False)

    def reverse(self) -> AddTTLOp:
        """Return the operation that adds TTL again."""
        return self.added or AddTTLOp(
            self.table_name,
            self.default_ttl,
            schema=self.schema,
            keep_ttl=self.keep_ttl,
            in_transaction=self.in_transaction,
        )

    def arguments(self) -> list[str]:
        """Return the source of the arguments after the table's name, without an unset default."""
        default, *options = super().arguments()
        return options if self.default_ttl is None else [default, *options]


@dataclass
class FollowsOp(_Operation):
    """The base of the operations on a table whose rows follow others."""

    noun: ClassVar[str] = "follows"

    table_name: str
    columns: Sequence[str]
    _: KW_ONLY
    schema: str | None = None
    in_transaction: bool = False

    def arguments(self) -> list[str]:
        """Return the source of the arguments after the table's name in a revision."""
        return [repr(list(map(str, self.columns))), *_as_keywords(self.options())]

    def _as(self, op_class: type[Op]) -> Op:
        options = {"schema": self.schema, "in_transaction": self.in_transaction}
        return op_class(self.table_name, self.columns, **options)  # type: ignore[arg-type]


@_register
@dataclass
class AddFollowsOp(FollowsOp):
    """Add the index on the columns by which a table's rows follow others, while others write.

    A model with ``__ttl__ = Follows(...)`` declares this index. Without it, the sweeper rejects the
    parents' table, or reads this whole table for each batch of expired parents.

    Args:
        table_name: The table whose rows follow others.
        columns: Its columns that lead to the parent, in the order of the index.
        schema: The table's schema.
        in_transaction: Stay in the migration's transaction (PostgreSQL), which blocks writers until
            it ends.

    Raises:
        MigrationRefusedError: Before anything was changed.
    """

    verb: ClassVar[str] = "add"

    def reverse(self) -> DropFollowsOp:
        """Return the operation that drops the index."""
        return self._as(DropFollowsOp)


@_register
@dataclass
class DropFollowsOp(FollowsOp):
    """Drop the index that ``op.add_follows`` added, while others write.

    Args:
        table_name: The table whose rows followed others.
        columns: The columns of the index.
        schema: The table's schema.
        in_transaction: As for ``add_follows``.

    Raises:
        MigrationRefusedError: Before anything was changed.
    """

    verb: ClassVar[str] = "drop"

    def reverse(self) -> AddFollowsOp:
        """Return the operation that adds the index again."""
        return self._as(AddFollowsOp)
