"""Puts the policy of each declared model on its table, or rejects it.

Django sends `class_prepared` for every model. Models with a ``__ttl__`` are bound, whatever they
inherit from, and so are subclasses with tables of their own. Models of other apps get their
policies from the setting ``TTL_ODM_POLICIES`` once all models are loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models.base import ModelBase
from django.db.models.signals import class_prepared

from ttl_odm.core.declaration import undeclared
from ttl_odm.core.extension import Extension
from ttl_odm.core.policy import as_policy
from ttl_odm.django import gate
from ttl_odm.django.objects import guard
from ttl_odm.django.policy import associations
from ttl_odm.django.policy.bindings import (
    Binding,
    bind,
    bind_subclass,
    is_historical,
    table_policy,
)
from ttl_odm.django.policy.indexes import has_contract_fields, sweeper_indexes
from ttl_odm.django.policy.rules import bind_extension
from ttl_odm.django.purge import displacement
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.hooks import archive_of, hooks_of, purge_of, reject_partitions, sweep_of

if TYPE_CHECKING:
    from ttl_odm.django.policy.bindings import Model


def install() -> None:
    """Install the gate and its companions in Django, and bind every model from now on."""
    gate.install()
    displacement.install()
    associations.install()
    class_prepared.connect(_prepared, dispatch_uid="ttl_odm")
    ModelBase.__setattr__ = _set  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]


def _set(model: type, name: str, value: object) -> None:
    """Reject an invalid ``__ttl__`` when it is assigned to a model, rather than in each query."""
    if name == "__ttl__":
        meta = getattr(model, "_meta", None)
        policy = None if meta is None else table_policy(meta.db_table)
        where = f"{model.__name__}.__ttl__"
        error = None if policy is None else policy.rejected("change", where)
        if error is not None:
            raise error
        as_policy(value, where=where)
    type.__setattr__(model, name, value)


def _prepared(sender: Model, **_: object) -> None:
    if is_historical(sender):
        return
    meta = sender._meta
    inherits = bool(meta.parents) or meta.proxy
    if not inherits and hasattr(sender, "__ttl__"):
        from ttl_odm.django.declare.mixin import TTLModel  # noqa: PLC0415 (once apps are loaded)

        if next(base for base in sender.__mro__ if "__ttl__" in vars(base)) is TTLModel:
            raise undeclared(sender, TTLModel.__name__)
        declare(sender, getattr(sender, "__ttl__", None), where=f"{sender.__name__}.__ttl__")
        return
    continues = meta.parents and not any(hasattr(parent, "__ttl__") for parent in meta.parents)
    if continues and "__ttl__" in vars(sender) and not meta.proxy:
        raise TTLConfigurationError(
            f"{sender.__name__}.__ttl__: the table of its parent model, which has no policy, "
            "holds a part of each row, and that part would never expire. Declare the policy on "
            "the parent model."
        )
    bind_subclass(sender)


def declare(model: Model, declared: object, *, where: str) -> None:
    """Put a policy on a model's table; raise if it is invalid, or can't work with the model."""
    if isinstance(declared, Extension):
        bind_extension(model, declared, where=where)
        guard(model)
        return
    binding = Binding.of(model, declared, where=where, sweep=sweep_of(model))
    purge_of(model, ("delete",))
    reject_partitions(model)
    archive_of(model)  # a check compares it with the model once all models are loaded
    hooks_of(model, model._meta.db_table)
    bind(binding)
    guard(model)
    if binding.sweep == "scan" or binding.own is None or not has_contract_fields(binding):
        return
    # The sweeper's two indexes. Not in the abstract model's Meta: a class Meta that doesn't inherit
    # from it would lose them.
    meta = model._meta
    table = meta.db_table.replace('"', "")
    names = {index.name for index in meta.indexes}
    scope = None if binding.scope is None else binding.scope.name
    ours = sweeper_indexes(table, binding.stamp.name, binding.own.name, scope)
    meta.indexes = [*meta.indexes, *(index for index in ours if index.name not in names)]
    meta.original_attrs["indexes"] = meta.indexes  # which migrations read
