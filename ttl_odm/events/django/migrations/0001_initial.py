"""The tables of events.

If a program that uses SQLAlchemy has created them, run ``migrate --fake-initial``.
"""

from __future__ import annotations

from django.db import migrations, models

from ttl_odm.django.extensions import ExactField
from ttl_odm.django.time.fields import InstantField


class Migration(migrations.Migration):
    """Creates them."""

    initial = True
    operations = [  # noqa: RUF012 (as Django writes it)
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", ExactField(max_length=32, primary_key=True, serialize=False)),
                ("table_name", ExactField(max_length=255)),
                ("kind", ExactField(max_length=16)),
                ("before_seconds", models.IntegerField(null=True)),
                ("row_key", models.TextField()),
                ("row_values", models.TextField()),
                ("last_modified", InstantField(null=True)),
                ("expires_at", InstantField()),
                ("recorded_at", InstantField()),
                ("kept_until", InstantField()),
            ],
            options={
                "db_table": "ttl_odm_events",
                "indexes": [
                    models.Index(fields=["recorded_at"], name="ix_ttl_odm_events_recorded"),
                    models.Index(fields=["kept_until"], name="ix_ttl_odm_events_kept"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Consumer",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "consumer",
                        "table_name",
                        "kind",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("consumer", ExactField(max_length=200)),
                ("table_name", ExactField(max_length=255)),
                ("kind", ExactField(max_length=16)),
                ("before_seconds", models.IntegerField(null=True)),
            ],
            options={"db_table": "ttl_odm_consumers"},
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "event",
                        "consumer",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("event", ExactField(max_length=32)),
                ("consumer", ExactField(max_length=200)),
                ("deliveries", models.IntegerField()),
                ("next_at", InstantField(null=True)),
                ("error", models.TextField(null=True)),
                ("recorded_at", InstantField()),
                ("kept_until", InstantField()),
            ],
            options={
                "db_table": "ttl_odm_deliveries",
                "verbose_name_plural": "deliveries",
                "indexes": [
                    models.Index(
                        fields=["consumer", "next_at"], name="ix_ttl_odm_deliveries_next_at"
                    ),
                    models.Index(fields=["kept_until"], name="ix_ttl_odm_deliveries_kept"),
                ],
            },
        ),
    ]
