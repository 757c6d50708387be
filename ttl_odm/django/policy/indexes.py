"""`TTLIndex`: the indexes by which the sweeper finds expired rows without scanning the table.

A table has two of them. One covers the rows that inherit the default, ordered by the instant at
which their life began; the other covers the rows with a ttl of their own, ordered by its end. If
the values of a field have defaults of their own, the first one begins with that field, and a sweep
finds the rows of each value by its default.

PostgreSQL and SQLite have partial indexes and indexes on expressions. MariaDB has neither, so there
each index is on an invisible virtual column, which the same migration operation adds.

Django's own operations work with these indexes: ``AddIndex`` (which ``makemigrations`` writes),
``RemoveIndex``, ``AddIndexConcurrently``. In a migration with ``atomic = False``, PostgreSQL always
builds them CONCURRENTLY.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import models
from django.db.backends.ddl_references import Statement, Table
from django.db.models.expressions import Combinable, Expression
from django.db.models.fields.related import RelatedField

from ttl_odm.dialects.family import MAX_NAME, index_name
from ttl_odm.dialects.indexes import IndexNeed, StoredIndex, stored_index
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, MySQL
from ttl_odm.django.policy.bindings import columns_by_name, schema_and_name
from ttl_odm.django.time.clock import family_of
from ttl_odm.django.time.fields import InstantField, LastModifiedField, TTLField
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.dialects import Family
    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.django.time.fields import SQL, AnyField


class TTLIndex(models.Index):
    """An index for the sweeper.

    Its fields decide which rows it covers. The last modification alone: rows that inherit the
    default. Another field before it: the same rows, if the values of that field have defaults of
    their own. The last modification and the row's own ttl: rows that have their own ttl.
    """

    __module__ = "ttl_odm.django"  # the path in migrations, which must stay valid

    max_name_length = MAX_NAME

    def create_sql(
        self,
        model: Model,
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",  # noqa: ARG002 (Django's signature)
        **kwargs: object,
    ) -> Statement:
        """Return the statement that creates the index."""
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
        self, model: Model, schema_editor: BaseDatabaseSchemaEditor, **kwargs: object
    ) -> Any:
        """Return the statement that drops the index."""
        name = schema_editor.connection.ops.quote_name(self.name)
        if isinstance(family_of(schema_editor.connection), MySQL):
            parts = f"DROP INDEX {name}, DROP COLUMN {self.parts_of(model).virtual_column}"
            return _statement(model, schema_editor, f"ALTER TABLE %(table)s {parts}")
        drop = f"DROP INDEX {concurrently(schema_editor, kwargs)}IF EXISTS {name}"
        return _statement(model, schema_editor, drop)

    def replacement(self, model: Model, connection: BaseDatabaseWrapper) -> str:
        """Return the statements that replace another index of this name without blocking writers.

        On MariaDB and MySQL the new index uses the virtual column of the old one.
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
        """Return the clause that adds the index on MariaDB and MySQL, behind its virtual column."""
        parts, scope = self.parts_of(model), ""
        if parts.scope is not None and can_lead(parts.scope, MySQL()):
            scope = f"{quote(str(parts.scope.column))}, "
        return f"ADD INDEX {quote(self.name)} ({scope}{parts.virtual_column})"

    def parts_of(self, model: Model) -> IndexParts:
        """Return the fields of a model, also of a migration's, that the index is made of."""
        fields = {field.name: field for field in model._meta.local_concrete_fields}
        named = [fields[name] for name in self.fields]
        own = next(field for field in fields.values() if isinstance(field, TTLField))
        if isinstance(named[-1], TTLField):
            return IndexParts(None, named[0], named[-1], is_own=True)
        return IndexParts(named[0] if len(named) > 1 else None, named[-1], own, is_own=False)


class IndexParts(NamedTuple):
    """The fields of a `TTLIndex`; `scope` is the one whose values have defaults of their own."""

    scope: AnyField | None
    stamp: AnyField
    own: AnyField
    is_own: bool

    @property
    def virtual_column(self) -> str:
        """The virtual column of the index on MariaDB and MySQL."""
        return OWN_END if self.is_own else INHERITED_END


