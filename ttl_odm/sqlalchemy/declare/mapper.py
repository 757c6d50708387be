"""Binding a declared ``__ttl__`` to its table, the moment the class is mapped.

A listener on mappers runs once per class, when it is declared; it costs nothing at run time. Every
mistake in a declaration is found here, before a row is at stake.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import (
    Column,
    ColumnDefault,
    Date,
    DateTime,
    FromClause,
    Integer,
    Table,
    event,
)
from sqlalchemy.ext.declarative import AbstractConcreteBase
from sqlalchemy.orm import Mapper

from ttl_odm.core.declaration import shape_of, undeclared
from ttl_odm.core.extension import Extension, Layout
from ttl_odm.core.policy import TTL, as_policy, default_extension, instant_field
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.declare.mixin import TTLMixin, goes_by, last_modified_column, ttl_column
from ttl_odm.sqlalchemy.gate.compiler import enclose_handlers, recompile
from ttl_odm.sqlalchemy.policy import schema
from ttl_odm.sqlalchemy.policy.bindings import (
    Binding,
    MaxLifetime,
    SubBinding,
    bind,
    binding_of,
    bound_tables,
    root_binding_of,
    sub_binding_of,
)
from ttl_odm.sqlalchemy.policy.references import bind_extension, rule_of
from ttl_odm.sqlalchemy.policy.sources import DefaultTTL, KindTTL, Variant
from ttl_odm.sqlalchemy.rewrite.writes import Stamp
from ttl_odm.sqlalchemy.time.clock import Seconds, forget_compiled_statements
from ttl_odm.sqlalchemy.time.instants import instants_of
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.core.policy import Policy
    from ttl_odm.sqlalchemy.policy.bindings import TableLayout


@event.listens_for(Mapper, "after_mapper_constructed")
def bind_mapper(mapper: Mapper[Any], cls: type, *, is_ours: bool = True) -> None:
    """Bind the policy that a class declares, or shares with its base class, to its table.

    For `is_ours` see `bind_table`.
    """
    above = mapper.inherits
    if not hasattr(cls, "__ttl__") and not (
        # With `enable()`, a table may have a policy that its class doesn't declare.
        above is not None and root_binding_of(above.local_table) is not None
    ):
        return
    enclose_handlers()
    if _is_union(mapper, cls) or _bind_rule(mapper, cls):
        return
    if above is None or mapper.concrete:
        if not hasattr(cls, "__ttl__"):
            return
        if next(base for base in cls.__mro__ if "__ttl__" in vars(base)) is TTLMixin:
            raise undeclared(cls, TTLMixin.__name__)
        if mapper.concrete and issubclass(cls, TTLMixin) and isinstance(mapper.local_table, Table):
            # A concrete class doesn't inherit the columns of the mixin.
            new = (("last_modified", last_modified_column()), ("ttl", ttl_column(cls)))
            for key, column in new:
                if goes_by(cls, column.name) and column.name not in mapper.local_table.c:
                    mapper.local_table.append_column(column)
                    mapper.add_property(key, column)
        bind_table(mapper.local_table, cls, mapper, is_ours=is_ours)
    elif mapper.single or mapper.local_table is above.local_table:  # the latter with __table__
        _bind_single(mapper, cls)
    else:
        _bind_joined(mapper, above, cls)


def _is_union(mapper: Mapper[Any], cls: type) -> bool:
    """Return whether a class is mapped to its subclasses' tables, each of which has its own policy.

    What an `AbstractConcreteBase` declares is meant for these.
    """
    return issubclass(cls, AbstractConcreteBase) and not isinstance(mapper.local_table, Table)


def _bind_rule(mapper: Mapper[Any], cls: type[Any]) -> bool:
    """Put a class's `Rule` on its table, and return whether it has one."""
    above, table = mapper.inherits, mapper.local_table
    if above is None or mapper.concrete:
        if not isinstance(cls.__ttl__, Extension):
            return False
        bind_extension(mapper, cls, cls.__ttl__)
        if isinstance(table, Table) and bound_tables.was_asked(table):
            recompile({table.name})
        return True
    rule = rule_of(above.local_table)
    if rule is None:
        return False
    rule.inherited_by(mapper, cls)
    return True


