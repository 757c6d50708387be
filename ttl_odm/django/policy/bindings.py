# ruff: noqa: ARG002 (plain tables need few of the arguments of `TablePolicy`)
"""What a policy means for one Django model, and which tables have one.

A `Binding` is found by a table's name, because that is all that a statement knows of a join.
Models declare policies as `TTLModel` does, and the setting ``TTL_ODM_POLICIES`` declares them for
models of other apps. The default is read whenever a statement is compiled, and Django compiles each
time: a changed ``__ttl__`` applies at once to every row.

Historical models (in migrations) are not bound: a migration may run before the columns exist, and
has to see the rows that it migrates. This module must not know SQL.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from django.apps import apps
from django.db import models
from django.db.models.lookups import LessThan, LessThanOrEqual

from ttl_odm.core import NEVER, TTL, Policy, as_policy, expires_at
from ttl_odm.core.declaration import DeclaredTTL
from ttl_odm.core.policy import default_extension
from ttl_odm.core.values import FOREVER, MAX_TTL
from ttl_odm.django.policy.options import include_expired
from ttl_odm.django.policy.sources import Fixed
from ttl_odm.django.time import clock
from ttl_odm.django.time.fields import UNREAD, InstantField, TTLField, Unknown
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from typing import TypeAlias

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.expressions import Expression
    from django.db.models.sql import DeleteQuery, InsertQuery, Query, UpdateQuery
    from django.db.models.sql.datastructures import Join

    from ttl_odm.django.policy.options import Kind
    from ttl_odm.django.policy.sources import DefaultSource
    from ttl_odm.django.time.clock import Form
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.sweeper.hooks import SweepBy

    Model: TypeAlias = type[models.Model]

SETTING: Final = "TTL_ODM_POLICIES"

R = TypeVar("R")


@dataclass(eq=False)
class Binding:
    """A table's policy, on the concrete model whose table holds its fields.

    Attributes:
        model: The model.
        default: The declared default.
        stamp: The field with the instant.
        own: The field with a row's own ttl; None if rows have none.
        sweep: How sweeps find expired rows.
        scope: The field whose values may have defaults of their own; None if there is none.
        source: Where the default comes from.
    """

    model: Model
    default: DeclaredTTL
    stamp: AnyField
    own: AnyField | None
    sweep: SweepBy
    scope: AnyField | None
    source: DefaultSource = dataclasses.field(init=False, repr=False)

    @classmethod
    def of(
        cls,
        model: Model,
        declared: object,
        *,
        where: str,
        sweep: SweepBy,
        is_planned: bool = False,
    ) -> Binding:
        """Find the fields of a policy on a model; raise if they are missing, or don't fit.

        A policy that `is_planned` ignores what the model declares.
        """
        policy = as_policy(declared, where=where)
        extension = default_extension(policy)
        own = scope = None
        if isinstance(policy, TTL):
            stamp = field_named(model, policy.last_modified, where)
            if policy.override is not None:
                own = field_named(model, policy.override, where)
            if extension is not None and extension.by is not None:
                scope = field_named(model, extension.by, where)
        else:
            stamp = field_named(model, policy.field, where)
        _check(policy, own, where)
        owner = object if is_planned else model
        default = DeclaredTTL(model, policy, read=lambda: getattr(owner, "__ttl__", declared))
        binding = cls(model, default, stamp, own, sweep, scope)
        if extension is None:
            binding.source = Fixed(default)
        else:
            package = import_module(extension.package("django"))
            binding.source = package.source(binding, extension, where=where)
        binding.form  # noqa: B018 (raises for a field that holds no instants)
        return binding

    @property
    def policy(self) -> Policy:
        """The policy as declared at this moment; raises if that is invalid."""
        return self.default.policy

    @property
    def form(self) -> Form:
        """The form of instants in the column; raises for a field that holds none."""
        field, unit = self.stamp, self.policy.unit
        if isinstance(field, InstantField):
            return "instant"
        if unit is not None and unit != "iso":
            if isinstance(field, models.IntegerField):
                return unit
            if isinstance(field, models.FloatField):
                return clock.FRACTIONAL[unit]
            if isinstance(field, models.DecimalField):
                self._check_digits(field, clock.UNITS[unit])
                return clock.FRACTIONAL[unit]
        if unit is None and isinstance(field, models.DateTimeField):
            return "datetime"
        fix = "a field for epoch numbers" if unit else "a DateTimeField, or give a unit"
        raise TTLConfigurationError(
            f"{self.model._meta.label}.{field.name} is a {type(field).__name__}; "
            f"{self.policy!r} needs {fix}."
        )

    def _check_digits(self, field: models.DecimalField[Any, Any], per_second: int) -> None:
        """Reject a column that would round the clock down in writes."""
        digits = len(str(1_000_000 // per_second)) - 1
        if self.stamps and field.decimal_places < digits:
            raise TTLConfigurationError(
                f"{self.model._meta.label}.{field.name} has "
                f"decimal_places={field.decimal_places}, but rows are stamped to the microsecond: "
                f"set decimal_places={digits}, or use a FloatField."
            )

    def expires_at(self, obj: models.Model, age: int | None = None) -> datetime | None:
        """Return the instant from which an instance's row is expired (aware, UTC).

        A default that Python doesn't know is queried, unless the row was read together with its
        `age`: see `DefaultSource.row_age`.
        """
        loaded = vars(obj)
        fields = [field.attname for field in (self.stamp, self.own) if field is not None]
        unread = [name for name in fields if isinstance(loaded.get(name, UNREAD), Unknown)]
        if unread:
            # Also of expired rows: a caller may want to know when a row expired.
            rows = include_expired(type(obj)._base_manager.using(obj._state.db))
            obj.refresh_from_db(fields=unread, from_queryset=rows)
        instant = getattr(obj, self.stamp.attname)
        policy = self.source.policy_of(obj, None, age)
        return expires_at(policy, instant=instant, own=self.own_of(obj))

    def own_of(self, obj: models.Model) -> object:
        """Return the own ttl that an instance's row has, or will have once saved."""
        own = None if self.own is None else getattr(obj, self.own.attname)
        return own.total_seconds() if isinstance(own, timedelta) else own

    @property
    def seconds(self) -> int | None:
        """Seconds after which an inheriting row expires; None for never, or while TTL is off.

        0 if the field holds the instant of expiry itself. Only if Python knows the default.
        """
        seconds = self.default()
        return None if seconds == NEVER else seconds

    @property
    def is_off(self) -> bool:
        """Whether no row can expire; False if Python doesn't know the default."""
        if not self.source.is_known:
            self.default.policy  # noqa: B018 (raises if the policy has become a fixed one)
            return False
        return self.default() is None

    def is_off_for(self, obj: models.Model, using: str) -> bool:
        """Whether an instance's row can't expire under its present default."""
        if self.source.is_known:
            return self.is_off
        policy = self.source.policy_of(obj, using, None)
        return isinstance(policy, TTL) and policy.default is None

    @property
    def is_strict(self) -> bool:
        """Whether a CHECK keeps invalid values out of the rows' own ttls."""
        return isinstance(self.own, TTLField)

    @property
    def stamps(self) -> bool:
        """Whether writes reset the field with the instant."""
        return isinstance(self.policy, TTL)

    @property
    def has_end(self) -> models.Q:
        """The condition for rows that will expire some day, if nothing about them changes."""
        none = models.Q(pk__in=[])
        age = self.source.row_age()
        if age is not None:
            return self._has_end_by(age)
        if self.is_off or (self.own is None and self.seconds is None):
            return none
        is_dated = models.Q((f"{self.stamp.name}__isnull", False)) if self.stamp.null else ~none
        if self.own is None:
            return is_dated
        own = self.own.name
        never = models.Q((f"{own}__in", self.nevers))
        if self.seconds is not None:
            return is_dated & ~never
        return is_dated & models.Q((f"{own}__range", (1, MAX_TTL))) & ~never

    def _has_end_by(self, age: Expression) -> models.Q:
        """Return the condition of `has_end`, if the age of inheriting rows is looked up."""
        is_dated = models.Q((f"{self.stamp.name}__isnull", False))
        inherited = models.Q(LessThan(age, FOREVER))
        if self.own is None:
            return is_dated & inherited
        has_own = models.Q((f"{self.own.name}__range", (1, MAX_TTL)))
        is_on = models.Q(LessThanOrEqual(age, FOREVER))
        never = models.Q((f"{self.own.name}__isnull", False), (f"{self.own.name}__in", self.nevers))
        return is_dated & ~never & (inherited | (has_own & is_on))

    @property
    def nevers(self) -> tuple[int, ...]:
        """Own ttls that mean "never"."""
        return (NEVER, *self.policy.never) if isinstance(self.policy, TTL) else ()


