"""Reading and changing stored defaults, and what became of them.

A change is one transaction: the row is locked, what it was is written down with who changed it and
why, and the new value takes its place. From its commit on each statement of each process follows.

This module must not know what a statement does with a default.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from time import sleep
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.db import DEFAULT_DB_ALIAS, OperationalError, connections, models, router, transaction

from ttl_odm.core.policy import TTL
from ttl_odm.core.stored_rows import (
    INHERIT,
    LONGEST_SCOPE,
    WHOLE_TABLE,
    PolicyChange,
    StoredNow,
    StoredPolicy,
)
from ttl_odm.core.values import short_repr
from ttl_odm.django.policies.models import Policy
from ttl_odm.django.policies.models import PolicyChange as Change
from ttl_odm.django.policy import stored
from ttl_odm.django.policy.binding import binding_of, bindings
from ttl_odm.django.time.fields import Stamp
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ttl_odm.core.stored import Stored, StoredTTL
    from ttl_odm.django.policy.binding import Binding

    Model = type[models.Model]

T = TypeVar("T")
R = TypeVar("R")

_TRIES: Final = 20
"""Of a change on MariaDB and MySQL, each of a second at most."""

_WAITED: Final = 1205
"""What they say of a statement that has waited for a lock long enough, and is undone by itself."""


@dataclass(frozen=True, slots=True)
class StoredDefault:
    """A default that is stored, or may be, in a database.

    Attributes:
        binding: The table's.
        stored: What is declared of it.
        scope: Whose it is, as it is stored; None for the default of all rows.
        using: The alias of the database.
    """

    binding: Binding
    stored: Stored
    scope: str | None
    using: str

    @classmethod
    def of(cls, target: Model, scope: object, using: str | None) -> StoredDefault:
        """That of a model, for a value of `Stored.by` (None: the default of all).

        Raises:
            TTLConfigurationError: It isn't stored, or not by scopes.
        """
        binding = binding_of(target)
        policy = None if binding is None else binding.policy
        declared = policy.stored if isinstance(policy, TTL) else None
        if binding is None or declared is None:
            raise TTLConfigurationError(
                f"The default ttl of {target._meta.label} isn't stored in the database: declare it "
                "as in __ttl__ = Stored(3600)."
            )
        stored.check_app(binding)
        using = using or router.db_for_write(binding.model)
        label = binding.model._meta.label
        if scope is None:
            return cls(binding, declared, None, using)
        if binding.scope is None:
            raise TTLConfigurationError(
                f"{label}.__ttl__ = {declared!r}: no rows have a default of their own, so there is "
                f"none for scope={scope!r}; declare Stored(..., by='field')."
            )
        text = stored.scope_text(connections[using], binding, scope)
        if not 1 <= len(text) <= LONGEST_SCOPE:
            raise TTLConfigurationError(
                f"{label}.{declared.by} = {short_repr(scope)}: a stored default of its own is for "
                f"values of 1 to {LONGEST_SCOPE} characters."
            )
        return cls(binding, declared, text, using)

    @property
    def name(self) -> str:
        """The table's name in the table of the policies."""
        return stored.name_of(self.binding)

    def checked(self, ttl: StoredTTL) -> int | None:
        """A default that it is to be; raises InvalidTTL where it can't."""
        where, is_of_scope = f"{self.binding.model._meta.label}.__ttl__", self.scope is not None
        return self.stored.checked(ttl, where=where, is_of_scope=is_of_scope)

    @property
    def absent(self) -> int | None:
        """What it is where nothing is stored for it."""
        return None if self.scope is None else INHERIT

    def read(self) -> StoredNow:
        """What is stored now; None also where nothing is stored for the table."""
        found = stored.read(connections[self.using], self.binding, self.scope)
        return StoredNow(found.get(self.scope, self.absent), found.get(None))


def stored_policies(*targets: Model, using: str | None = None) -> list[StoredPolicy]:
    """Read the defaults that are stored, ordered by their names.

    Args:
        targets: Models; without any, all that the database has.
        using: The alias of the database; by default that which the routers name for writes.

    Raises:
        TTLConfigurationError: The default of a target isn't stored.
    """
    return [
        _as(StoredPolicy, row)
        for rows in _chosen(Policy, targets, using)
        for row in rows.order_by("name", "scope")
    ]


def policy_changes(*targets: Model, using: str | None = None) -> list[PolicyChange]:
    """Read how stored defaults were changed, the last change first; arguments as before."""
    return [
        _as(PolicyChange, row)
        for rows in _chosen(Change, targets, using)
        for row in rows.order_by("-id")
    ]


