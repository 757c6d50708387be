"""The tables of stored defaults: `Policy`, the current ones, and `PolicyChange`, their history.

They are those of `ttl_odm.stored.sqlalchemy`, so that services of both agree.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from ttl_odm.django.extensions import ExactField, require_app
from ttl_odm.django.time.fields import InstantField, TTLField
from ttl_odm.stored.django.lookup import APP, LABEL
from ttl_odm.stored.rows import CHANGES, LONGEST_SCOPE, POLICIES

__all__ = ["Policy", "PolicyChange"]

require_app(APP, "Stored defaults")


class Policy(models.Model):
    """The default ttl of a table, or of one scope of it (empty: of all other rows)."""

    pk = models.CompositePrimaryKey("name", "scope")
    name = ExactField(max_length=LONGEST_SCOPE)
    scope = ExactField(max_length=LONGEST_SCOPE)
    ttl = TTLField(null=True)
    changed_at = InstantField()
    changed_by: models.CharField[str | None, str | None] = models.CharField(  # noqa: DJ001 (NULL is "nobody")
        max_length=255, null=True
    )
    reason: models.TextField[str | None, str | None] = models.TextField(null=True)  # noqa: DJ001

    class Meta:
        """The table is the same for every adapter."""

        app_label = LABEL
        db_table = POLICIES
        verbose_name = "stored default"
        constraints: Any = (
            # The least of a table's defaults is the first entry of its index.
            models.UniqueConstraint(
                fields=["name", "ttl", "scope"], name=f"uq_{POLICIES}_name_ttl"
            ),
        )

    def __str__(self) -> str:
        """Return the table, and the scope if it is a scope's default."""
        return f"{self.name} {self.scope}".rstrip()


class PolicyChange(models.Model):
    """A change of a stored default; its row is never changed."""

    id: models.BigAutoField[int, int] = models.BigAutoField(primary_key=True)
    name = ExactField(max_length=LONGEST_SCOPE)
    scope = ExactField(max_length=LONGEST_SCOPE)
    changed_at = InstantField()
    changed_by: models.CharField[str | None, str | None] = models.CharField(  # noqa: DJ001 (as above)
        max_length=255, null=True
    )
    ttl_before: models.IntegerField[int | None, int | None] = models.IntegerField(null=True)
    ttl_after: models.IntegerField[int | None, int | None] = models.IntegerField(null=True)
    reason: models.TextField[str | None, str | None] = models.TextField(null=True)  # noqa: DJ001

    class Meta:
        """The table is the same for every adapter."""

        app_label = LABEL
        db_table = CHANGES
        default_permissions = ("view",)
        verbose_name = "change of a stored default"
        verbose_name_plural = "stored defaults and their changes"

    def __str__(self) -> str:
        """Return the table, and the scope if it was a scope's default."""
        return f"{self.name} {self.scope}".rstrip()