def _check(policy: Policy, own: AnyField | None, where: str) -> None:
    """Reject options of a policy that this adapter doesn't support."""
    if policy.timezone != "UTC":
        raise TTLConfigurationError(
            f"{where}: timezone={policy.timezone!r}: Django's settings USE_TZ and TIME_ZONE "
            "determine what a DateTimeField holds; leave timezone out."
        )
    if not isinstance(policy, TTL):
        return
    if policy.max_lifetime is not None:
        raise TTLConfigurationError(
            f"{where}: max_lifetime={policy.max_lifetime!r}: max_lifetime isn't supported on "
            "Django yet; leave max_lifetime and created out."
        )
    if policy.by is not None:
        raise TTLConfigurationError(
            f"{where}: by={policy.by!r}: a default for each kind of row isn't supported on "
            "Django; set each row's own ttl, or use a model for each kind."
        )
    mode = "strict" if isinstance(own, TTLField) else "lenient"
    if policy.values not in (None, mode):
        raise TTLConfigurationError(
            f"{where}: values={policy.values!r}: TTLModel's own field is strict, and any other "
            "field is lenient (invalid ttls have no effect); leave values out."
        )


Rejected = Literal["lifetime", "change", "unread", "sweep", "subclass"]
"""What rows that expire with rows of another table can't have.

In this order: a lifetime of their own; a later change of the declaration; an end, as long as they
aren't in the database; a sweep of their table alone; a subclass with a table of its own.
"""


