"""What docs/leaks.md says before its tables; `leak_matrix.Half` fills in what was measured."""

# ruff: noqa: E501 - a row of a table is one line

SQL_TITLE = """\
# Where expired rows leak

<!-- Written by: python3 tools/leaks.py --write docs/leaks.md. Don't edit: change the tool. -->

A *path* is one way in which a program can meet a row through SQLAlchemy. This page shows what each path sees of expired rows with
`ttl_odm`, and with the two usual alternatives. The second half is about [MongoDB](#where-expired-documents-leak).

"""

SQL = """\
`ttl_odm` leaks in these. Nothing tells SQLAlchemy's compiler which table they read, so nothing can be
filtered there; see [limits](limits.md).

{leaks}
## How it is measured

Paths are kinds of selects, joins, eager loads, lazy loads, subqueries, bulk statements, flushes, and `session.get()`. Each is a
short function in `tests/leaks/paths_*.py`. All run on the same rows, some of which have expired.

| column | what hides the expired rows |
| --- | --- |
| ours | ttl_odm |
| the usual recipe | a column `expires_at`, and a listener to `do_orm_execute` that adds `with_loader_criteria(Mixin, lambda cls: cls.expires_at > now, include_aliases=True)`, as SQLAlchemy's example `extending_query` does: to SELECT, INSERT, UPDATE and DELETE |
| sqlalchemy-easy-softdelete | EASY, its newest release, which supports SQLAlchemy SUPPORTED; rows that have expired are marked in its column `deleted_at` |

| mark | what it says |
| --- | --- |
| ✓ | the answer is the right one: what plain SQLAlchemy gives where the expired rows are not in the tables at all; for objects that expire in memory before a write, what the contract says |
| ✗ | the answer is another, or a path about what a write changes has changed a row that had expired |
| raises | an exception comes out that the path doesn't expect |

Every mark is measured, on SQLite, by asking twice: the second time the statements come out of
SQLAlchemy's cache. Ours and the recipe run with SQLAlchemy {newest} and {lowest}; where the two
lines differ, the mark for {lowest} stands in brackets. Each run of the tests measures all three
columns again (`tests/leaks/test_leaks_document.py`), ours and the recipe on the SQLAlchemy of the
run; `python3 tools/leaks.py --check docs/leaks.md` measures everything at once.

Left out are paths that SQLite can't do and paths about ttl_odm's own options; the tests run ours on
PostgreSQL, MariaDB and MySQL too. The other two were made to filter queries. Some paths, such as an insert
with the key of an expired row, ask for what neither promises. Where a path is about what a session
has of a key that expired and was taken anew, a job deletes the expired row first for these two.

"""

MONGODB_TITLE = """\
# Where expired documents leak

The same on MongoDB. A path is one way in which a program can meet a document through Beanie, or through the driver's collections
that Beanie hands out.

"""

MONGODB = """\
`ttl_odm` leaks in these, which don't go through a collection that the gate has handed out, or ask for what
is stored:

{leaks}
## How it is measured on MongoDB

Paths are finders, counts, pipelines with `$lookup`, links, updates, bulk writers, and inserts with a key that is taken. Each is
a short function in `tests/leaks_mongo/paths_*.py`, and runs on the same documents of a real mongod.

| column | what hides the expired documents |
| --- | --- |
| ours | ttl_odm |
| soft delete | Beanie's own `DocumentWithSoftDelete`; documents that have expired are marked in its field `deleted_at` |
| query classes | a field `expires_at`, and classes for `_find_many_query_class` and `_find_one_query_class` whose `get_filter_query()` adds `{{"expires_at": {{"$gt": now}}}}` to every filter, in unions of classes too |

| mark | what it says |
| --- | --- |
| ✓ | the answer, and what is stored afterwards, are the right ones: what plain Beanie gives where the expired documents are not in the collections at all; for answers that expire while a program keeps them, what the contract says |
| ✗ | the answer is another, or an expired document was written to |
| raises | an exception comes out that the path doesn't expect |
| n/a | this Beanie can't do it |

All run with Beanie {newest} (on PyMongo's asynchronous driver) and {lowest} (on Motor); where the
two differ, the mark for {lowest} stands in brackets. Each run of the tests measures the three
columns again with the Beanie of its environment.

Left out are paths about ttl_odm's own options, and writes to live documents. The other two were
made to filter queries. Many paths, such as an insert with the key of an expired document or a
`$lookup` from another class, ask for what neither promises.

What one of the two versions of Beanie can't do:

{impossible}
"""

SQL_KINDS: dict[str, tuple[str, ...]] = {
    "Reading: selects, joins, subqueries, Core": (
        "selects",
        "joins",
        "full_joins",
        "subqueries",
        "core",
        "legacy",
        "dialects",
        "async",
    ),
    "Reading through unusual models: inheritance, odd mappings, second tables": (
        "inheritance",
        "mappings",
        "attributes",
        "second_tables",
    ),
    "Loading objects: loaders, the identity map": ("loaders", "session", "identities"),
    "Writing: UPDATE, DELETE, RETURNING": ("writes", "base_writes", "aliased_writes", "unusual"),
    "Keys of expired rows: INSERT, upsert, UPDATE of a key": (
        "insert_forms",
        "upserts",
        "computed_keys",
        "generated_keys",
        "references",
    ),
}
"""Which themes are of one kind."""

MONGODB_KINDS: dict[str, tuple[str, ...]] = {
    "Reading: finders, counts, distinct values, conditions": (
        "finders",
        "conditions",
        "distinct",
        "numbers",
        "fields",
        "extras",
    ),
    "Pipelines, links, unions": ("pipelines", "links", "unions"),
    "Models, time series, soft deletes, migrations": (
        "models",
        "time_series",
        "soft_deletes",
        "migrations",
    ),
    "The driver's own collections": ("handles",),
    "Caches, and documents that expire in memory": ("caches", "gone", "passing"),
    "Writing, and transactions": ("writes", "transactions"),
    "Keys of expired documents": ("keys", "indexes"),
}
