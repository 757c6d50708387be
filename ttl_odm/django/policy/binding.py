"""What a policy means for one Django model, and which tables have one.

A `Binding` is found by the name of a table, because a table is all that a statement knows of a
join. Models declare it as `TTLModel` does, or the setting ``TTL_ODM_POLICIES`` does it for models
of others. The default is read whenever a statement is compiled, and Django compiles each time: a
changed ``__ttl__`` acts at once on every row.

Historical models (in migrations) are not bound: a migration may run before the columns are there,
and has to see what it migrates. This module must not know SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.db import models

from ttl_odm.core import NEVER, TTL, ExpireAfter, ExpireAt, Policy, as_policy, expires_at
from ttl_odm.django.time.fields import TTLField
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ttl_odm.django.time.clock import Form

SETTING: Final = "TTL_ODM_POLICIES"


@dataclass(eq=False)
class Binding:
    """A table's policy.

    Attributes:
        model: The concrete model whose table holds the fields.
        declared: The policy that the fields were found for; another one asks for a look.
        stamp: The field with the instant.
        own: The field with the row's own ttl; None where rows have none.
        sweep: ``"index"`` or ``"scan"``: how the sweeper finds expired rows.
    """

    model: Any
    declared: object
    policy: Policy
    stamp: Any
    own: Any
    sweep: str

    @classmethod
    def of(cls, model: Any, declared: object, *, where: str, sweep: str) -> Binding:
        """Find the fields of a policy on a model.

        Raises:
            TTLConfigurationError: The model has no such fields, or they are of another kind.
        """
        policy = as_policy(declared, where=where)
        name = policy.last_modified if isinstance(policy, TTL) else policy.field
        stamp, own = _field(model, name, where), None
        if isinstance(policy, TTL) and policy.override is not None:
            own = _field(model, policy.override, where)
        _check(policy, own, where)
        found = cls(model, declared, policy, stamp, own, sweep)
        found.form  # noqa: B018 (raises for a field that holds no instants)
        return found

    @property
    def form(self) -> Form:
        """The form that instants have in the column."""
        field = self.stamp
        if getattr(field, "holds_instants", False):
            return "instant"
        unit: Any = self.policy.unit
        if unit in ("s", "ms", "us") and isinstance(field, models.IntegerField):
            form: Form = unit
            return form
        if unit is None and isinstance(field, models.DateTimeField):
            return "datetime"
        wanted = "an integer field for epoch numbers" if unit else "a DateTimeField, or give a unit"
        raise TTLConfigurationError(
            f"{self.model._meta.label}.{field.name} is a {type(field).__name__}; "
            f"{self.policy!r} needs {wanted}."
        )

    def current(self) -> Policy:
        """The policy as it is declared at this moment.

        Raises:
            InvalidTTL: ``__ttl__`` was set to something that isn't a ttl.
            TTLConfigurationError: It now names other fields.
        """
        declared = getattr(self.model, "__ttl__", self.declared)
        if declared is self.declared:
            return self.policy
        where = f"{self.model.__name__}.__ttl__"
        policy = as_policy(declared, where=where)
        if isinstance(self.policy, TTL) and isinstance(policy, TTL) and declared is not policy:
            policy = self.policy.with_default(policy.default)
        if _shape(policy) != _shape(self.policy):
            raise TTLConfigurationError(
                f"{where} became {declared!r}: only the default ttl can change while the "
                f"application runs, not the fields (they were set up as {self.policy!r})."
            )
        self.declared, self.policy = declared, policy
        return policy

    def expires_at(self, obj: Any) -> datetime | None:
        """The instant from which the row of an instance doesn't exist (aware, UTC)."""
        instant = getattr(obj, self.stamp.attname)
        return expires_at(self.current(), instant=instant, own=self.own_of(obj))

    def own_of(self, obj: Any) -> Any:
        """What the row of an instance has, or will have, for its own ttl."""
        own = None if self.own is None else getattr(obj, self.own.attname)
        return own.total_seconds() if isinstance(own, timedelta) else own

    @property
    def seconds(self) -> int | None:
        """The seconds after which an inheriting row expires; None for never, or while TTL is off.

        0 for a field that holds the instant of expiry itself.
        """
        policy = self.current()
        if isinstance(policy, ExpireAfter):
            return policy.seconds
        if isinstance(policy, ExpireAt):
            return 0
        return None if policy.default == NEVER else policy.default

    @property
    def is_off(self) -> bool:
        """Whether nothing can expire."""
        policy = self.current()
        return isinstance(policy, TTL) and policy.default is None

    @property
    def is_strict(self) -> bool:
        """Whether a CHECK keeps what is no ttl out of the rows' own."""
        return isinstance(self.own, TTLField)

    @property
    def stamps(self) -> bool:
        """Whether writes reset the field with the instant."""
        return isinstance(self.policy, TTL)

    @property
    def nevers(self) -> tuple[int, ...]:
        """Own ttls that mean "never"."""
        return (NEVER, *self.policy.never) if isinstance(self.policy, TTL) else ()