def checking_defaults(original: Callable[..., None]) -> Callable[..., None]:
    """Reject an invalid default when it is assigned to a class, not by each statement.

    SQLAlchemy calls the wrapped function for its own classes once they are mapped. For classes that
    a decorator maps it doesn't, so their statements raise the error.
    """

    def checked(cls: type, key: str, value: object) -> None:
        if key == "__ttl__":
            mapper = compat.mapper_of(cls)
            rule = None if mapper is None else rule_of(mapper.local_table)
            if rule is not None:
                raise rule.rejected("change", f"{cls.__name__}.__ttl__")
            as_policy(value, where=f"{cls.__name__}.__ttl__")
        original(cls, key, value)

    return checked


def bind_table(
    table: FromClause, owner: Any, mapper: Mapper[Any] | None = None, *, is_ours: bool = True
) -> None:
    """Put the policy of an owner (a class, or `enable()`'s substitute for one) on its table.

    A table that isn't ours, whose class doesn't declare the policy itself, gets no index: its DDL
    is its owner's matter, unless ``__ttl_sweep__`` asks for it.
    """
    other = binding_of(table)
    if other is not None and other.origin is None:
        raise TTLConfigurationError(
            f"{owner.__name__}.__ttl__: table {other.table.fullname!r} already has the policy of "
            f"{other.name}; a table has one policy, so declare __ttl__ on one class only."
        )
    binding = binding_for(table, owner, mapper)
    binding.sweep = sweep_of(owner)
    makes_index = binding.sweep == "index" and (is_ours or hasattr(owner, "__ttl_sweep__"))
    _prepare_schema(binding, makes_index=makes_index)
    _lay_out(binding)
    bind(binding.table, binding)
    if bound_tables.was_asked(binding.table):
        recompile({binding.table.name})


def binding_for(table: FromClause, owner: Any, mapper: Mapper[Any] | None = None) -> Binding:
    """Return the policy of an owner, bound to its table, without changing either."""
    where = f"{owner.__name__}.__ttl__"
    policy = as_policy(owner.__ttl__, where=where)
    if not isinstance(table, Table):
        raise TTLConfigurationError(
            f"{where}: {owner.__name__} is mapped to {type(table).__name__}, not to a Table; "
            "declare __ttl__ on the models of the tables inside it."
        )
    columns = _PolicyColumns(table, mapper, policy, where)
    start = columns.named(instant_field(policy))
    binding = Binding(
        table=table,
        last_modified=start,
        override=columns.override(),
        default=DefaultTTL(owner, policy),
        policy=policy,
        instants=instants_of(start, policy.timezone, policy.unit, where),
        max_lifetime=columns.max_lifetime(),
        discriminator=columns.discriminator(),
    )
    if isinstance(policy, TTL):
        binding.variants += [
            Variant(KindTTL(owner, policy, kind), [kind]) for kind, _ in policy.kinds
        ]
    return binding


def without_own(policy: TTL) -> str:
    """Return what to write instead for a table that lacks the column of rows' own ttl."""
    return f"If no row has a ttl of its own, write {repr(policy)[:-1]}, override=None)"


