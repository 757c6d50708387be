"""What ``ttl_check`` looks at where models have events."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, router

from ttl_odm.django.extensions import database_checks
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.django.policy.rules import rule_of
from ttl_odm.events.django import LABEL
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.django.recording import recorder_of
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
    """Let ``manage.py ttl_check`` look."""
    if events_of not in database_checks:
        database_checks.append(events_of)


def events_of(models: Sequence[Model], alias: str) -> Iterator[Finding]:
    """Look at the events of models, and at the outbox if its own model is among them."""
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
    states, tools = TableOutbox(alias).states(), _tools(alias)
    known = [one for state in states for one in state.subscriptions]
    for table, recorded in tables.items():
        yield from unread(table, recorded, known, tools)
    if delivery in models:
        yield from of_consumers(delivery._meta.db_table, states, tools)


def _no_events(alias: str, handler: Handler) -> NoEvents | None:
    """Why the table of a handler, if a model has it in a database, can't have events."""
    for model in apps.get_models(include_auto_created=True):
        is_there = router.allow_migrate_model(alias, model)
        if model._meta.proxy or model._meta.db_table != handler.table or not is_there:
            continue
        if rule_of(model) is not None:
            return NoEvents.FOLLOWS
        return NoEvents.NO_POLICY if binding_of(model) is None else None
    return None


def _recorded(model: Model) -> list[Subscription]:
    """Which events of a model are recorded."""
    table, warned = model._meta.db_table, warned_of(model)
    recorded = [Subscription(table)] if recorder_of(model) else []
    befores = () if warned is None else warned.befores
    return [*recorded, *(Subscription(table, EXPIRING, before) for before in befores)]


def _missing(alias: str) -> list[str]:
    """The tables of events that a database lacks."""
    there = connections[alias].introspection.table_names()
    tables = [model._meta.db_table for model in apps.get_app_config(LABEL).get_models()]
    return [table for table in tables if table not in there]


def _creation(alias: str) -> str:
    """What creates the tables of events."""
    event: Any = apps.get_model(LABEL, "Event")
    if not router.allow_migrate_model(alias, event):
        return f"let allow_migrate() of the database routers be true of {LABEL!r}; then migrate"
    return f"python manage.py migrate {LABEL}{_options(alias)}"


def _tools(alias: str) -> Tools:
    return Tools(
        command=_COMMAND,
        options=_options(alias),
        where=None,
        worker=f"{_COMMAND}{_options(alias)}",
        engine=f"connections[{alias!r}]",
    )


def _options(alias: str) -> str:
    return "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
