"""`FollowsIndex`, by which sweeps find the followers of expired rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from ttl_odm.dialects.family import MAX_NAME, index_name
from ttl_odm.django.policy.indexes import begins_index, can_index, concurrently

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.backends.ddl_references import Statement

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.time.fields import AnyField


class FollowsIndex(models.Index):
    """An index on the fields by which rows follow others: a sweep finds the followers by it.

    In a migration with ``atomic = False`` PostgreSQL builds it CONCURRENTLY.
    """

    __module__ = "ttl_odm.django"  # what migrations name, and may rely on

    max_name_length = MAX_NAME

    def create_sql(
        self,
        model: Model,
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: Any,
    ) -> Statement:
        """The statement that creates it."""
        return super().create_sql(model, schema_editor, using, **_options(schema_editor, kwargs))

    def remove_sql(
        self, model: Model, schema_editor: BaseDatabaseSchemaEditor, **kwargs: Any
    ) -> Any:
        """The statement that drops it."""
        return super().remove_sql(model, schema_editor, **_options(schema_editor, kwargs))


def link_index(model: Model, fields: Sequence[AnyField]) -> FollowsIndex | None:
    """The index on the fields by which rows follow others; None where an index begins with them.

    None over a text of any length, too, which MariaDB and MySQL can't index.
    """
    if begins_index(model, fields) or not all(can_index(field) for field in fields):
        return None
    table = model._meta.db_table.replace('"', "")
    return FollowsIndex(
        fields=[field.name for field in fields], name=index_name(table, "ttl_follows")
    )


def _options(schema_editor: BaseDatabaseSchemaEditor, options: dict[str, Any]) -> dict[str, Any]:
    """Django's own options: only PostgreSQL's schema editor knows `concurrently`."""
    others = {name: value for name, value in options.items() if name != "concurrently"}
    return others | ({"concurrently": True} if concurrently(schema_editor, options) else {})
