"""`TTLIndex`: what lets the sweeper find expired rows without walking the table.

One of them is over the rows that inherit the default, by the instant that they began; the other is
over those with a ttl of their own, by its end. Where the values of a field have defaults of their
own, that field leads the first one, and a sweep comes to the rows of each by its own default.

PostgreSQL and SQLite have partial indexes and indexes on expressions. MariaDB has neither, so there
each is on an invisible virtual column, which the same migration operation adds.

Django's own operations work with it: ``AddIndex`` (also what ``makemigrations`` writes),
``RemoveIndex``, ``AddIndexConcurrently``. In a migration with ``atomic = False`` PostgreSQL builds
it CONCURRENTLY without being asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import models
from django.db.backends.ddl_references import Statement, Table
from django.db.models.expressions import Combinable, Expression

from ttl_odm.dialects.family import MAX_NAME, index_name
from ttl_odm.dialects.indexes import IndexNeed, StoredIndex, stored_index
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, MySQL
from ttl_odm.django.policy.bindings import schema_and_name
from ttl_odm.django.time.clock import family_of
from ttl_odm.django.time.fields import InstantField, LastModifiedField, TTLField
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.dialects import Family
    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.django.time.fields import SQL, AnyField


class TTLIndex(models.Index):
    """An index for the sweeper.

    On one field, the last modification: over the rows that inherit the default. With a field
    before it: the same, if the values of that field have defaults of their own. On the last
    modification and the row's own ttl: over the rows that have one.
    """

    __module__ = "ttl_odm.django"  # what migrations name, and may rely on

    max_name_length = MAX_NAME

    def create_sql(
        self,
        model: Model,
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",  # noqa: ARG002 (Django's signature)
        **kwargs: Any,
    ) -> Statement:
        """The statement that creates it."""
        connection = schema_editor.connection
        quote, family = connection.ops.quote_name, family_of(connection)
        parts = self.parts_of(model)
        stamp, ttl = quote(str(parts.stamp.column)), quote(str(parts.own.column))
        if isinstance(family, MySQL):
            column = family.virtual_columns(stamp, ttl)[parts.virtual_column]
            parts_added = f"{column}, {self.addition(model, quote)}"
            return _statement(model, schema_editor, f"ALTER TABLE %(table)s {parts_added}")
        end = family.part_end(stamp, *([ttl] if parts.is_own else []))
        holds = f"{ttl} > 0" if parts.is_own else f"{ttl} IS NULL"
        if parts.scope is not None:
            end = f"{quote(str(parts.scope.column))}, {end}"
        create = f"CREATE INDEX {concurrently(schema_editor, kwargs)}{quote(self.name)}"
        return _statement(model, schema_editor, f"{create} ON %(table)s ({end}) WHERE {holds}")

    def remove_sql(
        self, model: Model, schema_editor: BaseDatabaseSchemaEditor, **kwargs: Any
    ) -> Any:
        """The statement that drops it."""
        name = schema_editor.connection.ops.quote_name(self.name)
        if isinstance(family_of(schema_editor.connection), MySQL):
            parts = f"DROP INDEX {name}, DROP COLUMN {self.parts_of(model).virtual_column}"
            return _statement(model, schema_editor, f"ALTER TABLE %(table)s {parts}")
        drop = f"DROP INDEX {concurrently(schema_editor, kwargs)}IF EXISTS {name}"
        return _statement(model, schema_editor, drop)

    def replacement(self, model: Model, connection: BaseDatabaseWrapper) -> str:
        """The statements that replace another index of its name, while others write.

        On MariaDB and MySQL its virtual column is that of the other one.
        """
        quote = connection.ops.quote_name
        if connection.vendor == "mysql":
            parts = f"DROP INDEX {quote(self.name)}, {self.addition(model, quote)}"
            return f"ALTER TABLE {quote(model._meta.db_table)} {parts}"
        is_concurrent = connection.vendor == "postgresql"
        with connection.schema_editor(collect_sql=True) as editor:
            drop = self.remove_sql(model, editor, concurrently=is_concurrent)
            return f"{drop}; {self.create_sql(model, editor, concurrently=is_concurrent)}"

    def addition(self, model: Model, quote: Callable[[str], str]) -> str:
        """The clause that adds it on MariaDB and MySQL, where its virtual column is there."""
        parts, scope = self.parts_of(model), ""
        if parts.scope is not None and can_lead(parts.scope, MySQL()):
            scope = f"{quote(str(parts.scope.column))}, "
        return f"ADD INDEX {quote(self.name)} ({scope}{parts.virtual_column})"

    def parts_of(self, model: Model) -> IndexParts:
        """What it is made of in a model, which may be a migration's."""
        fields = {field.name: field for field in model._meta.local_concrete_fields}
        named = [fields[name] for name in self.fields]
        own = next(field for field in fields.values() if isinstance(field, TTLField))
        if isinstance(named[-1], TTLField):
            return IndexParts(None, named[0], named[-1], is_own=True)
        return IndexParts(named[0] if len(named) > 1 else None, named[-1], own, is_own=False)


class IndexParts(NamedTuple):
    """The fields of a `TTLIndex`: `scope` where the values of one have defaults of their own."""

    scope: AnyField | None
    stamp: AnyField
    own: AnyField
    is_own: bool

    @property
    def virtual_column(self) -> str:
        """MariaDB's and MySQL's column that it is on."""
        return OWN_END if self.is_own else INHERITED_END


