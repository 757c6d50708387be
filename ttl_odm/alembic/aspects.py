"""The seam for what migrations do for an extension: `Aspect`.

An extension has one for what it adds to a table: by an argument of an operation, by a default that
isn't in code, by a layout. `ASPECT` of its package for Alembic is the class, and there is one
instance for each operation on a table, and for each table that autogenerate compares. By itself
`Aspect` is that of a declaration of which migrations know nothing: it changes nothing, and finds no
difference.

The packages are here by their names, and are imported when

- a declaration, or an argument of an operation, asks for one;
- an operation changes or drops what a table has, or autogenerate compares it: no model says
  whether the database has a view, or a job, of the table's.

So ``op.add_ttl`` of a plain table imports none, and any of them can be missing.

This module must not know what they do.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, cast

from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.core.extension import Layout, Packaged
from ttl_odm.core.policy import default_extension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, MetaData, Table

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.alembic.target_schema import TargetSchema
    from ttl_odm.core.extension import DefaultExtension
    from ttl_odm.core.policy import Policy
    from ttl_odm.sqlalchemy.policy.bindings import Binding

    IsTable = Callable[[str | None, str], bool]
    """Whether a table is meant: its schema, None for the connection's own, and its name."""

_ARGUMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sweep", "window", "max_fraction"), "ttl_odm.database_sweep.alembic"),
    **dict.fromkeys(("enforce", "view"), "ttl_odm.live_views.alembic"),
    "partition": "ttl_odm.partitions.alembic",
}
"""The arguments of operations that ask for an extension, with its package."""

_PLAIN: Final[Mapping[str, tuple[object, ...]]] = {"sweep": ("index", "scan")}
"""The values of these that ask for none."""

_IN_DATABASE: Final = (
    "ttl_odm.stored.alembic",
    "ttl_odm.database_sweep.alembic",
    "ttl_odm.live_views.alembic",
)
"""The packages of what a database may have though no model, and no argument, says so."""

_ORDER: Final = (*_IN_DATABASE, "ttl_odm.partitions.alembic")
"""That of `Aspect.before`; those of other packages are the first."""


class Operation(Protocol):
    """An operation on a table's TTL, as it was called."""

    verb: ClassVar[str]
    table_name: str
    in_transaction: bool

    def argument(self, name: str) -> Any:
        """The value of an argument; None where the operation doesn't have it."""
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

    # Of a declaration

    @classmethod
    def written(cls, declared: Any) -> str:
        """The declaration as it stands in a revision, which imports the module of its class."""
        return f"{type(declared).__module__}.{declared!r}"

    @classmethod
    def start(cls, declared: DefaultExtension) -> int | None:  # noqa: ARG003 (others do)
        """The default ttl that a default begins with; None where nobody knows."""
        return None

    @classmethod
    def prepare(cls, stand_in: Table, declared: Sequence[MetaData]) -> None:
        """Let the stand-in of a table know where the models' MetaData have what it needs."""

    # What the database has

    @classmethod
    def tables(cls, connection: Connection, declared: Sequence[Table]) -> IsTable:  # noqa: ARG003
        """Which tables are the extension's own, that autogenerate leaves them alone."""
        return lambda schema, name: False  # noqa: ARG005

    def notes(self) -> set[str]:
        """The policies that it holds of the table, as it notes them; see `note_of`."""
        return set()

    def former(self, start: int | None, by: str | None = None) -> DefaultExtension | None:  # noqa: ARG002
        """The declaration that the database has the default by, if it has one.

        Args:
            start: The default ttl to begin with.
            by: The column by which rows have defaults of their own.
        """
        return None

    # Autogenerate

    def lacking(self, binding: Binding) -> Mapping[str, object] | None:  # noqa: ARG002
        """The arguments of the operation that makes it as the model says; None where it is so."""
        return None

    def keeping(self, verb: str) -> Mapping[str, object]:  # noqa: ARG002 (others do)
        """The arguments by which an operation leaves what is there, or its reverse makes it anew.

        Args:
            verb: "alter", or "add" for the latter.
        """
        return {}

    # Operations

    def check(self, op: Operation, steps: Steps[Any]) -> None:
        """Refuse arguments that can't be, before anything else is looked at; this only reads.

        Raises:
            MigrationRefusedError: With what to write.
        """

    def refuse(self, op: Operation, steps: Steps[Any]) -> None:
        """Refuse a table that can't get it, as the last check; this only reads.

        Raises:
            MigrationRefusedError: With the reason, and what to do.
        """

    def before(self, op: Operation, steps: Steps[Any]) -> None:
        """Do what comes before the columns and indexes are changed."""

    def after(self, op: Operation, steps: Steps[Any]) -> None:
        """Do what comes after that; the last of `before` is the first here."""


def aspect_of(declared: Packaged) -> type[Aspect]:
    """The aspect of a declaration."""
    return _imported(declared.package("alembic")) or Aspect


def seconds_of(target: TargetSchema) -> int | None:
    """The default ttl of a table, or the one that it begins with; None where nobody knows."""
    default = default_extension(target.policy)
    return target.seconds if default is None else aspect_of(default).start(default)


def written(declared: Packaged) -> str:
    """A declaration as it stands in a revision."""
    return aspect_of(declared).written(declared)


def asked_by(
    policy: Policy, arguments: Mapping[str, object], *, every: bool
) -> Iterator[type[Aspect]]:
    """The aspects of an operation, in the order of `Aspect.before`.

    Args:
        policy: What it is told of the lifetime.
        arguments: Its arguments, without those that are left out.
        every: Whether the database may have something that neither of these tells.

    Raises:
        MigrationRefusedError: The package that an argument needs isn't there.
    """
    needed = {
        value.package("alembic") if isinstance(value, Layout) else _ARGUMENTS[name]: name
        for name, value in arguments.items()
        if name in _ARGUMENTS and value not in _PLAIN.get(name, ())
    }
    default = default_extension(policy)
    declared = [] if default is None else [default.package("alembic")]
    for package in sorted({*needed, *declared, *(_IN_DATABASE if every else ())}, key=_position):
        known = _imported(package)
        if known is not None:
            yield known
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
    """The aspects of one table, of these kinds; the MetaData of the models may be anybody's."""
    kinds = list(kinds)
    for kind in kinds:
        kind.prepare(target.table, models)
    return [kind(connection, target) for kind in kinds]


def of_table(binding: Binding) -> list[type[Aspect]]:
    """The aspects of a table that autogenerate compares, but for that of a layout."""
    default = default_extension(binding.policy)
    declared = [] if default is None else [default.package("alembic")]
    return list(_present({*declared, *_IN_DATABASE}))


def of_tables(declared: Iterable[Binding]) -> list[type[Aspect]]:
    """The aspects of all tables that autogenerate compares."""
    kinds = dict.fromkeys(in_database())
    for binding in declared:
        kinds |= dict.fromkeys(of_table(binding))
        if binding.layout is not None:
            kinds[aspect_of(binding.layout.declared)] = None
    return list(kinds)


def in_database() -> Iterator[type[Aspect]]:
    """The aspects of what a database may have, whatever its models say."""
    return _present(_IN_DATABASE)


def _present(packages: Iterable[str]) -> Iterator[type[Aspect]]:
    for package in sorted(packages, key=_position):
        known = _imported(package)
        if known is not None:
            yield known


def _position(package: str) -> int:
    return _ORDER.index(package) if package in _ORDER else -1


@cache
def _imported(package: str) -> type[Aspect] | None:
    """The aspect of a package; None where there is no such package."""
    try:
        module = import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):
            raise
        return None
    return cast("type[Aspect]", module.ASPECT)
