"""Events of Django models, as an app: ``INSTALLED_APPS = [..., "ttl_odm.events.django"]``.

- `apps`, `migrations`: the app and its tables.
- `models`: the tables that keep events and deliveries; those of `ttl_odm.events.sqlalchemy`.
- `recorder`: the event of a row, and a hook that records it in the deleting transaction.
- `warnings`: rows that are about to expire.
- `outbox`: the outbox in these tables, for workers and readers.
- `source`: the events of a worker, or of a reader.
- `signals`: events as Django signals.
- `checks`: what ``manage.py check`` and ``ttl_check`` report about events.
- `management.commands.ttl_events`: the worker, and the outbox for people.

Nothing here imports models before Django has set up its apps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.events.django.source import EventSource

__all__ = ["read_from", "record", "source_of", "warn"]

APP: Final = "ttl_odm.events.django"
LABEL: Final = "ttl_odm_events"


def record(target: object, include: Sequence[str]) -> str:
    """Record the events of a model; see `ttl_odm.events.record_expired`.

    Raises:
        ImproperlyConfigured: This app isn't in INSTALLED_APPS.
    """
    from ttl_odm.events.django import recorder  # noqa: PLC0415 (see above)

    _require_app()
    return recorder.record(target, include)


def warn(target: object, before: timedelta, include: Sequence[str]) -> str:
    """Record warnings of a model's rows; see `ttl_odm.events.record_expiring`.

    Raises:
        ImproperlyConfigured: This app isn't in INSTALLED_APPS.
    """
    from ttl_odm.events.django import warnings  # noqa: PLC0415 (see above)

    _require_app()
    return warnings.warn(target, before, include)


def source_of(engine: BaseDatabaseWrapper, targets: Any) -> EventSource:
    """Return the source of a worker's events; see `ttl_odm.events.EventWorker`.

    Raises:
        ImproperlyConfigured: This app isn't in INSTALLED_APPS.
        TTLConfigurationError: None of the targets has events.
    """
    from ttl_odm.events.django import source  # noqa: PLC0415 (see above)

    _require_app()
    return source.source_of(engine.alias, targets)


def read_from(engine: BaseDatabaseWrapper, targets: Any) -> EventSource:
    """Return the source of a reader's events; see `ttl_odm.events.events`.

    Raises:
        ImproperlyConfigured: This app isn't in INSTALLED_APPS.
        TTLConfigurationError: There are targets, and none of them has events.
    """
    from ttl_odm.events.django import source  # noqa: PLC0415 (see above)

    _require_app()
    return source.read_from(engine.alias, targets)


def _require_app() -> None:
    from ttl_odm.django.extensions import require_app  # noqa: PLC0415 (see above)

    require_app(APP, "Events")