def _check(policy: Policy, own: Any, where: str) -> None:
    """Refuse what a policy says and this adapter doesn't do."""
    if policy.timezone != "UTC":
        raise TTLConfigurationError(
            f"{where}: timezone={policy.timezone!r}: what a DateTimeField holds is said by "
            "Django's settings (USE_TZ, TIME_ZONE); leave timezone out."
        )
    if not isinstance(policy, TTL):
        return
    if policy.max_lifetime is not None:
        raise TTLConfigurationError(
            f"{where}: max_lifetime={policy.max_lifetime!r}: there is no limit to lifetimes on "
            "Django yet; leave max_lifetime and created out."
        )
    if policy.by is not None:
        raise TTLConfigurationError(
            f"{where}: by={policy.by!r}: there is no default for each kind of row on Django; "
            "give the rows a ttl of their own, or the kinds a model each."
        )
    mode = "strict" if isinstance(own, TTLField) else "lenient"
    if policy.values not in (None, mode):
        raise TTLConfigurationError(
            f"{where}: values={policy.values!r}: TTLModel's own field is strict, any other field "
            "is lenient (values that are no ttl have no effect); leave values out."
        )


def _shape(policy: Policy) -> Policy:
    """What of a policy can't change while the application runs."""
    if isinstance(policy, TTL):
        return policy.shape
    return replace(policy, seconds=0) if isinstance(policy, ExpireAfter) else policy


@dataclass(frozen=True)
class TablePolicy:
    """How a table hangs on a policy.

    Attributes:
        binding: The policy.
        link: None for the table that holds the fields; for the table of a multi-table subclass,
            the field in it that holds the root's primary key.
    """

    binding: Binding
    link: Any = None


_places: dict[str, TablePolicy] = {}


def place_of(table: str) -> TablePolicy | None:
    """How a table hangs on a policy; None if it doesn't."""
    return _places.get(table)


def binding_of(model: Any) -> Binding | None:
    """The policy of a model's rows, or of the model at the root of its inheritance; None."""
    place = _places.get(model._meta.concrete_model._meta.db_table)
    return None if place is None or is_historical(model) else place.binding


def is_historical(model: Any) -> bool:
    """Whether a model is a migration's."""
    return model._meta.apps is not apps


def bindings() -> list[Binding]:
    """Every policy, in the order of declaration."""
    return [place.binding for place in _places.values() if place.link is None]


def bind(binding: Binding) -> None:
    """Put a policy on a table.

    Raises:
        TTLConfigurationError: The table has one, or its rows are part of another table's.
    """
    meta = binding.model._meta
    if meta.db_table in _places and _places[meta.db_table].binding.model is not binding.model:
        raise TTLConfigurationError(
            f"{meta.label} and {_places[meta.db_table].binding.model._meta.label} both declare a "
            f"policy for the table {meta.db_table}: one table has one policy."
        )
    if meta.parents:
        parents = ", ".join(parent._meta.label for parent in meta.parents)
        raise TTLConfigurationError(
            f"{meta.label} has a policy, and its rows continue in the table of {parents}, which "
            "would stay when they expire. Put the policy on the model at the root."
        )
    _places[meta.db_table] = TablePolicy(binding)


def bind_subclass(model: Any) -> None:
    """Let the table of a multi-table subclass hang on the policy of the root, if it has one.

    Raises:
        TTLConfigurationError: It declares another policy.
    """
    meta = model._meta
    if meta.proxy or meta.abstract or not meta.parents:
        found = binding_of(model) if meta.proxy else None
        if found is not None and "__ttl__" in vars(model) and model is not found.model:
            raise _several(model, found)
        return
    for parent in meta.all_parents:
        place = _places.get(parent._meta.db_table)
        if place is None or place.link is not None:
            continue
        if "__ttl__" in vars(model):
            raise _several(model, place.binding)
        _places[meta.db_table] = TablePolicy(place.binding, _link(model, parent))


def unbind(table: str) -> None:
    """Forget a table, for tests that make models."""
    _places.pop(table, None)


def _link(model: Any, root: Any) -> Any:
    path = model._meta.get_base_chain(root)
    link = model._meta.parents[path[0]] if path else None
    if link is None or not link.primary_key:
        raise TTLConfigurationError(
            f"{model._meta.label} inherits a policy from {root._meta.label}, and its link to it "
            "is not its primary key; let it be."
        )
    return link


def _several(model: Any, binding: Binding) -> TTLConfigurationError:
    return TTLConfigurationError(
        f"{model._meta.label}.__ttl__: its rows are rows of {binding.model._meta.label} too, "
        f"which has a policy. Nothing in the table {binding.model._meta.db_table} tells them "
        "apart, so give rows a ttl of their own instead."
    )


def _field(model: Any, name: str, where: str) -> Any:
    local = model._meta.local_concrete_fields
    for field in local:
        if name in (field.name, field.attname):
            return field
    for field in local:
        if name == field.column:
            return field
    raise TTLConfigurationError(
        f"{where} names the field {name!r}, and {model._meta.label} has no such field; it has "
        f"{', '.join(field.name for field in local)}. TTLModel brings _ts and ttl."
    )


def policies_of(setting: Any) -> Iterator[tuple[Any, object, str]]:
    """The models that the setting names, with their policies and where these are declared.

    Raises:
        TTLConfigurationError: The setting is no mapping, or names what isn't there.
    """
    if not isinstance(setting, dict):
        raise TTLConfigurationError(
            f"{SETTING} = {setting!r}: give a dict from models ('sessions.Session') to policies."
        )
    for label, declared in setting.items():
        where = f"{SETTING}[{label!r}]"
        try:
            model = apps.get_model(label)
        except (LookupError, ValueError) as error:
            raise TTLConfigurationError(f"{where}: {error}") from error
        if hasattr(model, "__ttl__"):
            raise TTLConfigurationError(f"{where}: {label} declares a __ttl__ of its own.")
        yield model, declared, where
