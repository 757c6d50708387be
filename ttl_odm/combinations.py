"""What goes together: the capabilities of a policy, in pairs, for each adapter.

Rejections take their reasons from here, `docs/combinations.md` is made of it, and the tests try
every pair on the databases that have both. A capability that is added gets a line for each other
one; without it the tests fail.

This is data. It must not know how a capability is implemented, nor import one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Adapter: TypeAlias = Literal["sqlalchemy", "django", "beanie"]
Database: TypeAlias = Literal["sqlite", "postgres", "mariadb", "mysql", "mongodb"]
Outcome: TypeAlias = Literal["works", "conditional", "rejected"]

DATABASES: Final[Mapping[Adapter, tuple[Database, ...]]] = {
    "sqlalchemy": ("sqlite", "postgres", "mariadb", "mysql"),
    "django": ("sqlite", "postgres", "mariadb", "mysql"),
    "beanie": ("mongodb",),
}
"""The adapters, and the databases of each."""

_SERVERS: Final[tuple[Database, ...]] = ("postgres", "mariadb", "mysql")
_INNODB: Final[tuple[Database, ...]] = ("mariadb", "mysql")
_POSTGRES: Final[tuple[Database, ...]] = ("postgres",)


@dataclass(frozen=True, slots=True)
class Capability:
    """What a table or collection may have beside a lifetime.

    Attributes:
        name: What the documentation calls it.
        page: The page about it, without its suffix, for each adapter or for all.
        declared: How each adapter that has it declares it, as Markdown.
        databases: Where an adapter has it on a part of its databases only.
        attribute: The class attribute that declares it, if there is one.
        absent: Why an adapter rejects that attribute if it doesn't have the capability.
    """

    name: str
    page: str | Mapping[Adapter, str]
    declared: Mapping[Adapter, str]
    databases: Mapping[Adapter, tuple[Database, ...]] = field(default_factory=dict)
    attribute: str = ""
    absent: str = ""

    def page_on(self, adapter: Adapter) -> str:
        """Return the page about it on an adapter."""
        return self.page if isinstance(self.page, str) else self.page[adapter]

    def databases_on(self, adapter: Adapter) -> tuple[Database, ...]:
        """Return the databases on which an adapter has it; none if the adapter doesn't."""
        if adapter not in self.declared:
            return ()
        return self.databases.get(adapter, DATABASES[adapter])


_FAMILIES: Final[Mapping[Adapter, str]] = {
    "sqlalchemy": "families",
    "django": "django",
    "beanie": "mongodb-families",
}
_PURGING: Final[Mapping[Adapter, str]] = {
    "sqlalchemy": "sweeping-sql",
    "django": "django-operating",
    "beanie": "mongodb-sweeping",
}
_FOLLOWED: Final = "`Follows(...)` on another class, which leads to this one"
_FOLLOWS: Final = "`__ttl__ = Follows(...)`"
_STORED: Final = "`__ttl__ = Stored(...)`"

