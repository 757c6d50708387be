"""The column for the instant from which events may come late for a new consumer.

``migrate --fake-initial`` skips this one too if the table has the column.
"""

from __future__ import annotations

from django.db import migrations

from ttl_odm.django.time.fields import InstantField
from ttl_odm.events.django import LABEL


class Migration(migrations.Migration):
    """Adds the column."""

    initial = True
    dependencies = [(LABEL, "0001_initial")]  # noqa: RUF012 (as Django writes it)
    operations = [  # noqa: RUF012 (as Django writes it)
        migrations.AddField("Consumer", "unsettled_from", InstantField(null=True)),
    ]