@dataclass(frozen=True, slots=True)
class _PolicyColumns:
    """The columns of a table that a policy names, by column or by attribute of the class."""

    table: Table
    mapper: Mapper[Any] | None
    policy: Policy
    where: str

    def named(self, name: str) -> Column[Any]:
        """Return the column with this attribute, key or name."""
        table = self.table
        column = None if self.mapper is None else self.mapper.columns.get(name)
        if column is None:
            column = table.c.get(name)
        if column is None:
            column = next((column for column in table.c if column.name == name), None)
        if column is not None and column.table is table:
            return column
        fix = f"Name one of its columns: {', '.join(map(repr, table.c.keys()))}."
        if name == "ttl" and isinstance(self.policy, TTL) and self.policy.last_modified != "_ts":
            fix = f"{without_own(self.policy)}, or add the column. {fix}"
        elif name in ("_ts", "ttl"):
            fix = (
                "Add TTLMixin to the bases of the class and the column to the database; or "
                "name existing columns, as in TTL(3600, last_modified='updated_at', "
                f"override=None). {fix}"
            )
        raise TTLConfigurationError(
            f"{self.where}: table {table.fullname!r} has no column {name!r}. {fix}"
        )

    def override(self) -> Column[Any] | None:
        """Return the column of the row's own ttl."""
        policy = self.policy
        if not isinstance(policy, TTL) or policy.override is None:
            return None
        column = self.named(policy.override)
        if not issubclass(compat.affinity(column.type), Integer):
            raise TTLConfigurationError(
                f"{self.where}: column {column.name!r} is {column.type!r}; a row's own ttl is a "
                "whole number of seconds, so the column must be an integer."
            )
        # The column of the mixin has a CHECK; an application decides on its own columns.
        is_ours = isinstance(column.type, Seconds)
        if policy.values not in (None, "strict" if is_ours else "lenient"):
            fix = (
                "that column has a CHECK. To ignore invalid values instead of rejecting them, "
                "name an integer column of your own: override='...'"
                if is_ours
                else "only TTLMixin's own column rejects invalid ttls; in other columns they "
                "have no effect. Leave values out"
            )
            raise TTLConfigurationError(
                f"{self.where}: values={policy.values!r} is impossible for column {column.name!r}: "
                f"{fix}."
            )
        return column

    def max_lifetime(self) -> MaxLifetime | None:
        """Return the limit to lives, with the column from which it is counted."""
        policy = self.policy
        if not isinstance(policy, TTL) or policy.created is None or policy.max_lifetime is None:
            return None
        column = self.named(policy.created)
        # A column of dates has no unit, even if the other column has.
        holds_dates = issubclass(compat.affinity(column.type), (DateTime, Date))
        unit = None if holds_dates else policy.unit
        instants = instants_of(column, policy.timezone, unit, self.where)
        return MaxLifetime(column, instants, policy.max_lifetime)

    def discriminator(self) -> Column[Any] | None:
        """Return the column that distinguishes kinds, scopes, or single-table subclasses."""
        if isinstance(self.policy, TTL) and self.policy.by is not None:
            return self.named(self.policy.by)
        declared = default_extension(self.policy)
        if declared is not None and declared.by is not None:
            return self.named(declared.by)
        column = None if self.mapper is None else self.mapper.polymorphic_on
        return column if isinstance(column, Column) and column.table is self.table else None


def _prepare_schema(binding: Binding, *, makes_index: bool) -> None:
    """Set the default of ``_ts``, and add what ``create_all()`` creates: a check and indexes."""
    stamp, own = binding.last_modified, binding.override
    binding.source.prepare_schema()
    if binding.stamps and (stamp.default is None or not binding.instants.native):
        # The application's own default (utcnow(), time.time()) uses the clock of a host.
        binding.default_before = stamp.default
        default = ColumnDefault(binding.instants.stored(Stamp()))
        compat.attach(default, stamp)
        stamp.default = default
    if own is None or not binding.instants.native:
        # An index of one column finds neither rows with their own ttl nor NULLs that are expired.
        makes_index = makes_index and own is None and not binding.nulls_expire
        if makes_index and not binding.stamps:
            schema.add_index_on(stamp)
    # A table that is bound again, with another policy, has them already.
    elif isinstance(own.type, Seconds) and not any(
        isinstance(check, schema.TTLCheck) for check in own.constraints
    ):
        schema.add_check(binding.table, own)
        if makes_index:
            scope = None if binding.source.scoping is None else binding.discriminator
            schema.add_indexes(binding.table, stamp, own, scope)
    if binding.max_lifetime is not None and makes_index:
        schema.add_index_on(binding.max_lifetime.created)


def layout_of(owner: type) -> Layout | None:
    """Return the layout that a model declares for its table; None if it declares none."""
    value: object = getattr(owner, "__ttl_partition__", None)
    if value is None or isinstance(value, Layout):
        return value
    raise TTLConfigurationError(
        f"{owner.__name__}.__ttl_partition__ = {value!r}: write Partitions('1 day'), or None."
    )


