"""`Lease` (the sweepers' lease table) and `TTLModel`, which is abstract.

The table is the one of `ttl_odm.sqlalchemy`, so sweepers of both adapters take turns.
"""

from __future__ import annotations

from django.db import models

from ttl_odm.django.declare.mixin import TTLModel
from ttl_odm.django.extensions import require_app
from ttl_odm.django.time.fields import InstantField

__all__ = ["Lease", "TTLModel"]

require_app("ttl_odm.django", "Models with a policy")


class Lease(models.Model):
    """Who may sweep a database, until when, and the history of the last sweeps."""

    name: models.CharField[str, str] = models.CharField(max_length=200, primary_key=True)
    holder: models.CharField[str | None, str | None] = models.CharField(  # noqa: DJ001 (NULL is "nobody")
        max_length=255, null=True
    )
    acquired_until = InstantField(null=True)
    token: models.BigIntegerField[int, int] = models.BigIntegerField()
    paused: models.BooleanField[bool, bool] = models.BooleanField()
    history: models.TextField[str, str] = models.TextField()
    recorded_at = InstantField(null=True)

    class Meta:
        """The same table, whichever adapter has created it."""

        db_table = "ttl_odm_lease"

    def __str__(self) -> str:
        """Return the lease's name."""
        return self.name