def set_policy(  # noqa: PLR0913 (all but the first two by keyword)
    target: Model,
    ttl: StoredTTL,
    *,
    scope: object = None,
    by: str,
    reason: str | None = None,
    using: str | None = None,
) -> int | None:
    """Change a default that is stored.

    It acts with the commit: on every row that inherits it, in the next statement of each process.
    Within ``atomic()`` it is a part of that; otherwise it is a transaction by itself.

    Args:
        target: A model.
        ttl: The new default: None, -1, or seconds as an int, an integral float or a timedelta.
            "default" removes that of a scope, whose rows then have the table's.
        scope: A value of `Stored.by`, for the rows that have it; None for all that have no default
            of their own.
        by: Who changes it.
        reason: Why.
        using: The alias of the database; by default that which the routers name for writes.

    Returns:
        What the default was; 0 where the scope had none of its own.

    Raises:
        InvalidTTL: It is not a ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the target isn't stored, or not by scopes.
    """
    default = StoredDefault.of(target, scope, using)
    return change(default, default.checked(ttl), by=by, reason=reason)


def change(
    default: StoredDefault,
    ttl: int | None,
    *,
    by: str,
    reason: str | None,
    check: Callable[[int | None], None] = lambda _: None,
) -> int | None:
    """Change a default that was found, to a value that was checked; see `set_policy`.

    `check` gets what it was while nobody else can change it, and may raise before anything is.
    """
    using, whose = default.using, {"name": default.name, "scope": default.scope or WHOLE_TABLE}
    row = Policy.objects.using(using).filter(**whose)
    said: dict[str, Any] = {"changed_by": by, "reason": reason}
    with transaction.atomic(using=using), _in_short_tries(using) as run:
        # SQLite, which has no FOR UPDATE, locks the file by this.
        found = run(lambda: row.update(ttl=models.F("ttl")))
        locked = row.select_for_update().values_list("ttl", flat=True)
        before: int | None = run(lambda: next(iter(locked), default.absent))
        check(before)
        if ttl == INHERIT:
            if not found:
                return before
            run(lambda: row.update(changed_at=Stamp()))
        elif found:
            run(lambda: row.update(ttl=ttl, changed_at=Stamp(), **said))
        else:
            new = Policy(**whose, ttl=ttl, changed_at=Stamp(), **said)
            run(lambda: new.save(using=using, force_insert=True))
        at = row.values_list("changed_at", flat=True).get()
        Change.objects.using(using).create(
            **whose, changed_at=at, ttl_before=before, ttl_after=ttl, **said
        )
        if ttl == INHERIT:
            run(row.delete)
    return before


def begin_policies(*, using: str = DEFAULT_DB_ALIAS) -> None:
    """Store the defaults to begin with that aren't there yet, as ``migrate`` does.

    Args:
        using: The alias of the database.
    """
    rows = []
    for binding in bindings():
        policy = binding.policy
        if binding.is_stored and isinstance(policy, TTL) and policy.stored is not None:
            if not router.allow_migrate_model(using, binding.model):
                continue
            whose = {"name": stored.name_of(binding), "scope": WHOLE_TABLE}
            rows.append(Policy(**whose, ttl=policy.stored.start, changed_at=Stamp()))
    Policy.objects.using(using).bulk_create(rows, ignore_conflicts=True)


@contextmanager
def _in_short_tries(using: str) -> Iterator[Callable[[Callable[[], R]], R]]:
    """What runs statements that may have to wait for a lock.

    MariaDB and MySQL lock the row for an UPDATE or DELETE that reads it, until that is committed.
    While a change waits for it, all later ones wait behind the change; so that gives way now and
    then.
    """
    connection = connections[using]
    if connection.vendor != "mysql":
        yield lambda work: work()
        return

    def run(work: Callable[[], R]) -> R:
        for _ in range(_TRIES - 1):
            try:
                return work()
            except OperationalError as error:
                if not error.args or error.args[0] != _WAITED:
                    raise  # a deadlock has ended the transaction
                connection.needs_rollback = False  # only the statement was undone
                sleep(0.5)
        return work()

    setting = "innodb_lock_wait_timeout"
    connection.ensure_connection()
    # Not Django's own cursor, which does nothing more once a statement of a transaction failed.
    with closing(connection.create_cursor()) as cursor:
        cursor.execute(f"SELECT @@{setting}")
        (before,) = cursor.fetchone()
        cursor.execute(f"SET {setting} = 1")
        try:
            yield run
        except BaseException:
            with suppress(Exception):  # it would hide what has gone wrong
                cursor.execute(f"SET {setting} = {before}")
            raise
        cursor.execute(f"SET {setting} = {before}")


def _chosen(
    model: Any, targets: tuple[Model, ...], using: str | None
) -> Iterator[models.QuerySet[Any]]:
    """The rows of some models, or all rows, in each of their databases."""
    if not targets:
        yield model.objects.using(using or router.db_for_write(model))
        return
    names: dict[str, list[str]] = {}
    for target in targets:
        default = StoredDefault.of(target, None, using)
        names.setdefault(default.using, []).append(default.name)
    for alias, chosen in names.items():
        yield model.objects.using(alias).filter(name__in=chosen)


def _as(kind: type[T], row: Any) -> T:
    read_as: Any = kind
    values = {field.name: getattr(row, field.name) for field in fields(read_as)}
    return kind(**{**values, "scope": values["scope"] or None})
