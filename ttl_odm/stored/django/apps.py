"""The app ``ttl_odm.django.policies``, which stores the initial defaults after ``migrate``."""

from __future__ import annotations

from django.apps import AppConfig
from django.db import connections, router
from django.db.models.signals import post_migrate

from ttl_odm.stored.django.lookup import APP, LABEL


class PoliciesConfig(AppConfig):
    """Defaults that the database stores."""

    name = APP
    label = LABEL
    verbose_name = "Time to live: stored defaults"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Have the initial defaults stored after migrations."""
        post_migrate.connect(_migrated, sender=self, dispatch_uid=self.name)


def _migrated(sender: AppConfig, using: str, **_: object) -> None:
    """Store the initial defaults in a database that has the tables."""
    from ttl_odm.stored.django.changes import begin_policies  # noqa: PLC0415 (apps are loaded now)

    if not router.allow_migrate_model(using, sender.get_model("Policy")):
        return
    if sender.get_model("Policy")._meta.db_table in connections[using].introspection.table_names():
        begin_policies(using=using)
