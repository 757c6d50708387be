"""The tables of stored defaults.

If a program that uses SQLAlchemy has created them: ``migrate --fake-initial``.
"""

from __future__ import annotations

from django.db import migrations, models

import ttl_odm.django
from ttl_odm.django.policies.fields import ExactField


class Migration(migrations.Migration):
    """Create the tables."""

    initial = True
    operations = [  # noqa: RUF012 (as Django writes it)
        migrations.CreateModel(
            name="Policy",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "name",
                        "scope",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", ExactField(max_length=255)),
                ("scope", ExactField(max_length=255)),
                ("ttl", ttl_odm.django.TTLField(checks_type=True, null=True)),
                ("changed_at", ttl_odm.django.InstantField()),
                ("changed_by", models.CharField(max_length=255, null=True)),
                ("reason", models.TextField(null=True)),
            ],
            options={
                "db_table": "ttl_odm_policies",
                "verbose_name": "stored default",
                "constraints": [
                    models.UniqueConstraint(
                        fields=["name", "ttl", "scope"], name="uq_ttl_odm_policies_name_ttl"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PolicyChange",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", ExactField(max_length=255)),
                ("scope", ExactField(max_length=255)),
                ("changed_at", ttl_odm.django.InstantField()),
                ("changed_by", models.CharField(max_length=255, null=True)),
                ("ttl_before", models.IntegerField(null=True)),
                ("ttl_after", models.IntegerField(null=True)),
                ("reason", models.TextField(null=True)),
            ],
            options={
                "db_table": "ttl_odm_policy_changes",
                "default_permissions": ("view",),
                "verbose_name": "change of a stored default",
                "verbose_name_plural": "stored defaults and their changes",
            },
        ),
    ]
