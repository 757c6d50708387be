"""The app ``ttl_odm.events.django``."""

from __future__ import annotations

from django.apps import AppConfig

from ttl_odm.events.django import APP, LABEL


class EventsConfig(AppConfig):
    """Events of rows that have expired."""

    name = APP
    label = LABEL
    verbose_name = "Time to live: events"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks."""
        from ttl_odm.events.django import checks  # noqa: PLC0415 (models are loaded now)

        checks.register()
