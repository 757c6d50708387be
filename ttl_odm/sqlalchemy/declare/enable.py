"""`enable` and `disable`: a policy on a class or Table of others, without changing its source.

A class gets ``__ttl__`` as if it had declared it; a Table to which no class is mapped gets an owner
that keeps it. Everything else is as for declared models: the policy is bound to the table,
sub-tables share it, single-table subclasses may have defaults of their own. Statements that were
compiled before are compiled again (`ttl_odm.sqlalchemy.gate.compiler`).
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Column, ColumnDefault, FromClause, Integer, Table

from ttl_odm.core.class_attributes import Overlay
from ttl_odm.core.policy import TTL, Policy, as_policy
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.declare.mapper import bind_mapper, bind_table, without_own
from ttl_odm.sqlalchemy.gate.compiler import enclose_handlers, policy_change, recompile
from ttl_odm.sqlalchemy.policy.bindings import binding_of, root_binding_of, tables_like, unbind
from ttl_odm.sqlalchemy.policy.references import names_above
from ttl_odm.sqlalchemy.rewrite.from_clauses import target_name
from ttl_odm.sqlalchemy.rewrite.writes import Stamp
from ttl_odm.sqlalchemy.time.clock import LastModified
from ttl_odm.sqlalchemy.time.instants import Stored
from ttl_odm.sweeper.hooks import declarations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from sqlalchemy.orm import Mapper
    from sqlalchemy.types import TypeEngine

    from ttl_odm.core.extension import DefaultExtension, Layout
    from ttl_odm.sweeper import ArchiveSink
    from ttl_odm.sweeper.hooks import Archive

    Declaration = Policy | DefaultExtension | float | timedelta | None

_TYPE_BEFORE: Final = "ttl_odm_type_before"
_OURS: Final = frozenset(("_ts", "ttl"))
"""The columns that a migration adds."""

_lock = RLock()
_overlay = Overlay()


def enable(  # noqa: PLR0913 (what a class may declare)
    target: Any,
    policy: Declaration,
    *,
    purge: str | None = None,
    archive: Archive | ArchiveSink | None = None,
    on_purged: Any = None,
    sweep: str | None = None,
    partition: Layout | None = None,
) -> None:
    """Give a mapped class or a Table a lifetime, even one from another package.

    From then on the class behaves as if it had declared ``__ttl__ = policy``, for every session,
    engine and statement, including existing ones. Other threads may run statements on the table
    meanwhile; those that have begun finish with the policy that they began with. A second call
    with another policy replaces the first. If only the default ttl changes, the change takes
    effect at once.

    The database isn't changed: the columns that the policy names must exist.

    Args:
        target: A mapped class (declared, automapped, or from another package), the base or a
            single-table subclass of a hierarchy, or a Table (declared or reflected).
        policy: Any value of ``__ttl__``: seconds, -1, None, `Stored`, `TTL`, `ExpireAfter`,
            `ExpireAt`.
        purge: Any value of ``__ttl_purge__``: how expired rows are deleted, "delete" or "orm". For
            this and the next four arguments, None keeps what the class declares or was given
            before.
        archive: Any value of ``__ttl_archive__``: where expired rows are kept.
        on_purged: Any value of ``__ttl_on_purged__``: the hook to call for them.
        sweep: Any value of ``__ttl_sweep__``: how expired rows are found. None uses the indexes
            that the database has, and scans the table if they don't suffice. "index" does the
            same, and has ``create_all()`` and Alembic create the missing ones. "scan" always scans
            the table.
        partition: Any value of ``__ttl_partition__``: how the table is partitioned by time. If it
            is partitioned already and others create the partitions, use ``made_by="others"``.

    Raises:
        InvalidTTL: The policy is a number that is not a ttl.
        TTLConfigurationError: The table lacks a column that the policy needs, or the target is a
            joined subclass of another class, or is neither a mapped class nor a Table.
    """
    where = f"enable({target_name(target)})"
    as_policy(policy, where=where)  # raises before anything happens
    modes = declarations(purge=purge, archive=archive, on_purged=on_purged, sweep=sweep)
    if partition is not None:
        modes["__ttl_partition__"] = partition
    with _lock:
        resolved = _Target.of(target)
        resolved.settle()
        policy = resolved.completed(policy)
        is_default_alone = not modes and resolved.differs_by_default(policy)
        if not is_default_alone and (resolved.is_whole or isinstance(policy, Policy)):
            resolved.check_columns(as_policy(policy), where=where)
        if not is_default_alone:
            resolved.retire()
        attributes = {"__ttl__": policy, **modes}
        with _overlay.put(resolved.owner, attributes, undone=resolved.bind_again):
            if not is_default_alone:
                resolved.bind_again()


def disable(target: object) -> None:
    """Undo `enable`: the class's own declaration, if any, applies again.

    Raises:
        TTLConfigurationError: The target was not enabled.
    """
    with _lock:
        resolved = _Target.of(target)
        resolved.settle()
        resolved.retire()
        _overlay.remove(resolved.owner, name=target_name(target))
        resolved.bind_again()


class _TableOwner:
    """Takes the place of a class for a Table to which no class is mapped."""

    def __init__(self, name: str) -> None:
        self.__name__ = name


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a policy belongs: the owner of its ``__ttl__``, the root table and its mappers."""

    owner: Any
    table: Table
    roots: tuple[Mapper[Any], ...]

    @classmethod
    def of(cls, target: Any) -> _Target:
        """Return the target; TTLConfigurationError if it can't have a policy."""
        if isinstance(target, Table):
            return cls._of_table(target)
        mapper = compat.mapper_of(target)
        if mapper is None:
            raise TTLConfigurationError(
                f"{target_name(target)} is not a mapped class or a Table, so it can't be enabled "
                "(an automapped class is one after Base.prepare(); for an instance, an alias or "
                "a mapper, give the class)."
            )
        root = _root(mapper)
        table = root.local_table
        if not isinstance(table, Table):
            raise TTLConfigurationError(
                f"{target_name(target)} is mapped to {type(table).__name__}, not to a Table; "
                "enable the tables inside it."
            )
        if mapper is root:
            return cls._of_table(table, target)
        if mapper.local_table is not table and not mapper.single:
            raise TTLConfigurationError(
                f"{target_name(target)} is a joined subclass: it shares its rows with "
                f"{root.class_.__name__}, and they live and die together. Enable "
                f"{root.class_.__name__}."
            )
        return cls(target, table, roots_of(table))

    @classmethod
    def _of_table(cls, table: Table, mapped: type | None = None) -> _Target:
        roots, binding = roots_of(table), binding_of(table)
        if binding is not None and binding.origin is not None:
            _unbind(table)  # it gets a policy of its own
        elif binding is not None:
            return cls(binding.default.owner, table, roots)
        if roots:
            return cls(mapped or roots[0].class_, table, roots)
        for mapper in compat.mappers():
            if mapper.local_table is table:
                return cls.of(mapper.class_)  # a joined subclass: raises the error
        return cls(_TableOwner(table.fullname), table, ())

    @property
    def is_whole(self) -> bool:
        """Whether the policy is for all rows of the table, not for those of a subclass."""
        mappers = self.mappers()
        return not any(
            mapper.class_ is self.owner and mapper is not _root(mapper) for mapper in mappers
        )

    def mappers(self) -> Iterator[Mapper[Any]]:
        """Yield the mappers of the hierarchies on this table, base classes first."""
        for root in self.roots:
            yield from root.self_and_descendants

    def settle(self) -> None:
        """Write out a bare number that is the default of a policy over other columns.

        The class may be bound again, and would then count as one with the contract's columns.
        """
        binding = binding_of(self.table)
        if binding is None or isinstance(getattr(binding.default.owner, "__ttl__", None), Policy):
            return
        policy = binding.default.policy
        if isinstance(policy, TTL) and policy.shape != TTL().shape:
            binding.default.owner.__ttl__ = policy

    def completed(self, policy: Declaration) -> Declaration:
        """Return a policy in full.

        For a number, this is the policy whose default it changes, unless that one has the
        contract's columns.
        """
        binding = binding_of(self.table)
        if (
            binding is None
            or binding.default.owner is not self.owner
            or isinstance(policy, Policy)
            or not isinstance(binding.policy, TTL)
        ):
            return policy
        full = binding.policy.with_default(policy)
        return policy if full.shape == TTL().shape else full

    def differs_by_default(self, policy: Declaration) -> bool:
        """Return whether a declaration differs from the owner's only in the default ttl."""
        binding = binding_of(self.table)
        if binding is None or all(
            default.owner is not self.owner for default in binding.defaults()
        ):
            return False
        if not isinstance(binding.policy, TTL):
            return policy == binding.policy
        if isinstance(policy, TTL):
            return policy.shape == binding.policy.shape
        return not isinstance(policy, Policy)  # a number always does

    def check_columns(self, policy: Policy, *, where: str) -> None:
        """Raise TTLConfigurationError if a column of the policy doesn't exist."""
        names: tuple[str | None, ...]
        if isinstance(policy, TTL):
            names = (policy.last_modified, policy.override, policy.by, policy.created)
        else:
            names = (policy.field,)
        missing = [name for name in names if name is not None and self._column(name) is None]
        if not missing:
            return
        columns = f"column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
        message = f"{where}: table {self.table.fullname!r} has no {columns}. "
        if (
            isinstance(policy, TTL)
            and missing == [policy.override]
            and policy.last_modified != "_ts"
        ):
            message += f"{without_own(policy)}. "
        if not set(missing) <= _OURS:
            existing = ", ".join(map(repr, self.table.c.keys()))
            raise TTLConfigurationError(f"{message}It has {existing}.")
        default = policy.default if isinstance(policy, TTL) else None
        it = "them" if len(missing) > 1 else "it"
        raise TTLConfigurationError(
            f"{message}Add {it} in a migration, with op.add_ttl({self.table.name!r}, {default!r}) "
            "of ttl_odm.alembic or by hand (docs/schema.md#an-existing-table), then reflect the "
            f"table again or declare {it}. Or name columns that the table has: TTL(seconds, "
            "last_modified=..., override=...), with override=None if no row has a ttl of its "
            "own, ExpireAfter or ExpireAt."
        )

    def _column(self, name: str) -> Column[Any] | None:
        column = self.table.c.get(name)
        if column is not None:
            return column
        return next((root.columns[name] for root in self.roots if name in root.columns), None)

    def retire(self) -> None:
        """Let running statements finish with the policy that they began with."""
        binding = binding_of(self.table)
        for default in () if binding is None else binding.defaults():
            default.retire()

    def bind_again(self) -> None:
        """Bind what the owner, and the classes under it, declare now."""
        enclose_handlers()
        with policy_change.changing():
            names = self._bind_again()
        recompile(names)

    def _bind_again(self) -> set[str]:
        """Bind again, and return the names of the tables whose statements are outdated."""
        tables = {self.table, *(mapper.local_table for mapper in self.mappers())}
        names: set[str] = set()
        for table in tables:
            if isinstance(table, Table):
                # A write to a table that it refers to deletes the expired rows here first.
                names |= {table.name, *names_above([table])}
            _unbind(table)
        if hasattr(self.owner, "__ttl__"):
            # A ``_ts`` that isn't TTLMixin's own (a reflected one) gets the type of TTLMixin's.
            declared, column = self.owner.__ttl__, self._column("_ts")
            policy = declared if isinstance(declared, Policy) else TTL()
            if (
                column is not None  # None: a number for a subclass of a base with other columns
                and isinstance(policy, TTL)
                and (policy.last_modified == "_ts" and policy.unit is None)
                and (isinstance(column.type, Integer) or getattr(column.type, "timezone", False))
            ):
                column.info[_TYPE_BEFORE] = column.type
                _retype(column, LastModified())
            if isinstance(self.owner, _TableOwner):
                bind_table(self.table, self.owner, next(iter(self.roots), None), is_ours=False)
        for mapper in self.mappers():
            bind_mapper(mapper, mapper.class_, is_ours=False)
            compat.forget_memos(mapper)
        return names


def _unbind(table: FromClause) -> None:
    binding = binding_of(table)
    if not isinstance(table, Table) or root_binding_of(table) is None:
        return
    for other in tables_like(table):
        _unbind(other)
    unbind(table)
    if binding is None:  # the table of a joined subclass
        return
    if binding.layout is not None:
        binding.layout.undo()
    stamp = binding.last_modified
    if isinstance(stamp.default, ColumnDefault) and isinstance(stamp.default.arg, (Stamp, Stored)):
        stamp.default = binding.default_before
    if _TYPE_BEFORE in stamp.info:
        _retype(stamp, stamp.info.pop(_TYPE_BEFORE))


def _retype(column: Column[Any], type_: TypeEngine[Any]) -> None:
    column.type = type_
    column.__dict__.pop("comparator", None)  # the memoized one has the old type


def _root(mapper: Mapper[Any]) -> Mapper[Any]:
    while mapper.inherits is not None and not mapper.concrete:
        mapper = mapper.inherits
    return mapper


def roots_of(table: Table) -> tuple[Mapper[Any], ...]:
    """Return the mappers of a table that inherit from no other."""
    return tuple(
        mapper
        for mapper in compat.mappers()
        if mapper.local_table is table and mapper is _root(mapper)
    )