def sweeper_indexes(
    table: str, stamp: str = "last_modified", own: str = "ttl", scope: str | None = None
) -> list[TTLIndex]:
    """The two indexes of a table.

    These are its fields: that of the last modification, that of the ttl, and, if there is one, that
    whose values have defaults of their own.
    """
    inheriting = [stamp] if scope is None else [scope, stamp]
    return [
        TTLIndex(fields=inheriting, name=index_name(table, "ttl_inherited")),
        TTLIndex(fields=[stamp, own], name=index_name(table, "ttl_own")),
    ]


def begins_index(model: Model, fields: Sequence[AnyField]) -> bool:
    """Whether an index, a unique constraint or the primary key begins with fields, in any order."""
    meta, count = model._meta, len(fields)
    lists = [
        [name for name, _ in index.fields_orders] for index in meta.indexes if _is_whole(index)
    ]
    lists += [
        list(constraint.fields)
        for constraint in meta.constraints
        if isinstance(constraint, models.UniqueConstraint) and constraint.condition is None
    ]
    lists += [list(names) for names in meta.unique_together]
    lists.append([field.name for field in meta.pk_fields])
    lists += [
        [field.name]
        for field in meta.local_concrete_fields
        if field.unique or getattr(field, "db_index", False)
    ]
    names = {field.name for field in fields}
    return any(set(indexed[:count]) == names for indexed in lists)


def _is_whole(index: models.Index) -> bool:
    return index.condition is None and not isinstance(index, TTLIndex)


def target_of(field: AnyField) -> AnyField:
    """The field itself, or what it refers to in the end."""
    target: Any = field
    while target.is_relation:
        target = target.target_field
    found: AnyField = target
    return found


def can_index(field: AnyField) -> bool:
    """Whether every database can index a field: MariaDB and MySQL no text of any length."""
    return not isinstance(target_of(field), (models.TextField, models.BinaryField))


def is_led_by_scope(binding: Binding) -> bool:
    """Whether a model's index over the rows that inherit is as its scopes want it; if it has any.

    A class Meta may list an index of the same name.
    """
    scope, stamp = binding.scope, binding.stamp.name
    ours = [index.fields for index in binding.model._meta.indexes if isinstance(index, TTLIndex)]
    return scope is None or [stamp] not in ours or [scope.name, stamp] in ours


def can_lead(field: AnyField, family: Family) -> bool:
    """Whether an index may begin with a field: MariaDB and MySQL index no long text."""
    target = target_of(field)
    if not isinstance(target, (models.CharField, models.TextField)):
        return True
    return family.can_lead(target.max_length if isinstance(target, models.CharField) else None)


def _statement(model: Model, schema_editor: BaseDatabaseSchemaEditor, template: str) -> Statement:
    quote = schema_editor.connection.ops.quote_name
    return Statement(template, table=Table(model._meta.db_table, quote))


def creation(model: Model, index: models.Index, connection: BaseDatabaseWrapper) -> str:
    """The statement that makes an index, while others write."""
    with connection.schema_editor(collect_sql=True) as editor:
        is_concurrent = connection.vendor == "postgresql"
        return str(index.create_sql(model, editor, concurrently=is_concurrent))


def concurrently(schema_editor: BaseDatabaseSchemaEditor, options: dict[str, Any]) -> str:
    """What an index statement says, so that others may write meanwhile: on PostgreSQL."""
    connection = schema_editor.connection
    outside = connection.vendor == "postgresql" and not (
        connection.in_atomic_block or schema_editor.collect_sql
    )
    return "CONCURRENTLY " if options.get("concurrently") or outside else ""


class PartEnd(Expression):
    """What one of the indexes orders by, in a query."""

    def __init__(self, stamp: Combinable, own: Combinable | None = None) -> None:
        """Name what it is made of: the column of the last modification, and that of the ttl."""
        super().__init__(output_field=InstantField())
        self.sources: list[Any] = [stamp] if own is None else [stamp, own]

    def get_source_expressions(self) -> list[Any]:
        """The columns."""
        return self.sources

    def set_source_expressions(self, exprs: Sequence[Any]) -> None:
        """Set them, once they are resolved."""
        self.sources = list(exprs)

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:
        """Render it, word for word as the index has it."""
        stamp, *own = (compiler.compile(source)[0] for source in self.sources)
        return family_of(connection).part_end(stamp, *own), ()


def has_contract_fields(binding: Binding) -> bool:
    """Whether a model has the fields that our indexes are made for."""
    return isinstance(binding.stamp, LastModifiedField) and isinstance(binding.own, TTLField)


def scope_need(binding: Binding, connection: BaseDatabaseWrapper) -> IndexNeed | None:
    """Return the index that leads a sweep from scope to scope; None where sweeps don't go by scope.

    A model says which index it wants, and not whether its table has it: compare `stored_indexes`.
    """
    scope, own, family = binding.scope, binding.own, family_of(connection)
    if scope is None or own is None or binding.sweep == "scan" or not has_contract_fields(binding):
        return None
    if not can_lead(scope, family):
        return None
    if isinstance(family, MySQL):
        return IndexNeed(Part.INHERITING, INHERITED_END, scope=str(scope.column))
    names = (str(binding.stamp.column), str(own.column), str(scope.column))
    return IndexNeed(Part.INHERITING, *names)


def stored_indexes(connection: BaseDatabaseWrapper, model: Model) -> list[StoredIndex]:
    """Return the indexes of a model's table as the database's catalogue has them."""
    query: Any = family_of(connection).indexes_query(*schema_and_name(model._meta.db_table))
    with connection.cursor() as cursor:
        cursor.execute(query)
        names = [str(column[0]).lower() for column in cursor.description]
        return [stored_index(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]