@dataclass(eq=False)
class TablePolicy:
    """The policy that applies to a table, and its effect on statements.

    The methods here are those of rows that have a lifetime of their own. For others see
    `ttl_odm.django.policy.rules`.

    Attributes:
        binding: The policy.
        link: None for the table that holds the policy's fields; in the table of a multi-table
            subclass, the field that holds the root's primary key.
    """

    binding: Binding
    link: AnyField | None = None
    has_lifetime: ClassVar[bool] = True
    """Whether the rows have a lifetime of their own, and only that decides when they expire."""

    @property
    def model(self) -> Model:
        """The model that declares the policy."""
        return self.binding.model

    @property
    def stamps(self) -> bool:
        """Whether writes reset a field with the instant."""
        return self.binding.stamps

    def is_link(self, relation: AnyField) -> bool:
        """Whether a foreign key leads to the rows with which these expire."""
        return False

    def is_off_for(self, obj: models.Model, using: str) -> bool:
        """Whether an instance's row can't expire under its present default."""
        return self.binding.is_off_for(obj, using)

    def expires_at(self, obj: models.Model, age: int | None = None) -> datetime | None:
        """Return the instant at which an instance's row expires: see `Binding.expires_at`."""
        return self.binding.expires_at(obj, age)

    def expired_without_end(self, obj: models.Model) -> bool | None:
        """Whether an instance's row has expired; None if its end decides that."""
        return None

    def rejected(self, what: Rejected, where: str) -> TTLConfigurationError | None:
        """Return the error, with the fix, for what the rows can't have; None if they can."""
        return None

    def condition(
        self, connection: BaseDatabaseWrapper, source: str, kind: Kind, *, writing: bool
    ) -> str | None:
        """Return SQL for whether a row is live, or expired; None if its own fields decide that."""
        return None

    def judged_by_joins(self, query: Query, alias: str) -> bool:
        """Whether the condition of another table in a query makes the row's own redundant.

        In this query every table has its condition.
        """
        return False

    def leads_to_parent(self, query: Query, join: Join) -> bool:
        """Whether a join from live rows always leads to live rows."""
        return False

    def live_to_update(self, query: UpdateQuery, live: Expression) -> Sequence[Expression]:
        """Return the conditions on the rows that an UPDATE matches, including `live`."""
        return [live]

    def live_to_delete(self, query: DeleteQuery, using: str, live: Expression) -> Expression:
        """Return the condition on the rows that a DELETE matches, made of `live`."""
        return live

    def insert(self, query: InsertQuery, using: str, write: Callable[[], R]) -> R:
        """Run an INSERT in such a way that it adds no expired row."""
        return write()

    def update(self, query: UpdateQuery, using: str, write: Callable[[], R]) -> R:
        """Run an UPDATE in such a way that it makes no row an expired one."""
        return write()

    def delete(self, query: DeleteQuery, using: str, write: Callable[[], R]) -> R:
        """Run a DELETE, of live rows or of expired ones."""
        return write()


