"""`FollowsIndex`, by which sweeps find the followers of expired rows, and checks of followers.

The checks are those of ``manage.py check`` (`check_model`) and of ``ttl_check`` (`check_indexes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core import checks
from django.db import models

from ttl_odm.dialects.family import MAX_NAME, index_name
from ttl_odm.django.policy.indexes import begins_index, can_index, concurrently, creation
from ttl_odm.follows.django.follower import all_followers
from ttl_odm.sweeper.findings import Finding, Severity
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.backends.ddl_references import Statement

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.follows.django.follower import Following


class FollowsIndex(models.Index):
    """An index on the fields by which rows follow others: a sweep finds the followers by it.

    In a migration with ``atomic = False`` PostgreSQL builds it CONCURRENTLY.
    """

    __module__ = "ttl_odm.django"  # the public path, which migrations import

    max_name_length = MAX_NAME

    def create_sql(
        self,
        model: Model,
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: object,
    ) -> Statement:
        """Return the statement that creates it."""
        return super().create_sql(model, schema_editor, using, **_options(schema_editor, kwargs))

    def remove_sql(
        self, model: Model, schema_editor: BaseDatabaseSchemaEditor, **kwargs: object
    ) -> Any:
        """Return the statement that drops it."""
        return super().remove_sql(model, schema_editor, **_options(schema_editor, kwargs))


def _options(
    schema_editor: BaseDatabaseSchemaEditor, options: Mapping[str, object]
) -> dict[str, Any]:
    """Return Django's own options, with `concurrently` on PostgreSQL only."""
    others = {name: value for name, value in options.items() if name != "concurrently"}
    return others | ({"concurrently": True} if concurrently(schema_editor, options) else {})


def link_index(model: Model, fields: Sequence[AnyField]) -> FollowsIndex | None:
    """Return the index on the fields of a link; None if another index begins with them.

    None, too, for texts of any length, which MariaDB and MySQL can't index.
    """
    if begins_index(model, fields) or not all(can_index(field) for field in fields):
        return None
    table = model._meta.db_table.replace('"', "")
    return FollowsIndex(
        fields=[field.name for field in fields], name=index_name(table, "ttl_follows")
    )


def check_model(following: Following) -> Iterator[checks.CheckMessage]:
    """Check that the rows of a follower are found by an index, and can be deleted."""
    model, own = following.model, following.links.own
    needs_index = sweep_of(model) == "index" and not any(field.is_relation for field in own)
    if needs_index and not begins_index(model, own):
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


def check_indexes(model: Model, connection: BaseDatabaseWrapper) -> Iterator[Finding]:
    """Check that a database has the indexes by which sweeps find the followers of a model."""
    for following in all_followers(model):
        follower = following.model
        table = follower._meta.db_table
        with connection.cursor() as cursor:
            if table not in connection.introspection.table_names(cursor):
                continue
            existing = connection.introspection.get_constraints(cursor, table)
        for index in follower._meta.indexes:
            if isinstance(index, FollowsIndex) and index.name not in existing:
                names = ", ".join(index.fields)
                message = (
                    f"{table}({names}) follows {model._meta.db_table} and has no index, so a sweep "
                    "reads all of that table for each batch of expired rows"
                )
                fix = creation(follower, index, connection)
                yield Finding(Severity.WARNING, "missing-follows-index", table, message, fix)
