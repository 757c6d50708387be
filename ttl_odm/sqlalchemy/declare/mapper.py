"""Binding a declared ``__ttl__`` to its table, the moment the class is mapped.

One listener on the mapper of every class runs once per class, when it is declared; nothing of
it is left at run time. Every mistake in a declaration is found here, before a row is at stake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnDefault, Date, DateTime, Integer, Table, event
from sqlalchemy.orm import Mapper

from ttl_odm.core.declared import shape_of
from ttl_odm.core.policy import TTL, Policy, as_policy
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.declare.mixin import TTLMixin, last_modified_column, ttl_column
from ttl_odm.sqlalchemy.gate import compiler
from ttl_odm.sqlalchemy.policy import schema
from ttl_odm.sqlalchemy.policy.binding import (
    Binding,
    MaxLifetime,
    SubBinding,
    Variant,
    bind,
    binding_of,
    root_binding_of,
    sub_binding_of,
)
from ttl_odm.sqlalchemy.policy.parameters import DefaultTTL, KindTTL
from ttl_odm.sqlalchemy.rewrite.stamps import Stamp
from ttl_odm.sqlalchemy.time.clock_sample import forget_compiled_statements
from ttl_odm.sqlalchemy.time.column_types import Seconds
from ttl_odm.sqlalchemy.time.instants import Instants
from ttl_odm.sweeper.declarations import sweep_of

if TYPE_CHECKING:
    from ttl_odm.sweeper.declarations import SweepBy


def _declares_here(cls: type) -> bool:
    return "__ttl__" in vars(cls)


@event.listens_for(Mapper, "after_mapper_constructed")
def bind_mapper(mapper: Mapper[Any], cls: type[Any]) -> None:
    """Put what a class declares, or shares with the class that it inherits from, on its table."""
    above = mapper.inherits
    if not hasattr(cls, "__ttl__") and not (
        # By `enable()`, a table may have a policy that its class knows nothing of.
        above is not None and root_binding_of(above.local_table) is not None
    ):
        return
    compiler.install()
    if above is None or mapper.concrete:
        if not hasattr(cls, "__ttl__"):
            return
        _add_columns_of_concrete(mapper, cls)
        bind_table(mapper.local_table, cls, mapper)
    elif mapper.single or mapper.local_table is above.local_table:  # so it is with a __table__
        _bind_single(mapper, cls)
    else:
        _bind_joined(mapper, cls)


def _add_columns_of_concrete(mapper: Mapper[Any], cls: type[Any]) -> None:
    """Give a concrete subclass the columns of the mixin, which it doesn't inherit."""
    table = mapper.local_table
    if not (mapper.concrete and issubclass(cls, TTLMixin) and isinstance(table, Table)):
        return
    policy = as_policy(cls.__ttl__, where=f"{cls.__name__}.__ttl__")
    named = (policy.last_modified, policy.override) if isinstance(policy, TTL) else ()
    for key, column in (("last_modified", last_modified_column()), ("ttl", ttl_column(cls))):
        if column.name in named and column.name not in table.c:
            table.append_column(column)
            mapper.add_property(key, column)


def bind_table(table: Any, owner: Any, mapper: Mapper[Any] | None = None) -> None:
    """Put the policy of an owner (a class, or what `enable()` keeps for a Table) on its table."""
    where = f"{owner.__name__}.__ttl__"
    other = binding_of(table)
    if other is not None:
        raise TTLConfigurationError(
            f"{where}: table {table.fullname!r} already has the policy of {other.name}; "
            "a table has one policy, so declare __ttl__ on one class only."
        )
    binding = binding_for(table, owner, mapper)
    _prepare_schema(binding, sweep_of(owner))
    bind(table, binding)


