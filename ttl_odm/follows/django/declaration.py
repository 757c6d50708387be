"""What a model declares with `Follows`, and the parent that it leads to.

The parent is looked for once all models are loaded.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models.fields.related import ForeignObject

from ttl_odm.django.keys.conditions import unique_sets
from ttl_odm.django.policy.bindings import field_named, is_historical, put, table_policy
from ttl_odm.django.policy.rules import Links
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows import check_options, last_parent
from ttl_odm.follows.django import renewals
from ttl_odm.follows.django.follower import Following
from ttl_odm.follows.django.index import link_index
from ttl_odm.follows.django.rule import FollowsRule
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.follows import Follows

    Pairs = list[tuple[AnyField, AnyField]]


def bind(model: Model, declared: Follows, *, where: str) -> None:
    """Put the rule of a model on its table; the parent may be declared later."""
    where = f"{where} = {declared!r}"
    check_options(model)
    own: list[AnyField]
    if isinstance(declared.parent, str):
        relation = _relation(model, declared.parent, where)
        is_key = isinstance(relation, models.ForeignKey)
        names = [relation.name] if is_key else relation.from_fields
        own = [field_named(model, name, where) for name in names]
    else:
        own = [field_named(model, name, where) for name, _ in declared.on]
    if getattr(model, "__ttl__", None) is declared and sweep_of(model) == "index":
        index, meta = link_index(model, own), model._meta
        if index is not None:
            meta.indexes = [*meta.indexes, index]
            meta.original_attrs["indexes"] = meta.indexes  # which migrations read
    if declared.renews:
        renewals.install()
    put(FollowsRule(model, declared, partial(_links, model, declared, where)))


def _relation(model: Model, name: str, where: str) -> ForeignObject[Any, Any]:
    """Return the relation of a model's own with this name; TTLConfigurationError for none."""
    local = model._meta.local_fields
    field = next((field for field in local if name in (field.name, field.attname)), None)
    if isinstance(field, ForeignObject):
        return field
    relations = [repr(field.name) for field in local if isinstance(field, ForeignObject)]
    raise TTLConfigurationError(
        f"{where}: {model._meta.label} has no ForeignKey or OneToOneField {name!r} of its own; it "
        f"has {', '.join(relations) or 'none'}. Name one, or give the parent's class and "
        "on={...}."
    )


def _links(model: Model, declared: Follows, where: str) -> Links:
    pairs: Pairs
    if isinstance(declared.parent, str):
        relation = _relation(model, declared.parent, where)
        parent: Any = relation.related_model
        if isinstance(parent, str):
            raise TTLConfigurationError(
                f"{where}: there is no model {parent!r}; is its app in INSTALLED_APPS?"
            )
        parent = parent._meta.concrete_model
        pairs = list(relation.related_fields)
    else:
        parent = declared.parent
        if not issubclass(parent, models.Model) or parent._meta.abstract or is_historical(parent):
            raise TTLConfigurationError(
                f"{where}: {parent.__name__} is not a model with a table of its own."
            )
        parent = parent._meta.concrete_model
        pairs = [
            (field_named(model, own, where), field_named(parent, theirs, where))
            for own, theirs in declared.on
        ]
    theirs = {field for _, field in pairs}
    keys = (unique.fields for unique in unique_sets(parent) if unique.condition is None)
    if not any(theirs.issuperset(key) for key in keys):
        names = ", ".join(field.name for field in theirs)
        raise TTLConfigurationError(
            f"{where}: {names} of {parent._meta.label} is neither its primary key nor unique, so "
            "a row could have several parents; name a key of that model."
        )
    policy = table_policy(parent._meta.db_table)
    if policy is None:
        raise TTLConfigurationError(
            f"{where}: the rows of {parent._meta.label} have no lifetime; declare __ttl__ on it, "
            "or name it in TTL_ODM_POLICIES."
        )
    if policy.link is not None:  # lifetimes are in the table at the root
        if theirs != {policy.link}:
            raise TTLConfigurationError(
                f"{where}: {parent._meta.label} inherits from {policy.model._meta.label}, which "
                "has the lifetimes; name its primary key."
            )
        parent = policy.model
        pairs = [(own, parent._meta.pk) for own, _ in pairs]
    _check_chain(model, parent, declared, where)
    return Links(parent, tuple(pairs))


def _check_chain(model: Model, parent: Model, declared: Follows, where: str) -> None:
    """Check that the chain of parents has an end, whose rows can be renewed if need be."""
    root = table_policy(last_parent(model, parent, _parent_of, where)._meta.db_table)
    if declared.renews and root is not None and not root.binding.stamps:
        raise TTLConfigurationError(
            f"{where}: with {root.binding.policy!r}, no write renews rows of "
            f"{root.model._meta.label}; leave renews out, or declare a TTL there."
        )


def _parent_of(model: Model) -> Model | None:
    """Return the model that a model follows; None if it follows no other.

    Not by its `links`, which would check the chain in turn, and never end in a cycle.
    """
    following = table_policy(model._meta.db_table)
    if not isinstance(following, Following):
        return None
    named: Any = following.declared.parent
    if isinstance(named, str):
        named = _relation(following.model, named, following.model._meta.label).related_model
    return named._meta.concrete_model  # type: ignore[no-any-return]
