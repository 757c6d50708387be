"""`enable` and `disable`: a policy on a class or Table that isn't ours, its source untouched.

A class gets ``__ttl__`` as if it had declared it; a Table that no class is mapped to gets an
owner of its own that keeps it. Everything else is as for declared models: the policy is bound to
the table, sub-tables hang on it, single-table subclasses may have defaults of their own. What was
compiled before is compiled again (`ttl_odm.sqlalchemy.gate.recompile`).
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import RLock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnDefault, Integer, Table, inspect
from sqlalchemy.orm import Mapper
from sqlalchemy.orm.mapper import _all_registries

from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt, Policy, as_policy
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.declare import mapper as mapping
from ttl_odm.sqlalchemy.gate import compiler
from ttl_odm.sqlalchemy.gate.recompile import recompile
from ttl_odm.sqlalchemy.policy.binding import INFO_KEY, binding_of, bound_tables, root_binding_of
from ttl_odm.sqlalchemy.policy.foreign_keys import referred_table
from ttl_odm.sqlalchemy.rewrite.stamps import Stamp
from ttl_odm.sqlalchemy.time.column_types import LastModified
from ttl_odm.sqlalchemy.time.instants import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta

    from ttl_odm.sweeper import ArchiveSink
    from ttl_odm.sweeper.declarations import Archive

_MISSING: Final = object()
_TYPE_BEFORE: Final = "ttl_odm_type_before"
_CONTRACT: Final = {
    "_ts": "PostgreSQL: _ts timestamptz NOT NULL DEFAULT now(); MariaDB: _ts BIGINT NOT NULL, "
    "epoch microseconds; SQLite: _ts INTEGER NOT NULL, epoch milliseconds",
    "ttl": "ttl INTEGER NULL CHECK (ttl IS NULL OR ttl = -1 OR ttl > 0)",
}

_lock = RLock()
_attributes_before: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()
"""What `enable` has replaced in a class, for `disable`; `_MISSING` for what wasn't there."""


def enable(  # noqa: PLR0913 (what a class may declare)
    target: Any,
    policy: Policy | float | timedelta | None,
    *,
    purge: str | None = None,
    archive: Archive | ArchiveSink | None = None,
    on_purged: Any = None,
    sweep: str | None = None,
) -> None:
    """Give a mapped class or a Table a lifetime, whoever wrote it.

    From then on it is as if the class had declared ``__ttl__ = policy``: for every session,
    engine and statement, also those that were used before. Do it where the application starts,
    before other threads run statements on the table. Once more with another policy replaces the
    first; a change of the default ttl alone acts at once, as everywhere.

    Nothing happens in the database: the columns that the policy names must be there.

    Args:
        target: a mapped class (declared, automapped, of another package), the base or a
            single-table subclass of a hierarchy, or a Table (declared or reflected).
        policy: what ``__ttl__`` may be: seconds, -1, None, `TTL`, `ExpireAfter`, `ExpireAt`.
        purge: what ``__ttl_purge__`` may be: how expired rows go, "delete" or "orm". None, here
            and in the next three, leaves what the class declares or was given before.
        archive: what ``__ttl_archive__`` may be: where expired rows are kept.
        on_purged: what ``__ttl_on_purged__`` may be: whom to tell of them.
        sweep: what ``__ttl_sweep__`` may be: how expired rows are found. "scan" unless a class
            declares something else: "index" needs the indexes of `TTLMixin`.

    Raises:
        InvalidTTL: the policy is a number that is no ttl.
        TTLConfigurationError: the table lacks a column that the policy needs, the target is the
            joined subclass of another class, or no class or Table at all.
    """
    as_policy(policy, where=f"enable({_name(target)})")  # raises before anything happens
    modes = {
        "__ttl_purge__": purge,
        "__ttl_archive__": archive,
        "__ttl_on_purged__": on_purged,
        "__ttl_sweep__": sweep,
    }
    modes = {name: value for name, value in modes.items() if value is not None}
    with _lock:
        place = _Place.of(target)
        place.settle()
        policy = place.completed(policy)
        is_default_alone = not modes and place.differs_by_default(policy)
        if not is_default_alone and (place.is_whole or isinstance(policy, Policy)):
            place.check_columns(as_policy(policy))
        if not hasattr(place.owner, "__ttl_sweep__"):
            modes.setdefault("__ttl_sweep__", "scan")
        before = place.replace({"__ttl__": policy, **modes})
        try:
            if not is_default_alone:
                place.bind_again()
        except BaseException:
            place.replace(before)
            place.bind_again()
            raise
        place.remember(before)


