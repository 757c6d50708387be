"""The app ``ttl_odm.django``: installs the gate before the first model is declared."""

from __future__ import annotations

from django.apps import AppConfig

from ttl_odm.django.declare import declaration

# Not in ready(): Django imports every app's config before any models, so this comes in time.
declaration.install()


class TTLConfig(AppConfig):
    """Time-to-live for Django's ORM."""

    name = "ttl_odm.django"
    label = "ttl_odm"
    verbose_name = "Time to live"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Put policies on models of other apps, and register the checks."""
        from django.apps import apps  # noqa: PLC0415 (models are loaded now)
        from django.conf import settings  # noqa: PLC0415

        from ttl_odm.django import checks  # noqa: PLC0415
        from ttl_odm.django.policy.bindings import (  # noqa: PLC0415
            SETTING,
            bind_subclass,
            policies_of,
            table_policies,
        )

        checks.register()
        for model, declared, where in policies_of(getattr(settings, SETTING, {})):
            declaration.declare(model, declared, where=where)
        for model in apps.get_models(include_auto_created=True):
            bind_subclass(model)
        for policy in table_policies():
            policy.binding  # noqa: B018 (raises where a rule leads to no policy)
