"""The tables that keep events and what consumers haven't dealt with.

They are those of `ttl_odm.events.sqlalchemy`, so that services of both can share them. Events and
their deliveries expire, too, at ``kept_until``. This module must not know how they are written or
read.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from ttl_odm import ExpireAt
from ttl_odm.django.extensions import ExactField, require_app
from ttl_odm.django.time.fields import InstantField
from ttl_odm.events.django import APP, LABEL
from ttl_odm.events.handlers import LONGEST_NAME
from ttl_odm.events.rows import CONSUMERS, DELIVERIES, EVENTS

__all__ = ["Consumer", "Delivery", "Event"]

require_app("ttl_odm.django", "Events")
require_app(APP, "Events")


class Event(models.Model):
    """An event: the outbox."""

    __ttl__ = ExpireAt("kept_until")

    id = ExactField(max_length=32, primary_key=True)
    table_name = ExactField(max_length=255)
    kind = ExactField(max_length=16)
    before_seconds: models.IntegerField[int | None, int | None] = models.IntegerField(null=True)
    row_key: models.TextField[str, str] = models.TextField()
    row_values: models.TextField[str, str] = models.TextField()
    last_modified = InstantField(null=True)
    expires_at = InstantField()
    recorded_at = InstantField()
    kept_until = InstantField()

    class Meta:
        """The table is the same for every adapter."""

        app_label = LABEL
        db_table = EVENTS
        indexes: Any = (
            models.Index(fields=["recorded_at"], name=f"ix_{EVENTS}_recorded"),
            models.Index(fields=["kept_until"], name=f"ix_{EVENTS}_kept"),
        )

    def __str__(self) -> str:
        """Return what happened, and to which row."""
        return f"{self.kind}: {self.table_name} {self.row_key}"


class Consumer(models.Model):
    """A consumer of a table's events; some may come late until its `unsettled_from` is NULL."""

    pk = models.CompositePrimaryKey("consumer", "table_name", "kind")
    consumer = ExactField(max_length=LONGEST_NAME)
    table_name = ExactField(max_length=255)
    kind = ExactField(max_length=16)
    before_seconds: models.IntegerField[int | None, int | None] = models.IntegerField(null=True)
    unsettled_from = InstantField(null=True)

    class Meta:
        """The table is the same for every adapter."""

        app_label = LABEL
        db_table = CONSUMERS

    def __str__(self) -> str:
        """Return the consumer, and the events that it gets."""
        return f"{self.consumer}: {self.kind} of {self.table_name}"


class Delivery(models.Model):
    """An event that a consumer hasn't dealt with yet.

    It is dead if it has an `error` but no `next_at`, and done if it has neither.
    """

    __ttl__ = ExpireAt("kept_until")

    pk = models.CompositePrimaryKey("event", "consumer")
    event = ExactField(max_length=32)
    consumer = ExactField(max_length=LONGEST_NAME)
    deliveries: models.IntegerField[int, int] = models.IntegerField()
    next_at = InstantField(null=True)
    error: models.TextField[str | None, str | None] = models.TextField(null=True)  # noqa: DJ001 (NULL: none has failed)
    recorded_at = InstantField()
    kept_until = InstantField()

    class Meta:
        """The table is the same for every adapter."""

        app_label = LABEL
        db_table = DELIVERIES
        verbose_name_plural = "deliveries"
        indexes: Any = (
            models.Index(fields=["consumer", "next_at"], name=f"ix_{DELIVERIES}_next_at"),
            models.Index(fields=["kept_until"], name=f"ix_{DELIVERIES}_kept"),
        )

    def __str__(self) -> str:
        """Return the event and the consumer."""
        return f"{self.event}: {self.consumer}"