def sweeper_indexes(
    table: str, stamp: str = "last_modified", own: str = "ttl", scope: str | None = None
) -> list[TTLIndex]:
    """Return the two indexes of a table.

    Args:
        table: The table's name.
        stamp: The field of the last modification.
        own: The field of the row's own ttl.
        scope: The field whose values have defaults of their own, if there is one.
    """
    inheriting = [stamp] if scope is None else [scope, stamp]
    return [
        TTLIndex(fields=inheriting, name=index_name(table, "ttl_inherited")),
        TTLIndex(fields=[stamp, own], name=index_name(table, "ttl_own")),
    ]


def begins_index(model: Model, fields: Sequence[AnyField]) -> bool:
    """Whether an index, unique constraint or primary key begins with the fields, in any order."""
    meta, count = model._meta, len(fields)
    lists = [
        [name for name, _ in index.fields_orders]
        for index in meta.indexes
        if index.condition is None and not isinstance(index, TTLIndex)
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
    columns = columns_by_name(model)
    names = {field.name for field in fields}
    return any(
        {columns[name].name if name in columns else name for name in indexed[:count]} == names
        for indexed in lists
    )


def target_of(field: AnyField) -> AnyField:
    """Return the field itself; for a foreign key, the field at the end of the references."""
    while isinstance(field, RelatedField):
        field = field.target_field
    return field


def can_index(field: AnyField) -> bool:
    """Whether every database can index a field: MariaDB and MySQL can't index unlimited text."""
    return not isinstance(target_of(field), (models.TextField, models.BinaryField))


def is_led_by_scope(binding: Binding) -> bool:
    """Whether a model's index over inheriting rows begins with the scope, if it has both.

    It may not: a class Meta can list an index of the same name.
    """
    scope, stamp = binding.scope, binding.stamp.name
    ours = [index.fields for index in binding.model._meta.indexes if isinstance(index, TTLIndex)]
    return scope is None or [stamp] not in ours or [scope.name, stamp] in ours


def can_lead(field: AnyField, family: Family) -> bool:
    """Whether an index may begin with a field: MariaDB and MySQL can't index long text."""
    target = target_of(field)
    if not isinstance(target, (models.CharField, models.TextField)):
        return True
    return family.can_lead(target.max_length if isinstance(target, models.CharField) else None)


def _statement(model: Model, schema_editor: BaseDatabaseSchemaEditor, template: str) -> Statement:
    quote = schema_editor.connection.ops.quote_name
    return Statement(template, table=Table(model._meta.db_table, quote))


def creation(model: Model, index: models.Index, connection: BaseDatabaseWrapper) -> str:
    """Return the statement that creates an index without blocking writers."""
    with connection.schema_editor(collect_sql=True) as editor:
        is_concurrent = connection.vendor == "postgresql"
        return str(index.create_sql(model, editor, concurrently=is_concurrent))


def concurrently(schema_editor: BaseDatabaseSchemaEditor, options: Mapping[str, object]) -> str:
    """Return the keyword by which PostgreSQL doesn't block writers, or nothing."""
    connection = schema_editor.connection
    is_allowed = connection.vendor == "postgresql" and not (
        connection.in_atomic_block or schema_editor.collect_sql
    )
    return "CONCURRENTLY " if options.get("concurrently") or is_allowed else ""


class PartEnd(Expression):
    """The expression that orders one of the indexes, for queries."""

    def __init__(self, stamp: Combinable, own: Combinable | None = None) -> None:
        """Take the columns: the last modification, and the row's own ttl for the index over it."""
        super().__init__(output_field=InstantField())
        self.sources: list[Any] = [stamp] if own is None else [stamp, own]

    def get_source_expressions(self) -> list[object]:
        """Return the columns."""
        return self.sources

    def set_source_expressions(self, exprs: Sequence[object]) -> None:
        """Set the columns, once resolved."""
        self.sources = list(exprs)

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:
        """Return the SQL, word for word as in the index."""
        stamp, *own = (compiler.compile(source)[0] for source in self.sources)
        return family_of(connection).part_end(stamp, *own), ()


def has_contract_fields(binding: Binding) -> bool:
    """Whether a model has the contract's two fields, which `TTLIndex` requires."""
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