CAPABILITIES: Final[Mapping[str, Capability]] = {
    "followed": Capability(
        "followers",
        _FAMILIES,
        {"sqlalchemy": _FOLLOWED, "django": _FOLLOWED, "beanie": _FOLLOWED},
    ),
    "follows": Capability(
        "following a parent",
        _FAMILIES,
        {"sqlalchemy": _FOLLOWS, "django": _FOLLOWS, "beanie": _FOLLOWS},
    ),
    "stored": Capability(
        "stored default",
        {"sqlalchemy": "policies", "django": "django-operating", "beanie": "mongodb-policies"},
        {"sqlalchemy": _STORED, "django": _STORED, "beanie": _STORED},
    ),
    "partitions": Capability(
        "partitions",
        "partitions",
        {"sqlalchemy": "`__ttl_partition__`, `op.add_ttl(..., partition=)`"},
        {"sqlalchemy": _SERVERS},
        "__ttl_partition__",
        "only SQLAlchemy's adapter partitions tables",
    ),
    "database_sweep": Capability(
        "deletion by the database",
        {"sqlalchemy": "database-side", "beanie": "mongodb-deletion"},
        {
            "sqlalchemy": '`op.add_ttl(..., sweep="database")`, `ttl-odm install-sweep`',
            "beanie": '`__ttl_purge__ = "native"`, the default',
        },
        {"sqlalchemy": _SERVERS},
    ),
    "view": Capability(
        "view of live rows",
        {"sqlalchemy": "migrating", "beanie": "mongodb-deletion"},
        {
            "sqlalchemy": '`op.add_ttl(..., enforce="view")`',
            "beanie": "`ensure_indexes(view=True)`",
        },
    ),
    "rls": Capability(
        "row-level security",
        "migrating",
        {"sqlalchemy": '`op.add_ttl(..., enforce="rls")`'},
        {"sqlalchemy": _POSTGRES},
    ),
    "archive": Capability(
        "archive",
        _PURGING,
        dict.fromkeys(DATABASES, "`__ttl_archive__`"),
        attribute="__ttl_archive__",
    ),
    "hooks": Capability(
        "hooks",
        _PURGING,
        dict.fromkeys(DATABASES, "`__ttl_on_purged__`"),
        attribute="__ttl_on_purged__",
    ),
    "orm": Capability(
        "deletion by the ORM",
        "sweeping-sql",
        {"sqlalchemy": '`__ttl_purge__ = "orm"`'},
        attribute="__ttl_purge__",
    ),
}
"""All capabilities, by the names that `Combination` uses."""


@dataclass(frozen=True, slots=True)
class Combination:
    """Whether two capabilities of one table go together.

    Attributes:
        adapter: Where.
        first: A name in `CAPABILITIES`.
        second: Another one.
        outcome: What happens.
        condition: Under which condition they do, or with which effect, as Markdown.
        reason: Why they are rejected, or why the condition is not met, as the message has it. Names
            in braces are for those who raise it.
        instead: What to declare instead, as the message has it.
        advice: More about that for the documentation, as Markdown.
        databases: Where this is so; empty for all databases that have both.
    """

    adapter: Adapter
    first: str
    second: str
    outcome: Outcome
    condition: str = ""
    reason: str = ""
    instead: str = ""
    advice: str = ""
    databases: tuple[Database, ...] = ()

    def reason_for(self, **names: object) -> str:
        """Return the reason with these names in it."""
        return self.reason.format(**names)

    def instead_for(self, **names: object) -> str:
        """Return what to declare instead with these names in it."""
        return self.instead.format(**names)

    def is_on(self, database: Database) -> bool:
        """Whether it holds on a database that has both."""
        both = (CAPABILITIES[name].databases_on(self.adapter) for name in (self.first, self.second))
        return all(database in each for each in both) and (
            not self.databases or database in self.databases
        )


def _works(adapter: Adapter, first: str, *others: str) -> Iterator[Combination]:
    for second in others:
        yield Combination(adapter, first, second, "works")


def _rejected(adapter: Adapter, first: str, second: str, *why: str) -> Combination:
    reason, instead, *advice = why
    return Combination(
        adapter, first, second, "rejected", "", reason, instead, advice="".join(advice)
    )


_NOT_STORED: Final = (
    "The default ttl of {model} isn't stored in the database",
    "to store it, declare __ttl__ = Stored(3600)",
    "A class has one `__ttl__`: it follows a parent, or has a default.",
)
_GO_ALONG: Final = (
    "rows that follow their parent are deleted with it, by a DELETE",
    "Leave {name} out",
)
_DOCUMENTS_GO_ALONG: Final = (
    "documents that follow their parent are deleted with it, by a plain delete",
    "leave {name} out, or give {model} a lifetime of its own",
)
_NOT_HERE: Final = (
    (
        "Follows is only for a mapped SQLAlchemy class, a Django model or a Beanie document that "
        "declares __ttl__ in its own body"
    ),
    "Give a lifetime instead, such as 3600",
    "A view of your own may join the parent's view of live rows.",
)
_BY_MONGODB: Final = (
    "MongoDB deletes these documents itself, without calling hooks",
    "also declare __ttl_purge__ = 'sweeper'",
)
_TO_A_SWEEPER: Final = "write sweep='index', and run a Sweeper"

