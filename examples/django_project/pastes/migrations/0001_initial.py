"""The tables of the example, as ``makemigrations`` writes them."""

# ruff: noqa: D101, RUF012
import django.db.models.deletion
from django.db import migrations, models

import ttl_odm.django


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Paste",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("last_modified", ttl_odm.django.LastModifiedField(db_column="_ts")),
                ("ttl", ttl_odm.django.TTLField(blank=True, checks_type=True, null=True)),
                ("slug", models.SlugField(max_length=40, unique=True)),
                ("text", models.TextField()),
                ("views", models.IntegerField(default=0, editable=False)),
            ],
            options={
                "ordering": ("-last_modified",),
                "indexes": [
                    ttl_odm.django.TTLIndex(
                        fields=["last_modified"], name="ix_pastes_paste_ttl_inherited"
                    ),
                    ttl_odm.django.TTLIndex(
                        fields=["last_modified", "ttl"], name="ix_pastes_paste_ttl_own"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Comment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("text", models.CharField(max_length=200)),
                (
                    "paste",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="pastes.paste"
                    ),
                ),
            ],
        ),
    ]
