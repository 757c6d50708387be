"""A system check: whether the database of a model with events may have the tables of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import apps
from django.core import checks
from django.db import router

from ttl_odm.django.policy.bindings import bindings
from ttl_odm.events.django import LABEL
from ttl_odm.events.django.recording import recorder_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def register() -> None:
    """Let ``manage.py check`` look."""
    checks.register(check_databases, checks.Tags.database)


def check_databases(
    databases: Sequence[str] | None = None, **_: object
) -> list[checks.CheckMessage]:
    """See that the database routers let events be where rows are deleted."""
    event = apps.get_model(LABEL, "Event")
    return [
        checks.Error(
            f"{binding.model._meta.label} has events, but the database routers keep their tables "
            f"out of the database {alias!r}, in whose transactions its rows are deleted.",
            hint=f"Let allow_migrate() be true of the app label {LABEL!r} there.",
            obj=binding.model,
            id="ttl_odm_events.E001",
        )
        for alias in databases or ()
        for binding in bindings()
        if recorder_of(binding.model)
        if router.allow_migrate_model(alias, binding.model)
        if not router.allow_migrate_model(alias, event)
    ]