_SQLALCHEMY: Final = (
    *_works(
        "sqlalchemy", "followed", "follows", "stored", "view", "rls", "archive", "hooks", "orm"
    ),
    Combination(
        "sqlalchemy",
        "followed",
        "partitions",
        "conditional",
        "A partition is emptied in batches, followers first, before it is dropped.",
        "rows of other tables follow these",
        databases=_POSTGRES,
    ),
    Combination(
        "sqlalchemy",
        "followed",
        "partitions",
        "conditional",
        "Without a foreign key, which InnoDB doesn't support on partitioned tables: "
        "`Follows(Parent, on={...})`. A partition is emptied in batches, followers first, before "
        "it is dropped.",
        "rows of other tables follow these",
        databases=_INNODB,
    ),
    Combination(
        "sqlalchemy",
        "followed",
        "database_sweep",
        "conditional",
        "Each follower has a foreign key with `ON DELETE CASCADE`.",
        "would leave behind rows of {tables}, which follow these: the database removes them only "
        "by a foreign key with ON DELETE CASCADE",
        _TO_A_SWEEPER,
    ),
    _rejected("sqlalchemy", "follows", "stored", *_NOT_STORED),
    _rejected("sqlalchemy", "follows", "partitions", *_GO_ALONG),
    _rejected(
        "sqlalchemy",
        "follows",
        "database_sweep",
        "can't be swept alone: its rows follow those of {parent} and are deleted with them",
        "Sweep {root} instead, or give both",
        "The database may sweep the parent if the follower has a foreign key with "
        "`ON DELETE CASCADE`.",
    ),
    _rejected("sqlalchemy", "follows", "view", *_NOT_HERE),
    _rejected("sqlalchemy", "follows", "rls", *_NOT_HERE),
    _rejected("sqlalchemy", "follows", "archive", *_GO_ALONG),
    _rejected("sqlalchemy", "follows", "hooks", *_GO_ALONG),
    _rejected("sqlalchemy", "follows", "orm", *_GO_ALONG),
    *_works("sqlalchemy", "stored", "database_sweep", "archive", "hooks", "orm"),
    Combination(
        "sqlalchemy",
        "stored",
        "partitions",
        "conditional",
        "The policy is `TTL(Stored(...), max_lifetime=..., created=...)`: without a limit no range "
        "of rows is ever complete.",
    ),
    Combination(
        "sqlalchemy",
        "stored",
        "view",
        "conditional",
        "On MariaDB and MySQL, readers of the view need SELECT on `ttl_odm_policies`.",
    ),
    Combination(
        "sqlalchemy",
        "stored",
        "rls",
        "conditional",
        "Readers need SELECT on `ttl_odm_policies`.",
    ),
    _rejected(
        "sqlalchemy",
        "partitions",
        "database_sweep",
        "is not for partitioned tables, whose partitions are dropped as a whole",
        _TO_A_SWEEPER,
    ),
    Combination(
        "sqlalchemy",
        "partitions",
        "view",
        "conditional",
        "Partition an existing table first: a view would keep the old table.",
        databases=_POSTGRES,
    ),
    Combination("sqlalchemy", "partitions", "view", "works", databases=_INNODB),
    Combination(
        "sqlalchemy",
        "partitions",
        "rls",
        "conditional",
        "Expired rows are deleted in batches, and empty partitions stay. Partition an existing "
        "table first.",
        "row-level security may hide some of its rows",
    ),
    Combination(
        "sqlalchemy",
        "partitions",
        "archive",
        "conditional",
        "An `Archive` that is partitioned by the same column, has the same columns, and no "
        "`archived_at`, receives whole partitions. Others receive the rows, in batches.",
        "an archive outside the database receives each row",
        databases=_POSTGRES,
    ),
    Combination(
        "sqlalchemy",
        "partitions",
        "archive",
        "conditional",
        "Archives receive the rows, in batches.",
        "an archive outside the database receives each row",
        databases=_INNODB,
    ),
    Combination(
        "sqlalchemy",
        "partitions",
        "hooks",
        "conditional",
        "A partition is emptied in batches before it is dropped.",
        "a hook receives each row",
    ),
    Combination(
        "sqlalchemy",
        "partitions",
        "orm",
        "conditional",
        "A partition is emptied in batches before it is dropped.",
        "rows are deleted through the ORM",
    ),
    *_works("sqlalchemy", "database_sweep", "view", "rls"),
    Combination(
        "sqlalchemy",
        "database_sweep",
        "archive",
        "conditional",
        "The archive is an `Archive`, whose table exists when the migration runs.",
        "can't call {model}.__ttl_archive__, which is implemented in Python",
        _TO_A_SWEEPER,
    ),
    _rejected(
        "sqlalchemy",
        "database_sweep",
        "hooks",
        "can't call {model}.__ttl_on_purged__, which is implemented in Python",
        _TO_A_SWEEPER,
    ),
    _rejected(
        "sqlalchemy",
        "database_sweep",
        "orm",
        "can't delete through the ORM, which {model}.__ttl_purge__ requires",
        _TO_A_SWEEPER,
    ),
    *_works("sqlalchemy", "view", "rls", "archive", "hooks", "orm"),
    *_works("sqlalchemy", "rls", "archive", "hooks", "orm"),
    *_works("sqlalchemy", "archive", "hooks"),
    _rejected(
        "sqlalchemy",
        "archive",
        "orm",
        "rows that are deleted through the ORM aren't archived",
        "write __ttl_purge__ = 'delete', or archive in an ORM event",
    ),
    *_works("sqlalchemy", "hooks", "orm"),
)