def disable(target: Any) -> None:
    """Undo `enable`: what the class declares itself, if anything, counts again.

    Raises:
        TTLConfigurationError: the target was not enabled.
    """
    with _lock:
        place = _Place.of(target)
        place.settle()
        place.replace(place.forget(target))
        place.bind_again()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a policy belongs.

    Attributes:
        owner: whose ``__ttl__`` counts: a class, or what stands for one beside a Table.
        table: the table at the root.
        roots: the mappers of this table that inherit from none.
    """

    owner: Any
    table: Table
    roots: tuple[Mapper[Any], ...]

    @classmethod
    def of(cls, target: Any) -> _Place:
        """Find it.

        Raises:
            TTLConfigurationError: there is none.
        """
        if isinstance(target, Table):
            return cls._of_table(target)
        mapper: Any = inspect(target, raiseerr=False) if isinstance(target, type) else None
        if not isinstance(mapper, Mapper):
            raise TTLConfigurationError(
                f"{_name(target)} is no mapped class and no Table, so it can't be enabled (an "
                "automapped class is one after Base.prepare(); of an instance, give the class)."
            )
        root = _root(mapper)
        table: Any = root.local_table
        if not isinstance(table, Table):
            raise TTLConfigurationError(
                f"{_name(target)} is mapped to {type(table).__name__}, not to a Table; enable the "
                "tables inside it."
            )
        if mapper is root:
            return cls._of_table(table, target)
        if mapper.local_table is not table and not mapper.single:
            raise TTLConfigurationError(
                f"{_name(target)} is a joined subclass: it shares its rows with "
                f"{root.class_.__name__}, and they live and die together. Enable "
                f"{root.class_.__name__}."
            )
        return cls(target, table, roots_of(table))

    @classmethod
    def _of_table(cls, table: Table, mapped: type | None = None) -> _Place:
        roots, binding = roots_of(table), binding_of(table)
        if binding is not None:
            return cls(binding.default.owner, table, roots)
        if roots:
            return cls(mapped or roots[0].class_, table, roots)
        for mapper in _mappers():
            if mapper.local_table is table:
                return cls.of(mapper.class_)  # of a joined subclass: says why not
        return cls(SimpleNamespace(__name__=table.fullname), table, ())

    @property
    def is_whole(self) -> bool:
        """Whether the policy is for all rows of the table, not for those of a subclass."""
        return not any(
            self.owner is each.class_ and _root(each) is not each for each in self.mappers()
        )

    def mappers(self) -> Iterator[Mapper[Any]]:
        """The mappers of the hierarchies on this table, each after what it inherits from."""
        for root in self.roots:
            yield from root.self_and_descendants

    def settle(self) -> None:
        """Write a number in full that is the default of a policy over other columns.

        The class may be bound again, and would then be taken for one of the contract.
        """
        binding = binding_of(self.table)
        if binding is None or isinstance(getattr(binding.default.owner, "__ttl__", None), Policy):
            return
        policy = binding.default.policy
        if isinstance(policy, TTL) and policy.shape != TTL().shape:
            binding.default.owner.__ttl__ = policy

    def completed(self, policy: Any) -> Any:
        """A policy, or for a number the policy whose default it changes, if that needs it."""
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

    def check_columns(self, policy: Policy) -> None:
        """See that the columns are there."""
        missing = [name for name in _fields(policy) if self._column(name) is None]
        if missing:
            raise TTLConfigurationError(self._misses(policy, missing))

    def read_contract(self) -> None:
        """Read a ``_ts`` that was reflected, or declared by somebody else, as TTLMixin does."""
        declared = getattr(self.owner, "__ttl__", _MISSING)
        policy = declared if isinstance(declared, Policy) else TTL()
        column = self._column("_ts")
        if (
            declared is not _MISSING
            and column is not None  # a number for a subclass, whose base goes by other columns
            and (isinstance(policy, TTL) and policy.last_modified == "_ts" and policy.unit is None)
            and (isinstance(column.type, Integer) or getattr(column.type, "timezone", False))
        ):
            column.info[_TYPE_BEFORE] = column.type
            _retype(column, LastModified())

    def _column(self, name: str) -> Any:
        found = self.table.c.get(name)
        if found is not None:
            return found
        return next((root.columns[name] for root in self.roots if name in root.columns), None)

    def _misses(self, policy: Policy, missing: list[str]) -> str:
        name = _name(self.owner)
        columns = f"column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
        message = f"enable({name}): table {self.table.fullname!r} has no {columns}. "
        if not set(missing) <= set(_CONTRACT):
            return f"{message}It has {', '.join(map(repr, self.table.c.keys()))}."
        default = policy.default if isinstance(policy, TTL) else None
        sql = "; ".join(_CONTRACT[each] for each in missing)
        return (
            f"{message}Add what is missing in a migration, by op.add_ttl({self.table.name!r}, "
            f"{default!r}) of ttl_odm.alembic, or by ALTER TABLE {self.table.fullname} ADD COLUMN "
            f"({sql}); and reflect or declare it. Or name columns that the table has: "
            "TTL(seconds, last_modified=..., override=...), ExpireAfter or ExpireAt."
        )

    def replace(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Set (or with `_MISSING` remove) attributes of the owner; returns what was there."""
        before = {name: vars(self.owner).get(name, _MISSING) for name in attributes}
        for name, value in attributes.items():
            if value is not _MISSING:
                setattr(self.owner, name, value)
            elif before[name] is not _MISSING:
                delattr(self.owner, name)
        return before

    def remember(self, before: dict[str, Any]) -> None:
        """Keep what the first of several `enable` has replaced."""
        if isinstance(self.owner, type):
            kept = _attributes_before.setdefault(self.owner, {})
            for name, value in before.items():
                kept.setdefault(name, value)

    def forget(self, target: Any) -> dict[str, Any]:
        """Give back what `remember` has kept."""
        if isinstance(self.owner, SimpleNamespace) and "__ttl__" in vars(self.owner):
            return {"__ttl__": _MISSING}
        before = _attributes_before.pop(self.owner, None) if isinstance(self.owner, type) else None
        if before is None:
            raise TTLConfigurationError(
                f"{_name(target)} was not enabled, so it can't be disabled; to switch off a TTL "
                "that a class declares, set its __ttl__ to None."
            )
        return before

    def differs_by_default(self, policy: object) -> bool:
        """Whether a policy differs from the owner's by nothing but the default ttl."""
        binding = binding_of(self.table)
        return (
            binding is not None
            and any(default.owner is self.owner for default in binding.defaults())
            and _is_another_default(policy, binding.policy)
        )

    def bind_again(self) -> None:
        """Bind what the owner, and the classes under it, declare now."""
        compiler.install()
        tables = {self.table, *(each.local_table for each in self.mappers())}
        names = {name for table in tables if isinstance(table, Table) for name in _named_in(table)}
        for table in tables:
            _unbind(table)
        self.read_contract()
        if isinstance(self.owner, SimpleNamespace) and hasattr(self.owner, "__ttl__"):
            mapping.bind_table(self.table, self.owner, next(iter(self.roots), None))
        for mapper in self.mappers():
            mapping.bind_mapper(mapper, mapper.class_)
            mapper._expire_memoizations()
        recompile(names)


