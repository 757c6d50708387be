"""Which foreign keys get in the way of a sweep: they keep expired rows, and no policy ends that."""

from __future__ import annotations

from typing import Any

from django.db.models import DO_NOTHING, PROTECT, RESTRICT

from ttl_odm.django.policy.binding import table_policy


def keeping_rows(relation: Any) -> tuple[str, str] | None:
    """What is said of a relation that keeps rows that expire, and what to do; None of another."""
    field, other = relation.field, relation.related_model._meta
    on_delete = field.remote_field.on_delete
    keeps = on_delete in (PROTECT, RESTRICT) or (on_delete is DO_NOTHING and field.db_constraint)
    if not keeps or table_policy(other.db_table) is not None:
        return None
    message = (
        f"{other.label}.{field.name} refers to rows that expire, with on_delete="
        f"{on_delete.__name__}, and {other.label} has no policy: a row that it refers to stays."
    )
    hint = (
        f"Let it follow, by __ttl__ = Follows({field.name!r}) on {other.label}, or give the field "
        "on_delete=models.CASCADE."
    )
    return message, hint
