"""`Subject`: what a case may do to a backend, so that each case is written once.

A subject is one adapter on one database through one driver. Its containers (tables, collections)
are the same everywhere, see `CONTAINERS`. What a case sets up and looks at goes past the gate:
`put`, `stored`, `move`, `now` and `stopped` speak to the database by other means than the code
under test, so that they can't be wrong in the same way. Everything else is what an application
does. All methods are plain functions; a subject over an asynchronous driver waits inside.

This module must not know any database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ttl_odm import TTL, ExpireAfter, ExpireAt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ttl_odm.core import Policy

HOUR = 3600
SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Container:
    """A table or a collection. All have `id` (the key), `name` (unique) and `views`.

    Attributes:
        policy: what it declares; a case may change the default.
        at: the field with the instant that counts.
        own: the field with a row's own ttl, if rows have one.
    """

    policy: Policy
    at: str
    own: str | None = None


CONTAINERS: dict[str, Container] = {
    # The Cosmos contract, over the columns that the mixin brings.
    "carts": Container(TTL(HOUR), "_ts", "ttl"),
    # The same where the values of own ttls are judged the other way than usual on the backend.
    "permits": Container(
        TTL(HOUR, last_modified="issued", override="lifetime"), "issued", "lifetime"
    ),
    "checked": Container(TTL(HOUR, values="strict"), "_ts", "ttl"),
    # With Beanie's cache, and where MongoDB deletes.
    "cached": Container(TTL(HOUR), "_ts", "ttl"),
    "natives": Container(TTL(HOUR), "_ts", "ttl"),
    # Columns that exist.
    "grants": Container(
        TTL(HOUR, last_modified="issued", override="lifetime", never=(0,)), "issued", "lifetime"
    ),
    "visits": Container(ExpireAfter("made", HOUR), "made"),
    "vouchers": Container(ExpireAt("ends"), "ends"),
    "coupons": Container(ExpireAt("ends", null="expired"), "ends"),
    "tickets": Container(ExpireAt("ends", unit="s"), "ends"),
    # With an archive and a hook.
    "seats": Container(TTL(HOUR), "_ts", "ttl"),
    # With unique values that are stored with two decimals (`amount`, but for MongoDB), or that are
    # unique only among rows that nobody has hidden (`code`, where `hidden` is NULL).
    "prices": Container(TTL(HOUR), "_ts", "ttl"),
    # With a table of a subclass, `gifts`, where there are tables.
    "orders": Container(TTL(HOUR), "_ts", "ttl"),
}


class Loaded(Protocol):
    """A row in memory, as an application holds it: an object, an instance, a document."""

    @property
    def expires_at(self) -> datetime | None:
        """When it expires."""

    def write(self, **values: Any) -> None:
        """Change it and store that."""

    def write_nothing(self) -> None:
        """Store it unchanged."""

    def delete(self) -> int:
        """Delete it; return how many rows that were."""

    def refresh(self) -> None:
        """Read it again."""

    def touch(self) -> None:
        """Start its lifetime again."""

    def help(self, name: str, *arguments: Any) -> None:
        """Call one of its helpers (`persist`, `expire_in`...) and store what that did."""

    def is_still_served(self) -> bool:
        """Whether getting it by its key, where it is in memory, still gives it."""


class Subject(ABC):
    """One adapter on one database through one driver.

    Attributes:
        adapter: SQLAlchemy, Beanie or Django.
        database: SQLite, PostgreSQL, MariaDB, MySQL or MongoDB.
        driver: what it goes through.
        tick: the finest step that instants are kept in.
        checked: the container whose own ttls are checked when they are written.
        unchecked: the one where any value is stored as given.
        remembering: the one whose rows are kept in memory or cached.
        gone: what a write of a row that has expired may raise.
        missing: what reading it again may raise.
        duplicate: what a write raises that would take a live row's key.
    """

    adapter: ClassVar[str]
    checked: ClassVar[str]
    unchecked: ClassVar[str]
    remembering: ClassVar[str]
    gone: ClassVar[tuple[type[Exception], ...]]
    missing: ClassVar[tuple[type[Exception], ...]]
    duplicate: ClassVar[tuple[type[Exception], ...]]
    database: str
    driver: str
    tick: timedelta

    @abstractmethod
    def server(self) -> str:
        """The database's own version."""

    # Past the gate

    @abstractmethod
    def clear(self) -> None:
        """Empty what the last case used, and let each container have its own policy."""

    @abstractmethod
    def now(self) -> datetime:
        """Ask the database for its present instant."""

    @abstractmethod
    def stopped(self, instant: datetime) -> AbstractContextManager[object]:
        """Let the database's clock stand at this instant for whatever is done inside.

        What is written inside may be undone at its end.
        """

    @abstractmethod
    def before_delete(self, action: Callable[[], object]) -> AbstractContextManager[object]:
        """Let something happen once inside, between the sweeper's look and its DELETE."""

    @abstractmethod
    def put_at(self, container: str, key: int, at: Any, **values: Any) -> None:
        """Store a row. `at` is the instant (None for NULL) in the field that counts."""

    @abstractmethod
    def move_to(self, container: str, key: int, at: datetime) -> None:
        """Set the instant of a row that is there."""

    @abstractmethod
    def stored(self, container: str, key: int) -> Mapping[str, Any] | None:
        """Return a row as it is stored, expired or not: `at`, `ttl`, `name`, `views`."""

    @abstractmethod
    def keys(self, container: str) -> set[int]:
        """Return the keys of all rows that are stored, expired or not."""

    def put(self, container: str, key: int, age: float = 0, **values: Any) -> None:
        """Store a row whose instant lies so many seconds before the database's now."""
        self.put_at(container, key, self.now() - timedelta(seconds=age), **values)

    def age(self, container: str, key: int, seconds: float) -> None:
        """Move the instant of a row to so many seconds before the database's now."""
        self.move_to(container, key, self.now() - timedelta(seconds=seconds))

    def age_of(self, container: str, key: int) -> timedelta:
        """How long ago the instant of a stored row is."""
        stored = self.stored(container, key)
        assert stored is not None
        at: datetime = stored["at"]
        return self.now() - at

    # What an application does

    @abstractmethod
    def set_policy(self, container: str, declared: Any) -> None:
        """Change what a container declares, with its rows there."""

    @abstractmethod
    def declare(self, declared: Any) -> None:
        """Declare a model with a date field `at` and this `__ttl__`, and let it go again."""

    @abstractmethod
    def readings(self, container: str) -> Mapping[str, set[int] | int]:
        """Read by every way that there is: keys, or how many there are."""

    @abstractmethod
    def keys_with_expired(self, container: str) -> set[int]:
        """Read with the option that shows expired rows too."""

    @abstractmethod
    def writes(self, container: str) -> Mapping[str, Callable[[int], object]]:
        """Every way to change `views` of one row that is named by its key."""

    @abstractmethod
    def keeping_writes(self, container: str) -> Mapping[str, Callable[[int], object]]:
        """The ways to change `views` with the wish to keep the last modification."""

    @abstractmethod
    def update_all(self, container: str, **values: Any) -> int:
        """Change all rows by one statement; return how many it says it has matched."""

    @abstractmethod
    def touch(self, container: str, *keys: int, **arguments: Any) -> int:
        """Renew rows (without keys, all) by one statement; return how many it says that were."""

    @abstractmethod
    def touched(self, container: str, key: int, **arguments: Any) -> int | None:
        """Renew a row and get its key, by one statement where there is one that does both."""

    @abstractmethod
    def delete_all(self, container: str) -> int:
        """Delete all rows by one statement; return how many it says it has deleted."""

    @abstractmethod
    def inserts(self, container: str) -> Mapping[str, Callable[..., object]]:
        """Every way to insert a row: called with the key, and fields by name."""

    def insert(self, container: str, key: int, **values: Any) -> None:
        """Insert a row by the most usual way."""
        next(iter(self.inserts(container).values()))(key, **values)

    @abstractmethod
    def upserts(self, container: str) -> Mapping[str, Callable[..., object]]:
        """Every way to update a row or insert it: called with the key, and fields by name."""

    @abstractmethod
    def ways_to_set_ttl(self, container: str) -> Mapping[str, Callable[[int, Any], object]]:
        """Every way to give a live row (it is there) an own ttl."""

    @abstractmethod
    def loaded(self, container: str, key: int) -> AbstractContextManager[Loaded]:
        """Load a row into memory."""

    @abstractmethod
    def sweep(self, container: str) -> int:
        """Run a sweeper; return how many rows it says it has deleted."""

    @abstractmethod
    def put_line(self, key: int, cart: int) -> None:
        """Store a row of `lines`, which has no policy and refers to a cart."""

    @abstractmethod
    def reached(self, line: int) -> Mapping[str, int | None]:
        """The key of the cart that each way of going from a line to its cart finds."""

    @abstractmethod
    def told(self) -> list[tuple[str, set[int]]]:
        """What the hook of `seats` was told: the reason, and the keys."""

    @abstractmethod
    def archived(self) -> set[int]:
        """The keys in the archive of `seats`."""

    @abstractmethod
    def archived_lives(self, key: int) -> int:
        """How many rows of a key are in the archive of `seats`."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing."""


