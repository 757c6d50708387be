"""Foreign keys to rows that expire: what refers to the rows, keeps them, or goes along with them.

The database itself may delete or change what refers to a row, behind Django's back: by
``DB_CASCADE`` and its variants (Django 6.1), and by a foreign key with ``DO_NOTHING`` to which
somebody has added ON DELETE CASCADE. Expired rows of a *recorded* model (one with an archive or
hooks) must be removed before that; in a sweep, live ones keep the rows that they refer to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from django.db import models
from django.db.models.deletion import get_candidate_relations_to_delete

from ttl_odm.django.policy.bindings import binding_of, number_of_policies, table_policy
from ttl_odm.sweeper import Hooks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.time.fields import AnyField

    Relations: TypeAlias = Sequence[tuple[AnyField, AnyField]]
    """The fields of foreign keys, each with the field that it refers to."""

NO_HOOKS: Final = Hooks()

_referring: Final[dict[Model, tuple[int, Relations]]] = {}
"""What `referring_keys` has found for a model, and how many policies there were."""


class Relation(Protocol):
    """A foreign key as seen from the model that it refers to; django-stubs' types are wider."""

    @property
    def related_model(self) -> Model:
        """The model that has the foreign key."""
        ...

    @property
    def field(self) -> Any:
        """The foreign key."""
        ...


def keeping_rows(relation: Relation) -> tuple[str, str] | None:
    """Return the warning for a relation that keeps expired rows, and the fix; None for others."""
    field, other = relation.field, relation.related_model._meta
    on_delete = field.remote_field.on_delete
    forbids = on_delete in (models.PROTECT, models.RESTRICT)
    keeps = forbids or (on_delete is models.DO_NOTHING and is_enforced(field))
    if not keeps or table_policy(other.db_table) is not None:
        return None
    message = (
        f"{other.label}.{field.name} refers to rows that expire, with "
        f"on_delete={on_delete.__name__}, and {other.label} has no policy, so the rows that it "
        "refers to are never deleted."
    )
    hint = (
        f"Declare __ttl__ = Follows({field.name!r}) on {other.label}, so that its rows expire "
        "with their parent, or give the field on_delete=models.CASCADE."
    )
    return message, hint


def is_enforced(foreign_key: object) -> bool:
    """Whether Django gives a foreign key a constraint; a ``ForeignObject`` never gets one."""
    return bool(getattr(foreign_key, "db_constraint", False))


def relations_of(model: Model) -> list[Relation]:
    """Return the relations that Django follows when it deletes rows of a model."""
    return list(cast("Any", get_candidate_relations_to_delete)(model._meta))


def referring(model: Model) -> list[Relation]:
    """Return the relations by which rows that may have expired refer to rows of a model."""
    return [
        relation
        for relation in relations_of(model)
        if table_policy(relation.related_model._meta.db_table) is not None
    ]


def referring_keys(model: Model) -> Relations:
    """Return the fields by which rows that may have expired refer to live rows of a model.

    Without those by which rows expire with the rows that they refer to. A foreign key is its own
    field; a ``ForeignObject``, as to a composite key, has several.
    """
    number, keys = _referring.get(model, (0, ()))
    if number != number_of_policies():
        keys = []
        for relation in referring(model):
            field, policy = relation.field, table_policy(relation.related_model._meta.db_table)
            # A ForeignObject may have a constraint that Django doesn't know.
            if not getattr(field, "db_constraint", True) or field.remote_field.parent_link:
                continue
            if policy is not None and not policy.is_link(field):
                keys += field.related_fields
        _referring[model] = number_of_policies(), keys
    return keys


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


def is_silent(relation: Relation) -> bool:
    """Whether the database may delete the rows that refer to others by this relation."""
    on_delete = relation.field.remote_field.on_delete
    if on_delete is models.DO_NOTHING:
        return is_enforced(relation.field)
    return on_delete is getattr(models, "DB_CASCADE", models.DO_NOTHING)


def endangering(model: Model, hooks: Hooks = NO_HOOKS) -> Iterator[Relation]:
    """Yield the relations by which a plain DELETE reaches rows that must be removed before it."""
    yield from _endangering(model, hooks, frozenset())


def endangers(model: Model, hooks: Hooks = NO_HOOKS) -> bool:
    """Whether there is such a relation: see `endangering`."""
    return any(True for _ in endangering(model, hooks))


def _endangering(model: Model, hooks: Hooks, above: frozenset[Model]) -> Iterator[Relation]:
    for relation in relations_of(model):
        other = relation.related_model
        if is_silent(relation):
            below = above | {model}
            if is_recorded(other, hooks) or (
                other not in below and any(True for _ in _endangering(other, hooks, below))
            ):
                yield relation
        elif _changes_policy(relation):
            yield relation


def _changes_policy(relation: Relation) -> bool:
    """Whether the database moves rows to another default: that of no scope."""
    names = ("DB_SET_NULL", "DB_SET_DEFAULT")
    changing = [getattr(models, name) for name in names if hasattr(models, name)]
    binding = binding_of(relation.related_model)
    return (
        relation.field.remote_field.on_delete in changing
        and binding is not None
        and binding.scope is not None
        and binding.scope is relation.field
    )
