"""Which foreign keys are in the way: of a sweep, or of an UPDATE of what they refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from django.db.models import DO_NOTHING, PROTECT, RESTRICT
from django.db.models.deletion import get_candidate_relations_to_delete as relations_of

from ttl_odm.django.policy.bindings import number_of_policies, table_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.django.policy.bindings import Model

    Relations = Sequence[tuple[Any, Any]]
    """Foreign keys, each with the field that it refers to."""

_referring: Final[dict[Model, tuple[int, Relations]]] = {}
"""What is known of a model, and of how many policies that was."""


def keeping_rows(relation: Any) -> tuple[str, str] | None:
    """What is said of a relation that keeps rows that expire, and what to do; None of another."""
    field, other = relation.field, relation.related_model._meta
    on_delete = field.remote_field.on_delete
    keeps = on_delete in (PROTECT, RESTRICT) or (on_delete is DO_NOTHING and field.db_constraint)
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


def referring_keys(model: Model) -> Relations:
    """The foreign keys by which rows that may have expired refer to live rows of a model.

    Not those by which rows live with them, by a rule.
    """
    number, known = _referring.get(model, (0, ()))
    if number != number_of_policies():
        known = [
            (relation.field, target)
            for relation in cast("Any", relations_of)(model._meta)
            if getattr(relation.field, "db_constraint", True) and _may_expire_alone(relation)
            for target in relation.field.foreign_related_fields
        ]
        _referring[model] = number_of_policies(), known
    return known


def _may_expire_alone(relation: Any) -> bool:
    field, policy = relation.field, table_policy(relation.related_model._meta.db_table)
    if policy is None or field.remote_field.parent_link:
        return False
    return not policy.is_link(field)
