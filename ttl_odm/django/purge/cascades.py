"""What the database deletes or changes along with a row, behind Django's back.

``DB_CASCADE`` and its variants (Django 6.1) do, and so does a foreign key with ``DO_NOTHING`` to
which somebody has added ON DELETE CASCADE. Expired rows of a *recorded* model (one with an archive
or hooks) must be removed before that; live ones keep the rows that they refer to in a sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db import models
from django.db.models.deletion import get_candidate_relations_to_delete as relations_of

from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.sweeper import Hooks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.django.policy.bindings import Model

NO_HOOKS: Final = Hooks()


def is_recorded(model: Model, hooks: Hooks = NO_HOOKS) -> bool:
    """Whether expired rows of a model are archived, or reported to hooks."""
    binding = binding_of(model)
    if binding is None:
        return False
    root = binding.model
    return (
        getattr(root, "__ttl_archive__", None) is not None
        or bool(getattr(root, "__ttl_on_purged__", None))
        or hooks.watches(root._meta.db_table)
    )


def is_silent(relation: Any) -> bool:
    """Whether the database may delete what refers to a row by this relation."""
    on_delete = relation.field.remote_field.on_delete
    if on_delete is models.DO_NOTHING:
        return bool(relation.field.db_constraint)
    return on_delete is getattr(models, "DB_CASCADE", models.DO_NOTHING)


def endangering(model: Model, hooks: Hooks = NO_HOOKS) -> Iterator[Any]:
    """The relations by which a plain DELETE reaches rows that must be removed before."""
    yield from _endangering(model, hooks, frozenset())


def endangers(model: Model, hooks: Hooks = NO_HOOKS) -> bool:
    """Whether there is one."""
    return any(True for _ in endangering(model, hooks))


def _endangering(model: Model, hooks: Hooks, above: frozenset[Model]) -> Iterator[Any]:
    candidates: Any = relations_of(model._meta)
    for relation in candidates:
        other = relation.related_model
        if is_silent(relation):
            below = above | {model}
            if is_recorded(other, hooks) or (
                other not in below and any(True for _ in _endangering(other, hooks, below))
            ):
                yield relation
        elif _changes_policy(relation):
            yield relation


def _changes_policy(relation: Any) -> bool:
    """Whether the database gives rows another default: that of no scope."""
    names = ("DB_SET_NULL", "DB_SET_DEFAULT")
    changing = [getattr(models, name) for name in names if hasattr(models, name)]
    binding = binding_of(relation.related_model)
    return (
        relation.field.remote_field.on_delete in changing
        and binding is not None
        and binding.scope is not None
        and binding.scope is relation.field
    )