def _is_another_default(policy: object, now: object) -> bool:
    """Whether a declaration differs by nothing but the default ttl; a number always does."""
    if isinstance(policy, TTL):
        return isinstance(now, TTL) and policy.shape == now.shape
    return policy == now if isinstance(policy, Policy) else isinstance(now, TTL)


def _root(mapper: Mapper[Any]) -> Mapper[Any]:
    while mapper.inherits is not None and not mapper.concrete:
        mapper = mapper.inherits
    return mapper


def roots_of(table: Table) -> tuple[Mapper[Any], ...]:
    """The mappers of a table that inherit from none."""
    return tuple(each for each in _mappers() if each.local_table is table and _root(each) is each)


def _mappers() -> Iterator[Mapper[Any]]:
    for registry in _all_registries():
        # Not registry.mappers, which fails where a class's own mapping has failed.
        yield from (each.mapper for each in registry._managers if each.is_mapped)


def _unbind(table: Any) -> None:
    binding = binding_of(table)
    if root_binding_of(table) is None:
        return
    del table.info[INFO_KEY]
    bound_tables.discard(table)
    if binding is not None:
        stamp = binding.last_modified
        if isinstance(stamp.default, ColumnDefault) and isinstance(
            stamp.default.arg, (Stamp, Stored)
        ):
            stamp.default = binding.default_before
        if _TYPE_BEFORE in stamp.info:
            _retype(stamp, stamp.info.pop(_TYPE_BEFORE))


def _retype(column: Any, kind: Any) -> None:
    column.type = kind
    column.__dict__.pop("comparator", None)  # it is remembered with the old type


def _named_in(table: Table) -> Iterator[str]:
    """The tables whose statements hang on a table's policy: itself, and those it refers to."""
    yield table.name
    for constraint in table.foreign_key_constraints:
        parent = referred_table(constraint)
        if parent is not None:  # deleting there deletes the expired rows here first
            yield parent.name


def _fields(policy: Policy) -> list[str]:
    if isinstance(policy, (ExpireAfter, ExpireAt)):
        return [policy.field]
    named = (policy.last_modified, policy.override, policy.by, policy.created)
    return [name for name in named if name is not None]


def _name(target: Any) -> str:
    if isinstance(target, Table):
        return f"Table {target.fullname!r}"
    return getattr(target, "__name__", None) or repr(target)