_policies: dict[str, TablePolicy] = {}
"""By the names of tables."""


def table_policy(table: str) -> TablePolicy | None:
    """Return the policy of a table; None if it has none."""
    return _policies.get(table)


def policy_in(query: Query, table: str) -> TablePolicy | None:
    """Return the policy of a table in a statement; None if it has none, or in a migration."""
    policy = _policies.get(table)
    return None if policy is None or is_historical(query.get_meta().model) else policy


def policy_of(model: Model) -> TablePolicy | None:
    """Return the policy of a model's table; None if it has none, or in a migration."""
    policy = _policies.get(model._meta.db_table)
    return None if policy is None or is_historical(model) else policy


def binding_of(model: Model) -> Binding | None:
    """Return the binding of a model, or of the model at the root of its inheritance, or None.

    None also for rows that expire with rows of another table.
    """
    policy = policy_of(model)
    return policy.binding if policy is not None and policy.has_lifetime else None


def is_historical(model: Model) -> bool:
    """Whether a model belongs to a migration."""
    return model._meta.apps is not apps


def bindings() -> list[Binding]:
    """Return every binding, in the order of declaration."""
    policies = table_policies()
    return [policy.binding for policy in policies if policy.has_lifetime and policy.link is None]


def table_policies() -> list[TablePolicy]:
    """Return the policies of all tables, in the order of declaration.

    A model that a project has swapped for another has no table.
    """
    return [policy for policy in _policies.values() if not policy.model._meta.swapped]


def number_of_policies() -> int:
    """Return how many tables have a policy; a policy for another table changes the number."""
    return len(_policies)


def has_subclass_tables(model: Model) -> bool:
    """Whether rows of a model with a policy continue in other tables."""
    return any(policy.link and policy.binding.model is model for policy in _policies.values())


def bind(binding: Binding) -> None:
    """Put a binding on the table of its model; see `put`."""
    put(TablePolicy(binding))


def put(policy: TablePolicy) -> None:
    """Put a policy on the table of its model.

    Raises:
        TTLConfigurationError: Another model has declared one, or a parent's table holds a part of
            each row.
    """
    meta = policy.model._meta
    other = _policies.get(meta.db_table)
    if other is not None and other.model is not policy.model:
        raise TTLConfigurationError(
            f"{meta.label} and {other.model._meta.label} both declare a policy for the table "
            f"{meta.db_table}, but a table has one policy: declare it on one of them."
        )
    if meta.parents:
        parents = ", ".join(parent._meta.label for parent in meta.parents)
        raise TTLConfigurationError(
            f"{meta.label} has a policy, but the table of {parents} holds a part of each row, and "
            "that part would never expire. Declare the policy on the model at the root."
        )
    _policies[meta.db_table] = policy


