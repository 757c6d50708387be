"""What ``manage.py check`` and ``ttl_check`` find on models whose rows follow others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core import checks

from ttl_odm.django.policy.indexes import begins_index, creation
from ttl_odm.follows.django.following import all_followings
from ttl_odm.follows.django.index import FollowsIndex
from ttl_odm.sweeper.findings import Finding, Severity
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.follows.django.following import Following


def of_family(following: Following) -> Iterator[checks.CheckMessage]:
    """Look at the links of a model whose rows follow others."""
    model, own = following.model, following.links.own
    is_wanted = sweep_of(model) == "index" and not any(field.is_relation for field in own)
    if is_wanted and not begins_index(model, own):
        names = ", ".join(repr(field.name) for field in own)
        yield checks.Warning(
            f"No index begins with {names}, by which rows of {model._meta.label} follow their "
            "parent: each purged row costs a scan of that table.",
            hint=f"Add models.Index(fields=[{names}]), or db_index=True.",
            obj=model,
            id="ttl_odm.W005",
        )
    for field in model._meta.local_fields:
        if field.is_relation and field.related_model is model and not field.null:
            yield checks.Warning(
                f"{model._meta.label}.{field.name} refers to rows of its own table and can't be "
                "NULL: if rows refer to each other in a cycle, MariaDB and MySQL keep them and "
                "their parents.",
                hint="Give it null=True.",
                obj=field,
                id="ttl_odm.W006",
            )


def of_links(model: Model, connection: BaseDatabaseWrapper) -> Iterator[Finding]:
    """Whether the database has the indexes by which a sweep finds what follows a model's rows."""
    for following in all_followings(model):
        follower = following.model
        table = follower._meta.db_table
        with connection.cursor() as cursor:
            if table not in connection.introspection.table_names(cursor):
                continue
            there = connection.introspection.get_constraints(cursor, table)
        for index in follower._meta.indexes:
            if isinstance(index, FollowsIndex) and index.name not in there:
                names = ", ".join(index.fields)
                message = (
                    f"{table}({names}) follows {model._meta.db_table} and has no index, so a sweep "
                    "reads all of that table for each batch of expired rows"
                )
                fix = creation(follower, index, connection)
                yield Finding(Severity.WARNING, "missing-follows-index", table, message, fix)