def binding_for(table: Any, owner: Any, mapper: Mapper[Any] | None = None) -> Binding:
    """Return what the policy of an owner means for its table, and change neither.

    Raises:
        InvalidTTL: The owner declares a number that is no ttl.
        TTLConfigurationError: The table lacks a column that the policy needs, or is none.
    """
    cls = owner
    where = f"{cls.__name__}.__ttl__"
    policy = as_policy(cls.__ttl__, where=where)
    if not isinstance(table, Table):
        raise TTLConfigurationError(
            f"{where}: {cls.__name__} is mapped to {type(table).__name__}, not to a Table; "
            "declare __ttl__ on the models of the tables inside it."
        )
    start = _column(mapper, table, _start_of(policy), where)
    by = policy.by if isinstance(policy, TTL) else None
    binding = Binding(
        table=table,
        last_modified=start,
        override=_override(mapper, table, policy, where),
        default=DefaultTTL(cls, policy),
        policy=policy,
        instants=Instants(start, policy.timezone, policy.unit, where),
        max_lifetime=_max_lifetime(mapper, table, policy, where),
        discriminator=(
            _discriminator(mapper, table) if by is None else _column(mapper, table, by, where)
        ),
    )
    if isinstance(policy, TTL):
        binding.variants += [
            Variant(KindTTL(cls, policy, kind), [kind]) for kind, _ in policy.kinds
        ]
    return binding


def _start_of(policy: Policy) -> str:
    return policy.last_modified if isinstance(policy, TTL) else policy.field


def _discriminator(mapper: Mapper[Any] | None, table: Table) -> Column[Any] | None:
    column = None if mapper is None else mapper.polymorphic_on
    return column if isinstance(column, Column) and column.table is table else None


def _column(mapper: Mapper[Any] | None, table: Table, name: str, where: str) -> Column[Any]:
    """The column that a policy names, by its attribute, its key or its name."""
    found = None if mapper is None else mapper.columns.get(name)
    if found is None:
        found = table.c.get(name)
    if found is None:
        found = next((column for column in table.c if column.name == name), None)
    if found is not None and found.table is table:
        return found
    fix = f"Name one of its columns: {', '.join(map(repr, table.c.keys()))}."
    if name in ("_ts", "ttl"):
        fix = (
            "Add TTLMixin to the bases of the class and put the column into the database; or name "
            f"columns that there are, as in TTL(3600, last_modified='updated_at', override=None). "
            f"{fix}"
        )
    raise TTLConfigurationError(f"{where}: table {table.fullname!r} has no column {name!r}. {fix}")


def _override(
    mapper: Mapper[Any] | None, table: Table, policy: Policy, where: str
) -> Column[Any] | None:
    if not isinstance(policy, TTL) or policy.override is None:
        return None
    column = _column(mapper, table, policy.override, where)
    if not issubclass(column.type._type_affinity or object, Integer):
        raise TTLConfigurationError(
            f"{where}: column {column.name!r} is {column.type!r}; a row's own ttl is a whole "
            "number of seconds, so the column must be an integer."
        )
    _check_values(policy, column, where)
    return column


def _check_values(policy: TTL, column: Column[Any], where: str) -> None:
    """See that what the policy says of own ttls is what becomes of them.

    The column of the mixin has a CHECK; what an application's own column may hold is its matter.
    """
    ours = isinstance(column.type, Seconds)
    if policy.values not in (None, "strict" if ours else "lenient"):
        fix = (
            "that column has a CHECK. For values that have no effect instead of being refused, "
            "name an integer column of your own: override='...'"
            if ours
            else "only TTLMixin's own column refuses what is no ttl; in others such values "
            "have no effect. Leave values out"
        )
        raise TTLConfigurationError(
            f"{where}: values={policy.values!r} can't be for column {column.name!r}: {fix}."
        )


def _max_lifetime(
    mapper: Mapper[Any] | None, table: Table, policy: Policy, where: str
) -> MaxLifetime | None:
    if not isinstance(policy, TTL) or policy.created is None or policy.max_lifetime is None:
        return None
    column = _column(mapper, table, policy.created, where)
    # A date is one whatever the unit of the other column.
    holds_dates = issubclass(column.type._type_affinity or object, (DateTime, Date))
    unit = None if holds_dates else policy.unit
    return MaxLifetime(column, Instants(column, policy.timezone, unit, where), policy.max_lifetime)


