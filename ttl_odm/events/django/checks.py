"""What ``manage.py check`` and ``ttl_check`` report about models with events.

The system check reads the database routers only; the findings of ``ttl_check`` read a database.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, connections, router

from ttl_odm.django.extensions import database_checks
from ttl_odm.django.policy.bindings import binding_of, bindings
from ttl_odm.django.policy.rules import rule_of
from ttl_odm.events.django import LABEL
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.django.recorder import recorder_of
from ttl_odm.events.django.warnings import warned_of
from ttl_odm.events.expiry import EXPIRING
from ttl_odm.events.findings import (
    NoEvents,
    Tools,
    of_consumers,
    uncalled,
    unread,
    unrecorded,
)
from ttl_odm.events.handlers import handlers
from ttl_odm.events.outbox import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.events.handlers import Handler
    from ttl_odm.sweeper.findings import Finding

_COMMAND: Final = "python manage.py ttl_events"


def register() -> None:
    """Register the system check, and the findings for ``ttl_check``."""
    checks.register(check_databases, checks.Tags.database)
    if findings not in database_checks:
        database_checks.append(findings)


def check_databases(
    databases: Sequence[str] | None = None, **_: object
) -> list[checks.CheckMessage]:
    """Report databases whose rows have events, but which can't have the tables for these."""
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


def findings(models: Sequence[Model], alias: str) -> Iterator[Finding]:
    """Check the events of models, and the outbox if its own model is among them."""
    yield from uncalled(handlers, partial(_no_events, alias))
    tables = {model._meta.db_table: recorded for model in models if (recorded := _recorded(model))}
    delivery = apps.get_model(LABEL, "Delivery")
    if not tables and delivery not in models:
        return
    missing = _missing(alias)
    if missing:
        for table, recorded in tables.items():
            yield from unrecorded(table, recorded, missing, _creation(alias))
        return
    states, options = TableOutbox(alias).states(), _options(alias)
    tools = Tools(
        command=_COMMAND,
        options=options,
        where=None,
        worker=f"{_COMMAND}{options}",
        engine=f"connections[{alias!r}]",
    )
    known = [subscription for state in states for subscription in state.subscriptions]
    for table, recorded in tables.items():
        yield from unread(table, recorded, known, tools)
    if delivery in models:
        yield from of_consumers(delivery._meta.db_table, states, tools)


def _no_events(alias: str, handler: Handler) -> NoEvents | None:
    """Why a handler's table, if a model has it in a database, can't have events."""
    for model in apps.get_models(include_auto_created=True):
        is_in_database = router.allow_migrate_model(alias, model)
        if model._meta.proxy or model._meta.db_table != handler.table or not is_in_database:
            continue
        if rule_of(model) is not None:
            return NoEvents.FOLLOWS
        return NoEvents.NO_POLICY if binding_of(model) is None else None
    return None


def _recorded(model: Model) -> list[Subscription]:
    """The events of a model that are recorded."""
    table, warned = model._meta.db_table, warned_of(model)
    recorded = [Subscription(table)] if recorder_of(model) else []
    befores = () if warned is None else warned.befores
    return [*recorded, *(Subscription(table, EXPIRING, before) for before in befores)]


def _missing(alias: str) -> list[str]:
    """The tables of events that a database lacks."""
    names = connections[alias].introspection.table_names()
    tables = [model._meta.db_table for model in apps.get_app_config(LABEL).get_models()]
    return [table for table in tables if table not in names]


def _creation(alias: str) -> str:
    """The fix that creates the tables of events."""
    event: Any = apps.get_model(LABEL, "Event")
    if not router.allow_migrate_model(alias, event):
        return f"let allow_migrate() of the database routers be true of {LABEL!r}; then migrate"
    return f"python manage.py migrate {LABEL}{_options(alias)}"


def _options(alias: str) -> str:
    return "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