class TableSubject(Subject):
    """One with tables: several of them may make up a row, and refer to each other."""

    restricted: ClassVar[tuple[type[Exception], ...]]
    """What a write raises that a live row with a foreign key doesn't let through."""
    refused: ClassVar[tuple[type[Exception], ...]]
    """What a statement of the database raises that a CHECK doesn't let through."""

    @abstractmethod
    def put_raw_ttl(self, container: str, key: int, value: Any) -> None:
        """Insert a row with an own ttl by raw SQL that names no other column of ours."""

    @abstractmethod
    def insert_gift(self, key: int) -> None:
        """Insert an order with its part in the table of the subclass."""

    @abstractmethod
    def gift_writes(self) -> Mapping[str, Callable[[int], object]]:
        """The ways to change only what is in the table of the subclass."""


class DocumentSubject(Subject):
    """One with documents: a field may hold anything."""

    @abstractmethod
    def put_document(self, container: str, document: dict[str, Any]) -> None:
        """Store a document as it is."""

    @abstractmethod
    def make_indexes(self) -> Mapping[str, Any]:
        """Let `ensure_indexes` see to `natives`; return each index's `expireAfterSeconds`."""

    @abstractmethod
    def declare_series(self, declared: Any) -> None:
        """Declare a class with this `__ttl__` over a time-series collection, and open it."""
