"""``op.add_ttl``, ``op.alter_ttl`` and ``op.drop_ttl``.

What users write and what autogenerate writes for them: each operation stands beside its reverse and
its text in a revision. What it then does to a database is in `ttl_odm.alembic.implementation`.

An operation's fields are its options: `_register` makes ``op.add_ttl`` and the like of them, with
the class's docstring.
"""

from __future__ import annotations

import inspect
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from alembic.autogenerate import renderers
from alembic.operations import BatchOperations, MigrateOperation, Operations

from ttl_odm.core.partitions import Partitions
from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt, Policy
from ttl_odm.core.stored import Stored

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

    from ttl_odm.alembic.enforcement import Enforce
    from ttl_odm.alembic.target_schema import Sweep

Declared = int | float | timedelta | Policy | Stored | None
"""What ``__ttl__`` may be."""


class _Operation(MigrateOperation):
    """What the three have in common: a table, how they are called, and a text in a revision."""

    verb: ClassVar[str]
    table_name: str
    default_ttl: Declared
    schema: str | None
    in_transaction: bool

    if TYPE_CHECKING:  # as the dataclasses below have it

        def __init__(self, table_name: str, default_ttl: Declared, **options: Any) -> None: ...

    @classmethod
    def on_table(
        cls, operations: Operations, table_name: str, *default_ttl: Any, **options: Any
    ) -> None:
        """Run it."""
        operations.invoke(cls(table_name, *default_ttl, **options))

    @classmethod
    def in_batch(cls, operations: BatchOperations, *default_ttl: Any, **options: Any) -> None:
        """Run it when the batch has done its own work, for it may replace the table."""
        impl: Any = operations.impl
        op = cls(impl.table_name, *default_ttl, schema=impl.schema, **options)
        flush = impl.flush

        def flush_and_run() -> None:
            flush()
            impl.operations.invoke(op)

        impl.flush = flush_and_run

    def arguments(self) -> list[str]:
        """What stands behind the table's name in a revision."""
        return [written(self.default_ttl), *_as_keywords(self.options())]

    def options(self, *without: str) -> dict[str, Any]:
        """The options that differ from their defaults, but for these."""
        return {
            option.name: getattr(self, option.name)
            for option in fields(self)  # type: ignore[arg-type]
            if option.kw_only
            and option.init
            and option.name not in ("schema", *without)
            and getattr(self, option.name) != option.default
        }

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """What ``alembic check`` shows."""
        return (f"{self.verb}_ttl", self.schema, self.table_name, *self.arguments())


Op = TypeVar("Op", bound=_Operation)


def _register(op_class: type[Op]) -> type[Op]:
    """Make ``op.<verb>_ttl``, and the same in a batch, of an operation's class."""
    name = f"{op_class.verb}_ttl"
    documentation = op_class.__doc__
    signature = inspect.signature(op_class)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for operations, source in ((Operations, "on_table"), (BatchOperations, "in_batch")):
        # Alembic takes the docstring from here, and leaves another.
        getattr(op_class, source).__func__.__doc__ = documentation
        operations.register_operation(name, source)(op_class)
        parameters = list(signature.parameters.values())
        if operations is BatchOperations:
            parameters = [one for one in parameters if one.name not in ("table_name", "schema")]
        function: Any = getattr(operations, name)
        function.__signature__ = signature.replace(parameters=[itself, *parameters])
    return op_class


@renderers.dispatch_for(_Operation)
def _render(autogen_context: AutogenContext, op: _Operation) -> str:
    in_batch = getattr(autogen_context, "_has_batch", False)
    table = [] if in_batch else [repr(str(op.table_name))]
    schema = [] if in_batch or op.schema is None else [f"schema={str(op.schema)!r}"]
    # It gives op the operation, also where env.py doesn't; and it names ttl_odm.
    autogen_context.imports.add("import ttl_odm.alembic")
    prefix = "batch_op." if in_batch else autogen_context.opts.get("alembic_module_prefix", "op.")
    return f"{prefix}{op.verb}_ttl({', '.join([*table, *op.arguments(), *schema])})"


