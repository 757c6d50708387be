"""The table of the sweepers' lease."""

from __future__ import annotations

from django.db import migrations, models

import ttl_odm.django


class Migration(migrations.Migration):
    """Create the table."""

    initial = True
    operations = [  # noqa: RUF012 (as Django writes it)
        migrations.CreateModel(
            name="Lease",
            fields=[
                ("name", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("holder", models.CharField(max_length=255, null=True)),
                ("acquired_until", ttl_odm.django.InstantField(null=True)),
                ("token", models.BigIntegerField()),
                ("paused", models.BooleanField()),
                ("history", models.TextField()),
                ("recorded_at", ttl_odm.django.InstantField(null=True)),
            ],
            options={"db_table": "ttl_odm_lease"},
        ),
    ]