_DJANGO: Final = (
    *_works("django", "followed", "follows", "stored", "archive", "hooks"),
    _rejected("django", "follows", "stored", *_NOT_STORED),
    _rejected("django", "follows", "archive", *_GO_ALONG),
    _rejected("django", "follows", "hooks", *_GO_ALONG),
    *_works("django", "stored", "archive", "hooks"),
    *_works("django", "archive", "hooks"),
)

_BEANIE: Final = (
    *_works("beanie", "followed", "follows", "view", "archive", "hooks"),
    _rejected(
        "beanie",
        "followed",
        "stored",
        "the default of {model} is stored in the database ({declared}), which followers can't use",
        "declare seconds on it",
    ),
    _rejected(
        "beanie",
        "followed",
        "database_sweep",
        "MongoDB would delete {model} documents before those that follow them",
        "declare __ttl_purge__ = 'sweeper' on {model}, and run a sweeper",
    ),
    _rejected("beanie", "follows", "stored", *_NOT_STORED),
    _rejected("beanie", "follows", "database_sweep", *_DOCUMENTS_GO_ALONG),
    _rejected(
        "beanie",
        "follows",
        "view",
        "can't hold documents that follow others, since their lifetime is in another collection",
        "leave view out, and look up the parent's view in one of your own",
    ),
    _rejected("beanie", "follows", "archive", *_DOCUMENTS_GO_ALONG),
    _rejected("beanie", "follows", "hooks", *_DOCUMENTS_GO_ALONG),
    *_works("beanie", "stored", "database_sweep", "view", "archive", "hooks"),
    *_works("beanie", "database_sweep", "view"),
    _rejected("beanie", "database_sweep", "archive", *_BY_MONGODB),
    _rejected("beanie", "database_sweep", "hooks", *_BY_MONGODB),
    *_works("beanie", "view", "archive", "hooks"),
    *_works("beanie", "archive", "hooks"),
)

COMBINATIONS: Final[tuple[Combination, ...]] = (*_SQLALCHEMY, *_DJANGO, *_BEANIE)
"""A line for each adapter and each pair of capabilities that it has."""


def combinations_of(adapter: Adapter, one: str, other: str) -> tuple[Combination, ...]:
    """Return the lines of a pair, several if databases differ; in either order."""
    pair = {one, other}
    return tuple(
        line
        for line in COMBINATIONS
        if line.adapter == adapter and {line.first, line.second} == pair
    )


def combination(adapter: Adapter, one: str, other: str) -> Combination:
    """Return the line of a pair, the first if databases differ; in either order."""
    return combinations_of(adapter, one, other)[0]