def written(value: object) -> str:
    """A declaration, or an option, as it stands in a revision."""
    if isinstance(value, TTL):
        inner = repr(value.stored)
        return f"ttl_odm.{value!r}".replace(inner, f"ttl_odm.{inner}", 1)
    if isinstance(value, Stored):
        return f"ttl_odm.{value!r}"
    if isinstance(value, Partitions):
        rest = _but_defaults(value, "span")
        if not rest:
            return repr(value.span)
        return f"ttl_odm.Partitions({', '.join([repr(value.span), *rest])})"
    if isinstance(value, (ExpireAfter, ExpireAt)):
        first = [value.field, value.seconds] if isinstance(value, ExpireAfter) else [value.field]
        arguments = [*map(repr, first), *_but_defaults(value, "field", "seconds")]
        return f"ttl_odm.{type(value).__name__}({', '.join(arguments)})"
    return repr(value)


def _but_defaults(value: Partitions | ExpireAfter | ExpireAt, *without: str) -> list[str]:
    usual = {"ahead": 7, "survivors": "sweep", "made_by": "sweeper"}
    usual |= {"timezone": "UTC", "unit": None, "null": "never"}
    return [
        f"{name}={getattr(value, name)!r}"
        for name in (field.name for field in fields(value))
        if name not in without and getattr(value, name) != usual[name]
    ]


def _as_keywords(options: dict[str, Any]) -> list[str]:
    return [f"{name}={written(value)}" for name, value in options.items()]


@_register
@dataclass
class AddTTLOp(_Operation):
    """Put TTL on a table that may be in use.

    Args:
        table_name: The table.
        default_ttl: What the model says: seconds, a timedelta, -1 (rows live for ever by
            default) or None (TTL is off). It is not stored with the rows. With `Stored` the
            migration makes the table of the policies, and the row that the default begins with;
            what is stored already stays as it is.
        schema: The table's schema.
        backfill: When old rows begin to live: "now", or a column of dates and times with the
            moment of their last modification (NULL there means now). None: they never expire
            (ttl -1).
        sweep: "index" if the model's ``__ttl_sweep__`` is, which is the default, or "scan".
        touch_trigger: Let a trigger stamp rows that are updated by raw SQL.
        enforce: Hide expired rows from readers outside Python, by a view TABLE_live ("view"), or
            by row-level security ("rls", PostgreSQL).
        view: The name of that view, in place of TABLE_live.
        keep_ttl: Take over a column ``ttl`` that is there, with its values.
        max_expired_now: Refuse if more than this part of the rows (0 to 1) would expire at
            once.
        partition: Cut the table by time: the model's ``__ttl_partition__``, or only its span
            ("1 day"). A table that is there becomes the first partition of the new one, while
            others read and write it. On a database without partitions it is a table like any.
        copy_table: Let MySQL enforce the CHECK of rows' own ttl, for which it copies the table
            and keeps writers out meanwhile; otherwise it is added as NOT ENFORCED, at once.
            The other databases enforce it without a copy.
        in_transaction: Stay in the migration's transaction (PostgreSQL), with its locks until
            the end: for a table that the same revision creates. On MySQL as ``copy_table``.

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
    touch_trigger: bool = False
    enforce: Enforce | None = None
    view: str | None = None
    keep_ttl: bool = False
    max_expired_now: float | None = None
    partition: str | Partitions | None = None
    copy_table: bool = False
    in_transaction: bool = False

    def reverse(self) -> DropTTLOp:
        """Take it off again."""
        leaves_more = isinstance(self.default_ttl, (ExpireAfter, ExpireAt, Stored))
        op = DropTTLOp(
            self.table_name,
            self.default_ttl if leaves_more else None,
            schema=self.schema,
            keep_ttl=self.keep_ttl,
            view=self.view,
            in_transaction=self.in_transaction,
        )
        op.added = self
        return op

    def arguments(self) -> list[str]:
        """What stands behind the table's name in a revision."""
        options = self.options("backfill")
        # Else there are no old rows to think of; what becomes of them should meet the eye.
        if not self.in_transaction and not isinstance(self.default_ttl, (ExpireAfter, ExpireAt)):
            options = {"backfill": self.backfill, **options}
        return [written(self.default_ttl), *_as_keywords(options)]