def lay_out(binding: Binding, declared: Layout, where: str) -> TableLayout:
    """Return the layout of a table, from the package of the declaration.

    Raises:
        TTLConfigurationError: The table can't have this layout.
    """
    package = import_module(declared.package("sqlalchemy"))
    return cast("TableLayout", package.lay_out(binding, declared, where))


def _lay_out(binding: Binding) -> None:
    """Lay out the table, if its owner declares a layout."""
    owner = binding.default.owner
    declared = layout_of(owner)
    if declared is not None:
        where = f"{owner.__name__}.__ttl_partition__"
        binding.layout = lay_out(binding, declared, where)
        binding.layout.prepare(where)


def _bind_single(mapper: Mapper[Any], cls: type[Any]) -> None:
    """Bind a single-table subclass: its own ``__ttl__``, if it has one, is for its rows."""
    binding = root_binding_of(mapper.local_table)
    where = f"{cls.__name__}.__ttl__"
    if binding is None:
        raise TTLConfigurationError(
            f"{where}: {cls.__name__} shares its table with a base class that has no TTL; "
            "declare __ttl__ on the base, or enable() it (with None to switch it off there), and "
            "override it here."
        )
    if "__ttl__" in vars(cls):
        if isinstance(binding.policy, TTL) and binding.policy.by is not None:
            raise TTLConfigurationError(
                f"{where}: {binding.name}.__ttl__ has a default for each {binding.policy.by!r}; "
                f"declare the default of {cls.__name__} rows there."
            )
        own = as_policy(cls.__ttl__, where=where)
        elsewhere = default_extension(binding.policy) or default_extension(own)
        if elsewhere is not None:
            declared = f"{where} = {own!r}: {cls.__name__} shares its table with {binding.name}"
            raise elsewhere.of_whole_table(declared, binding.name)
        is_number = own is not cls.__ttl__ and isinstance(binding.policy, TTL)
        if not is_number and shape_of(own) != binding.default.shape:
            raise TTLConfigurationError(
                f"{where} = {own!r}: {cls.__name__} shares its table with {binding.name}, whose "
                f"policy is {binding.policy!r}; a subclass may only change the default ttl."
            )
        if binding.discriminator is None:
            raise TTLConfigurationError(
                f"{where}: the rows of {cls.__name__} can't be told apart from others in table "
                f"{binding.table.fullname!r}; make polymorphic_on a column of that table, or "
                f"declare __ttl__ on {binding.name} only."
            )
        binding.variants.append(Variant(DefaultTTL(cls, binding.policy)))
    _join_variant(mapper, cls, binding)


def _bind_joined(mapper: Mapper[Any], base: Mapper[Any], cls: type) -> None:
    """Bind a joined subclass: its rows live and die with their base rows, and share their ttl."""
    binding = root_binding_of(base.local_table)
    if binding is None or "__ttl__" in vars(cls):
        raise TTLConfigurationError(
            f"{cls.__name__}.__ttl__: a joined subclass shares its row with "
            f"{base.base_mapper.class_.__name__}; declare __ttl__ there, on the base class."
        )
    table = mapper.local_table
    if isinstance(table, Table):
        above = sub_binding_of(base.local_table)
        roots: dict[Any, Any] = {} if above is None else dict(above.keys)
        pairs = compat.inherited_pairs(mapper)
        keys = tuple((own, roots.get(parent, parent)) for parent, own in pairs)
        bind(table, SubBinding(table, binding, keys))
    _join_variant(mapper, cls, binding)


def _join_variant(mapper: Mapper[Any], cls: type, binding: Binding) -> None:
    """Add a subclass's rows to those of the nearest default of its own, if there is one."""
    variant = binding.variant_for(cls)
    if variant is None or mapper.polymorphic_identity is None:
        return
    variant.identities.append(mapper.polymorphic_identity)
    # Statements that were compiled before don't distinguish these rows from others.
    forget_compiled_statements()
    for relative in mapper.base_mapper.self_and_descendants:
        compat.compiled_cache(relative).clear()
