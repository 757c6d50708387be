"""Mutants that no test can notice, each with the reason: what they change has no effect."""

from __future__ import annotations

from typing import Final

EQUIVALENT: Final[dict[tuple[str, str, str], str]] = {
    (
        "ttl_odm/sqlalchemy/sweep/foreign_keys.py",
        "dialect = connection.dialect.name",
        "dialect = None",
    ): "InnoDB has an index for every foreign key, which the look at the indexes then finds",
    (
        "ttl_odm/follows/django/renewals.py",
        "cutoff = Cutoff(seconds, binding.form, binding.stamp)",
        "cutoff = Cutoff(seconds, binding.form, None)",
    ): "Django asks for the field of an expression only where it is selected, not to compare it",
    (
        "ttl_odm/follows/django/declaration.py",
        "named = _relation(following.model, named, following.model._meta.label).related_model",
        "named = _relation(following.model, named, None).related_model",
    ): "the argument is for an error, which was raised when the rule was declared",
    (
        "ttl_odm/sqlalchemy/purge/statements.py",
        "and_(*(column == value for column, value in zip(columns, key, strict=True)))",
        "and_(*(column == value for column, value in zip(columns, key, )))",
    ): "a key always has as many values as there are columns",
    (
        "ttl_odm/sqlalchemy/policy/second_tables.py",
        'modules = [getattr(base.default.owner, "__module__", "") for base in bases]',
        'modules = [getattr(base.default.owner, "__module__", ) for base in bases]',
    ): "every object has a __module__, by its class",
    (
        "ttl_odm/follows/sqlalchemy/removal.py",
        "predicate = Predicate(clock_of(connection.dialect), writing=True)",
        "predicate = Predicate(clock_of(connection.dialect), writing=False)",
    ): "only inherits() is asked, which compares no instants",
    (
        "ttl_odm/follows/sweep.py",
        "before = request.resume if isinstance(request.resume, int) else 0",
        "before = request.resume if isinstance(request.resume, int) else 1",
    ): "the numbers only have to differ from batch to batch",
    (
        "ttl_odm/follows/django/conditions.py",
        'same_key = " AND ".join(',
        'same_key = " and ".join(',
    ): "SQL's words may be in small letters",
    (
        "ttl_odm/sqlalchemy/compat/core.py",
        'return bool(in_2_0 or getattr(statement, "_maintain_values_ordering", False))',
        'return bool(in_2_0 or getattr(statement, "_maintain_values_ordering", None))',
    ): "bool() is the same of both",
    (
        "ttl_odm/stored/scope_walk.py",
        "ends[scope.cutoff] = None",
        'ends[scope.cutoff] = ""',
    ): "only the keys are counted",
    (
        "ttl_odm/sweeper/text.py",
        "if code > 0xFFFF: # noqa: PLR2004 (with four digits)",
        "if code > 65536: # noqa: PLR2004 (with four digits)",
    ): "U+10000 is a letter, so it is shown as it is",
    (
        "ttl_odm/sqlalchemy/sweep/rings.py",
        "pairs = zip(consequence.columns, consequence.referred, strict=True)",
        "pairs = zip(consequence.columns, consequence.referred, strict=False)",
    ): "a foreign key has as many columns as it refers to",
    (
        "ttl_odm/beanie/gate/motor.py",
        "arguments = {**dict(zip(parameters, args, strict=False)), **kwargs}",
        "arguments = {**dict(zip(parameters, args, strict=None)), **kwargs}",
    ): "zip() asks only whether strict is true",
    (
        "ttl_odm/sqlalchemy/sweep/transactions.py",
        'name, off = unlogged_setting(is_mariadb=bool(getattr(dialect, "is_mariadb", False)))',
        'name, off = unlogged_setting(is_mariadb=bool(getattr(dialect, "is_mariadb", None)))',
    ): "bool() is the same of both",
    (
        "ttl_odm/sqlalchemy/policy/bindings.py",
        'refuse_in_revision(getattr(currentframe(), "f_back", None))',
        'refuse_in_revision(getattr(currentframe(), "f_back", ))',
    ): "CPython has a frame for each call, and every frame has f_back",
    (
        "ttl_odm/sqlalchemy/objects/ends.py",
        "or monotonic() >= far.until",
        "or monotonic() > far.until",
    ): "at that very instant a `_Far` is exact: it was computed for it",
    (
        "ttl_odm/dialects/postgresql.py",
        'parts = "SELECT c.oid UNION SELECT p.relid FROM pg_catalog.pg_partition_tree(c.oid) p"',
        'parts = "SELECT C.OID UNION SELECT P.RELID FROM PG_CATALOG.PG_PARTITION_TREE(C.OID) P"',
    ): "PostgreSQL folds unquoted names, and its words may be in any letters",
    (
        "ttl_odm/sqlalchemy/policy/bindings.py",
        "self._asked[table] = None # first: a policy may be declared at the same time",
        'self._asked[table] = "" # first: a policy may be declared at the same time',
    ): "only the keys of the dictionary are read",
    (
        "ttl_odm/alembic/aspects.py",
        "kinds[aspect_of(binding.layout.declared)] = None",
        'kinds[aspect_of(binding.layout.declared)] = ""',
    ): "only the keys are read",
    (
        "ttl_odm/partitions/alembic/postgresql_swap.py",
        'unique, name = "UNIQUE " * index.is_unique, relation(None, index.name)',
        'unique, name = "unique " * index.is_unique, relation(None, index.name)',
    ): "SQL's words may be in small letters",
    (
        "ttl_odm/beanie/indexes/changes.py",
        "return before is not None and index.seconds is not None and index.seconds > before",
        "return before is not None and index.seconds is not None and index.seconds >= before",
    ): "it is asked only where the two numbers differ",
    (
        "ttl_odm/beanie/objects/copies.py",
        "row = {**dict(zip(getattr(model, _ALIASES), values[1:], strict=True)), **known}",
        "row = {**dict(zip(getattr(model, _ALIASES), values[1:], )), **known}",
    ): "the reader of a model returns a value for each alias",
    (
        "ttl_odm/beanie/policy/ttl_indexes.py",
        "return [{**low, **high} for low, high in zip(starts, ends, strict=True)]",
        "return [{**low, **high} for low, high in zip(starts, ends, strict=None)]",
    ): "both lists have one element more than there are points",
    (
        "ttl_odm/database_sweep/alembic/job.py",
        'self.archive = ""',
        "self.archive = None",
    ): "it is written into a procedure only if there is an archive",
    (
        "ttl_odm/beanie/policy/sources.py",
        "return False",
        "return True",
    ): "it is asked only of sources with scopes, which have an answer of their own",
}
"""By module, the lines that change, and what they become (`Mutant.texts`)."""