def bind_subclass(model: Model) -> None:
    """Apply the root's policy, if it has one, to the table of a multi-table subclass."""
    meta, declares = model._meta, "__ttl__" in vars(model)
    if meta.proxy:
        policy = _policies.get(meta.db_table)
        if policy is not None and declares and model is not policy.model:
            raise _several(model, policy)
    if meta.proxy or meta.abstract:
        return
    for parent in meta.all_parents:
        policy = _policies.get(parent._meta.db_table)
        if policy is None or policy.link is not None:
            continue
        if declares:
            raise _several(model, policy)
        error = policy.rejected("subclass", f"{meta.label}: {parent._meta.label}")
        if error is not None:
            raise error
        path = meta.get_base_chain(parent)
        link: Any = meta.parents[path[0]] if path else None
        if link is None or not link.primary_key:
            raise TTLConfigurationError(
                f"{meta.label} inherits a policy from {parent._meta.label}, but its link to that "
                "model is not its primary key: make it the primary key."
            )
        _policies[meta.db_table] = TablePolicy(policy.binding, link)


def unbind(table: str) -> None:
    """Forget the policy of a table, for tests that create models."""
    _policies.pop(table, None)


def _several(model: Model, policy: TablePolicy) -> TTLConfigurationError:
    return TTLConfigurationError(
        f"{model._meta.label}.__ttl__: its rows are also rows of {policy.model._meta.label}, "
        f"which has a policy, and nothing in the table {policy.model._meta.db_table} tells them "
        "apart. Set the rows' own ttl instead."
    )


def field_named(model: Model, name: str, where: str) -> AnyField:
    """Return the field of a model's own table by its name, attribute or column.

    Raises:
        TTLConfigurationError: The model has no such field.
    """
    local = model._meta.local_concrete_fields
    named = [field for field in local if name in (field.name, field.attname)]
    for field in (*named, *(field for field in local if name == field.column)):
        return field
    raise TTLConfigurationError(
        f"{where} names the field {name!r}, and {model._meta.label} has no such field; it has "
        f"{', '.join(field.name for field in local)}. TTLModel adds _ts and ttl."
    )


def columns_by_name(model: Model) -> dict[str, AnyField]:
    """Return a model's own columns by each name that constraints and conditions accept.

    A foreign key has two: the name of its field, and that of the field's attribute ("cart_id").
    """
    fields = model._meta.local_concrete_fields
    return {name: field for field in fields for name in (field.attname, field.name)}


def schema_and_name(table: str) -> tuple[str | None, str]:
    """Return the schema of a ``db_table``, if it names one, and the table's own name.

    Django puts quotes around a name, so ``"schema"."table"`` is how models name another schema; a
    common form leaves out the outer quotes.
    """
    schema, _, name = table.strip('"').rpartition('"."')
    return schema or None, name


def policies_of(setting: object) -> Iterator[tuple[Model, object, str]]:
    """Yield the models that the setting names, with their policies and where they are declared."""
    if not isinstance(setting, dict):
        raise TTLConfigurationError(
            f"{SETTING} = {setting!r}: give a dict that maps models, such as 'sessions.Session', "
            "to policies."
        )
    for label, declared in setting.items():
        where = f"{SETTING}[{label!r}]"
        if not isinstance(label, str) or label.count(".") != 1:
            raise TTLConfigurationError(
                f"{where}: name a model by its app and its class, as in 'sessions.Session'."
            )
        try:
            model = apps.get_model(label)
        except (LookupError, ValueError) as error:
            raise TTLConfigurationError(f"{where}: {error}") from error
        if model._meta.swapped:
            raise TTLConfigurationError(
                f"{where}: the project has swapped {label} for {model._meta.swapped}, so it has no "
                "table: name that model."
            )
        if model._meta.proxy:
            concrete: Any = model._meta.concrete_model
            raise TTLConfigurationError(
                f"{where}: {label} is a proxy of {concrete._meta.label}: name that model."
            )
        if hasattr(model, "__ttl__"):
            raise TTLConfigurationError(
                f"{where}: {label} declares a __ttl__ of its own: remove one of the two."
            )
        yield model, declared, where