@_register
@dataclass
class AlterTTLOp(_Operation):
    """Change what a table's TTL has in the database, or fix it.

    A default ttl is not stored: a new one changes no row and needs no migration. It is written
    here for the view and the row-level security, which hold it, and for max_expired_now. Where the
    model has `Stored` by now, its row of the policies is made; it goes where the model has none
    any more.

    Args:
        table_name: The table.
        default_ttl: What the model says now.
        schema: The table's schema.
        sweep: "index" adds the indexes that are missing or invalid, "scan" drops them.
        touch_trigger: Add the trigger, or drop it.
        enforce: Put "view" or "rls", or take both "off".
        view: The name of that view; one that is there under another name gives way.
        max_expired_now: Refuse if more than this part of the rows (0 to 1) would be expired
            under the new default.
        partition: Cut the table by time, as for ``add_ttl``.
        copy_table: Let MySQL enforce a CHECK that is NOT ENFORCED, for which it copies the table.
        in_transaction: As for ``add_ttl`` on PostgreSQL.

    What is left out stays as it is.

    Raises:
        MigrationRefusedError: Before anything was changed.
    """

    verb: ClassVar[str] = "alter"

    table_name: str
    default_ttl: Declared
    _: KW_ONLY
    schema: str | None = None
    sweep: Sweep | None = None
    touch_trigger: bool | None = None
    enforce: Enforce | Literal["off"] | None = None
    view: str | None = None
    max_expired_now: float | None = None
    partition: str | Partitions | None = None
    copy_table: bool = False
    in_transaction: bool = False
    existing_ttl: Declared = field(default=None, init=False)
    existing_sweep: Sweep | None = field(default=None, init=False)

    def reverse(self) -> AlterTTLOp:
        """Back to what autogenerate saw."""
        op = replace(
            self,
            default_ttl=self.existing_ttl,
            sweep=self.existing_sweep,
            partition=None,
            copy_table=False,
        )
        op.existing_ttl, op.existing_sweep = self.default_ttl, self.sweep
        return op


@_register
@dataclass
class DropTTLOp(_Operation):
    """Take TTL off a table, with all that ``add_ttl`` and ``alter_ttl`` put on it.

    No row is deleted: those that were expired and not purged yet can be seen again. A table that is
    cut by time stays cut.

    Args:
        table_name: The table.
        default_ttl: The `ExpireAt` or `ExpireAfter` whose index is to go, or the `Stored` whose row
            of the policies is (which only ``--sql`` has to be told); else nothing.
        schema: The table's schema.
        keep_ttl: Leave the column ``ttl`` where it is, with rows' own ttl, for a later
            ``add_ttl(..., keep_ttl=True)``.
        copy_table: Let MariaDB copy a table that is cut by time, as it does to drop the columns
            that the sweeper's indexes are on.
        view: The name of the view, for ``--sql``, which can't look for it.
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
        """Put it on again."""
        return self.added or AddTTLOp(
            self.table_name,
            self.default_ttl,
            schema=self.schema,
            keep_ttl=self.keep_ttl,
            in_transaction=self.in_transaction,
        )

    def arguments(self) -> list[str]:
        """What stands behind the table's name in a revision: no default, unless it has an index."""
        default, *options = super().arguments()
        return options if self.default_ttl is None else [default, *options]
