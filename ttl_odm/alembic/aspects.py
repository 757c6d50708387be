"""The seam between migrations and extensions: `Aspect`.

An aspect is what an extension adds to a table: for an argument of an operation, for a default that
isn't in code, for a layout. Its class is `ASPECT` in the extension's package for Alembic, with one
instance per operation on a table, and per table that autogenerate compares. `Aspect` itself serves
declarations that migrations know nothing of: it changes nothing and finds no difference.

This module names the packages, and imports one when

- a declaration, or an argument of an operation, needs it;
- an operation changes or drops a table's TTL, or autogenerate compares the table: no model tells
  whether the database has a view or a job for it.

So ``op.add_ttl`` of a plain table imports none of them, and each of them can be missing.

This module must not know what extensions do.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, cast

from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.core.extension import Layout, Packaged
from ttl_odm.core.policy import default_extension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, MetaData, Table

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.alembic.target_schema import TargetSchema
    from ttl_odm.core.extension import DefaultExtension
    from ttl_odm.core.policy import Policy
    from ttl_odm.dialects import Family
    from ttl_odm.sqlalchemy.policy.bindings import Binding

    IsTable = Callable[[str | None, str], bool]
    """Whether a table is an extension's own, by its schema (None: the connection's) and name."""

_ARGUMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sweep", "window", "max_fraction"), "ttl_odm.database_sweep.alembic"),
    **dict.fromkeys(("enforce", "view"), "ttl_odm.live_views.alembic"),
    "partition": "ttl_odm.partitions.alembic",
}
"""The arguments of operations that need an extension, with its package."""

_PLAIN: Final[Mapping[str, tuple[object, ...]]] = {"sweep": ("index", "scan")}
"""The values of these arguments that need no extension."""

_IN_DATABASE: Final = (
    "ttl_odm.stored.alembic",
    "ttl_odm.database_sweep.alembic",
    "ttl_odm.live_views.alembic",
)
"""The packages of what a database may have although no model and no argument says so."""

_ORDER: Final = (*_IN_DATABASE, "ttl_odm.partitions.alembic")
"""The order of `Aspect.before`; all other packages come first."""


class Operation(Protocol):
    """An operation on a table's TTL, as it was called."""

    verb: ClassVar[str]
    table_name: str
    in_transaction: bool

    def argument(self, name: str) -> Any:
        """Return the value of an argument, or None if the operation doesn't have it."""
        ...


class Aspect:
    """What an extension adds to one table.

    Args:
        connection: The database; None while a script is written.
        target: What the table has once it has TTL.
    """

    def __init__(self, connection: Connection | None, target: TargetSchema) -> None:
        self.connection = connection
        self.target = target

    # The declaration

    @classmethod
    def written(cls, declared: Any) -> str:
        """Return the source of the declaration in a revision, which imports its class's module."""
        return f"{type(declared).__module__}.{declared!r}"

    @classmethod
    def start(cls, declared: DefaultExtension) -> int | None:  # noqa: ARG003 (others do)
        """Return the default ttl that a default starts with; None if it is unknown."""
        return None

    @classmethod
    def prepare(cls, stand_in: Table, declared: Sequence[MetaData]) -> None:
        """Give a table's stand-in what it needs from the models' MetaData."""

    # What the database has

    @classmethod
    def tables(cls, connection: Connection, declared: Sequence[Table]) -> IsTable:  # noqa: ARG003
        """Return what recognizes the extension's own tables, which autogenerate leaves alone."""
        return lambda schema, name: False  # noqa: ARG005

    def notes(self) -> set[str]:
        """Return the fingerprints of the policies that the database holds; see `note_of`."""
        return set()

    def former(self, start: int | None, by: str | None = None) -> DefaultExtension | None:  # noqa: ARG002
        """Return the declaration of the default that the database has, if it has one.

        Args:
            start: The default ttl that the declaration starts with.
            by: The column by which rows have defaults of their own.
        """
        return None

    # Autogenerate

    def lacking(self, binding: Binding) -> Mapping[str, object] | None:  # noqa: ARG002
        """Return the arguments that bring the database to the model's state; None if it has it."""
        return None

    def keeping(self, verb: str) -> Mapping[str, object]:  # noqa: ARG002 (others do)
        """Return the arguments that keep what the database has now.

        Args:
            verb: "alter" for an operation that leaves it as it is, "add" for one that makes it
                again after it was dropped.
        """
        return {}

    # Operations

    def check(self, op: Operation, steps: Steps[Family]) -> None:
        """Reject invalid arguments, as the first check. It only reads.

        Raises:
            MigrationRefusedError: With what to write.
        """

    def refuse(self, op: Operation, steps: Steps[Family]) -> None:
        """Reject a table that can't have what the extension adds, as the last check. It only reads.

        Raises:
            MigrationRefusedError: With the reason, and what to do.
        """

    def before(self, op: Operation, steps: Steps[Family]) -> None:
        """Make the extension's changes that come before those of columns and indexes."""

    def after(self, op: Operation, steps: Steps[Family]) -> None:
        """Make the changes that come after those of columns and indexes, in reverse order."""