def _prepare_schema(binding: Binding, sweep: SweepBy) -> None:
    stamp, own = binding.last_modified, binding.override
    if binding.stamps and (stamp.default is None or not binding.instants.native):
        # The application's own (utcnow(), time.time()) is the clock of a host.
        binding.default_before = stamp.default
        stamp.default = _column_default(binding)
    if own is None or not binding.instants.native:
        _prepare_sweep(binding, sweep)
    elif isinstance(own.type, Seconds):
        # A table that is bound again, with another policy, has them.
        is_new = not any(isinstance(each, schema.TTLCheck) for each in own.constraints)
        if is_new:
            schema.add_check(binding.table, own)
        if sweep == "index":
            if is_new:
                schema.add_indexes(binding.table, stamp, own)
            binding.sweep = "index"
    if binding.max_lifetime is not None and binding.sweep == "index":
        schema.add_index_on(binding.max_lifetime.created)


def _prepare_sweep(binding: Binding, sweep: SweepBy) -> None:
    """See to the index of a table whose rows are found by the column that is there.

    Rows with a ttl of their own, and NULLs that are expired, are in no such index.
    """
    if sweep == "index" and binding.override is None and not binding.nulls_expire:
        binding.sweep = "index"
        if not binding.stamps:
            schema.add_index_on(binding.last_modified)


def _column_default(binding: Binding) -> Any:
    default = ColumnDefault(binding.instants.stored(Stamp()))
    default._set_parent_with_dispatch(binding.last_modified)
    return default


def _bind_single(mapper: Mapper[Any], cls: type[Any]) -> None:
    """A single-table subclass: its own ``__ttl__``, if any, for the rows it stands for."""
    binding = root_binding_of(mapper.local_table)
    where = f"{cls.__name__}.__ttl__"
    if binding is None:
        raise TTLConfigurationError(
            f"{where}: {cls.__name__} shares its table with a base class that has no TTL; "
            "declare __ttl__ on the base (None to switch it off there) and override it here."
        )
    if _declares_here(cls):
        if isinstance(binding.policy, TTL) and binding.policy.by is not None:
            raise TTLConfigurationError(
                f"{where}: {binding.name}.__ttl__ has a default for each {binding.policy.by!r}; "
                f"give the rows of {cls.__name__} theirs there."
            )
        own = as_policy(cls.__ttl__, where=where)
        is_number = own is not cls.__ttl__ and isinstance(binding.policy, TTL)
        if not is_number and shape_of(own) != binding.default.shape:
            raise TTLConfigurationError(
                f"{where} = {own!r}: {cls.__name__} shares its table with {binding.name}, whose "
                f"policy is {binding.policy!r}; of a subclass, only the default ttl may differ."
            )
        if binding.discriminator is None:
            raise TTLConfigurationError(
                f"{where}: the rows of {cls.__name__} can't be told from others of table "
                f"{binding.table.fullname!r}; let polymorphic_on be a column of that table, or "
                f"declare __ttl__ on {binding.name} only."
            )
        binding.variants.append(Variant(DefaultTTL(cls, binding.policy)))
    _join_variant(mapper, cls, binding)


def _bind_joined(mapper: Mapper[Any], cls: type[Any]) -> None:
    """A joined subclass lives and dies with its base row; it can't have another ttl."""
    base: Any = mapper.inherits
    binding = root_binding_of(base.local_table)
    if binding is None or _declares_here(cls):
        raise TTLConfigurationError(
            f"{cls.__name__}.__ttl__: a joined subclass shares its row with "
            f"{base.base_mapper.class_.__name__}; declare __ttl__ there, on the base class."
        )
    table = mapper.local_table
    if isinstance(table, Table):
        above = sub_binding_of(base.local_table)
        roots: dict[Any, Any] = {} if above is None else dict(above.keys)
        pairs: Any = mapper._inherits_equated_pairs  # (the base's column, ours)
        keys = tuple((own, roots.get(parent, parent)) for parent, own in pairs)
        bind(table, SubBinding(table, binding, keys))
    _join_variant(mapper, cls, binding)


def _join_variant(mapper: Mapper[Any], cls: type[Any], binding: Binding) -> None:
    """Count a subclass's rows among those of the nearest default of its own, if there is one."""
    variant = binding.variant_for(cls)
    if variant is None or mapper.polymorphic_identity is None:
        return
    variant.identities.append(mapper.polymorphic_identity)
    # Statements that were compiled before don't tell these rows from others.
    forget_compiled_statements()
    for each in mapper.base_mapper.self_and_descendants:
        each._compiled_cache.clear()