def aspect_of(declared: Packaged) -> type[Aspect]:
    """Return the aspect of a declaration."""
    return _imported(declared.package("alembic")) or Aspect


def seconds_of(target: TargetSchema) -> int | None:
    """Return a table's default ttl, or the one that it starts with; None if it is unknown."""
    default = default_extension(target.policy)
    return target.seconds if default is None else aspect_of(default).start(default)


def written(declared: Packaged) -> str:
    """Return the source of a declaration in a revision."""
    return aspect_of(declared).written(declared)


def of_operation(
    policy: Policy, arguments: Mapping[str, object], *, may_have_more: bool
) -> Iterator[type[Aspect]]:
    """Yield the aspects of an operation, in the order of `Aspect.before`.

    Args:
        policy: The operation's policy.
        arguments: The operation's arguments that were passed.
        may_have_more: Whether the database may have something that neither of these names.

    Raises:
        MigrationRefusedError: The package that an argument needs doesn't exist.
    """
    needed = {
        value.package("alembic") if isinstance(value, Layout) else _ARGUMENTS[name]: name
        for name, value in arguments.items()
        if name in _ARGUMENTS and value not in _PLAIN.get(name, ())
    }
    default = default_extension(policy)
    declared = [] if default is None else [default.package("alembic")]
    present = _IN_DATABASE if may_have_more else ()
    for package in sorted({*needed, *declared, *present}, key=_position):
        kind = _imported(package)
        if kind is not None:
            yield kind
        elif package in needed:
            raise MigrationRefusedError(
                f"{needed[package]}={arguments[needed[package]]!r} needs the package {package}, "
                "which doesn't exist."
            )


def on_table(
    kinds: Iterable[type[Aspect]],
    connection: Connection | None,
    target: TargetSchema,
    models: Sequence[MetaData],
) -> list[Aspect]:
    """Return one table's aspects of these kinds.

    Args:
        kinds: The classes of the aspects.
        connection: The database; None while a script is written.
        target: What the table has once it has TTL.
        models: All MetaData of the models, whether or not they have this table.
    """
    kinds = list(kinds)
    for kind in kinds:
        kind.prepare(target.table, models)
    return [kind(connection, target) for kind in kinds]


def of_table(binding: Binding) -> list[type[Aspect]]:
    """Return the aspects of a table that autogenerate compares, without that of its layout."""
    default = default_extension(binding.policy)
    declared = [] if default is None else [default.package("alembic")]
    return list(_present({*declared, *_IN_DATABASE}))


def of_tables(declared: Iterable[Binding]) -> list[type[Aspect]]:
    """Return the aspects of all tables that autogenerate compares."""
    kinds = dict.fromkeys(in_database())
    for binding in declared:
        kinds |= dict.fromkeys(of_table(binding))
        if binding.layout is not None:
            kinds[aspect_of(binding.layout.declared)] = None
    return list(kinds)


def in_database() -> Iterator[type[Aspect]]:
    """Yield the aspects of what a database may have, whatever its models say."""
    return _present(_IN_DATABASE)


def _present(packages: Iterable[str]) -> Iterator[type[Aspect]]:
    for package in sorted(packages, key=_position):
        kind = _imported(package)
        if kind is not None:
            yield kind


def _position(package: str) -> int:
    return _ORDER.index(package) if package in _ORDER else -1


@cache
def _imported(package: str) -> type[Aspect] | None:
    """Return the aspect of a package, or None if the package doesn't exist."""
    try:
        module = import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):
            raise
        return None
    return cast("type[Aspect]", module.ASPECT)
