"""Reading and changing stored defaults, and what became of them.

A change is one transaction: the row is locked, what it was is written down with who changed it and
why, and the new value takes its place. From its commit on each statement of each process follows.

This module must not know what a statement does with a default.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    OperationalError,
    connections,
    models,
    router,
    transaction,
)

from ttl_odm.core.policy import TTL
from ttl_odm.core.values import short_repr
from ttl_odm.dialects.errors import (
    NOT_AVAILABLE,
    TRIES,
    WAITED,
    code_of,
    is_away,
    is_passing,
    is_taken,
    races,
    waits,
)
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.django.time.fields import Stamp
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.stored.django import lookup
from ttl_odm.stored.django.models import Policy
from ttl_odm.stored.django.models import PolicyChange as Change
from ttl_odm.stored.django.source import stored_bindings
from ttl_odm.stored.rows import (
    INHERIT,
    POLICIES,
    WHOLE_TABLE,
    PolicyChange,
    StoredNow,
    StoredPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.stored import Stored, StoredTTL

    Model = type[models.Model]

T = TypeVar("T")
R = TypeVar("R")


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
                f"The default ttl of {target._meta.label} isn't stored in the database: to store "
                "it, declare __ttl__ = Stored(3600)."
            )
        lookup.check_app(binding)
        using = using or router.db_for_write(binding.model)
        label = binding.model._meta.label
        if scope is None:
            return cls(binding, declared, None, using)
        if binding.scope is None:
            raise TTLConfigurationError(
                f"{label}.__ttl__ = {declared!r} has one default for all rows, and none for "
                f"scope={short_repr(scope)}; declare Stored(..., by='field')."
            )
        text = lookup.canonical_scope(connections[using], binding, scope)
        return cls(binding, declared, text, using)

    @property
    def name(self) -> str:
        """The table's name in the table of the policies."""
        return lookup.name_of(self.binding)

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
        changes = Change.objects.using(self.using).filter(name=self.name, scope__in=self._scopes)
        last = changes.aggregate(last=models.Max("id"))["last"]
        return self._read()._replace(last=str(last))

    def read_locked(self) -> StoredNow:
        """The same but for the latest change, in a transaction that has locked the rows."""
        # There a SELECT would read what the transaction's snapshot has.
        return self._read(locking=connections[self.using].vendor == "mysql")

    @property
    def _scopes(self) -> list[str]:
        return [WHOLE_TABLE, *filter(None, [self.scope])]

    def _read(self, *, locking: bool = False) -> StoredNow:
        rows = Policy.objects.using(self.using).filter(name=self.name, scope__in=self._scopes)
        rows = rows.select_for_update() if locking else rows
        values = rows.values_list("scope", "ttl", "changed_at")
        return StoredNow.of(values, self._scopes, self.absent)


def stored_policies(*targets: Model, using: str | None = None) -> list[StoredPolicy]:
    """Read the stored defaults, ordered by name.

    Args:
        targets: Models; without any, all that the database has.
        using: The alias of the database; by default the one that the routers choose for writes.

    Raises:
        TTLConfigurationError: The default of a target isn't stored.
    """
    return [
        _as(StoredPolicy, row)
        for rows in _chosen(Policy, targets, using)
        for row in rows.order_by("name", "scope")
    ]


def policy_changes(*targets: Model, using: str | None = None) -> list[PolicyChange]:
    """Read the changes of stored defaults, newest first; arguments as for `stored_policies`."""
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
    """Change a stored default.

    It takes effect with the commit: on every row that inherits it, in the next statement of each
    process. Within ``atomic()`` it is part of that transaction; otherwise it is its own.

    Args:
        target: A model.
        ttl: The new default: None, -1, or seconds as an int, an integral float or a timedelta.
            "default" removes that of a scope, whose rows then have the table's.
        scope: A value of `Stored.by`, for the rows that have it; None for all that have no default
            of their own.
        by: Who changes it.
        reason: Why.
        using: The alias of the database; by default the one that the routers choose for writes.

    Returns:
        The previous default; 0 if the scope had none of its own.

    Raises:
        InvalidTTL: It is not a ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the target isn't stored, or not by scopes.
    """
    default = StoredDefault.of(target, scope, using)
    checked = default.checked(ttl)
    work = partial(change, default, checked, by=by, reason=reason)
    return in_transaction(default.using, work)


def change(
    default: StoredDefault,
    ttl: int | None,
    *,
    by: str,
    reason: str | None,
    check: Callable[[], None] = lambda: None,
) -> int | None:
    """Change a default that was found, to a value that was checked; see `set_policy`.

    It is called inside `in_transaction`. `check` is called while nobody else can change it, and may
    raise before anything is.
    """
    using, name, scope = default.using, default.name, default.scope or WHOLE_TABLE
    rows = Policy.objects.using(using).filter(name=name)
    whole, row = rows.filter(scope=WHOLE_TABLE), rows.filter(scope=scope)
    said: dict[str, Any] = {"changed_by": by, "reason": reason}
    with _in_short_tries(using) as run:
        # Whoever deletes by any default of the table holds this row: see `locks`. A
        # transaction with an older snapshot fails on it, as it is written. And SQLite, which has
        # no FOR UPDATE, locks the file by this.
        run(lambda: whole.update(ttl=models.F("ttl")))
        found = run(lambda: list(row.select_for_update().values_list("ttl", flat=True)))
        before: int | None = found[0] if found else default.absent
        check()
        if ttl == INHERIT and not found:
            return before
        if not found:
            new = Policy(name=name, scope=scope, ttl=ttl, changed_at=Stamp(), **said)
            run(lambda: new.save(using=using, force_insert=True))
        elif ttl == INHERIT:
            run(lambda: row.update(changed_at=Stamp()))
        else:
            run(lambda: row.update(ttl=ttl, changed_at=Stamp(), **said))
        at = row.values_list("changed_at", flat=True).get()
        written = {"changed_at": at, "ttl_before": before, "ttl_after": ttl, **said}
        Change.objects.using(using).create(name=name, scope=scope, **written)
        if ttl == INHERIT:
            run(row.delete)
    return before


def in_transaction(using: str, work: Callable[[], R]) -> R:
    """Run a change in the transaction at hand, or in one of its own.

    One of its own is begun anew where it has lost a race for a row against another change.
    """
    if connections[using].in_atomic_block:
        with transaction.atomic(using=using):
            return work()
    for is_last, pause in races():
        try:
            with transaction.atomic(using=using):
                return work()
        except DatabaseError as error:
            cause, operational = error.__cause__, isinstance(error, OperationalError)
            lost = is_passing(cause, operational=operational) or is_taken(cause)
            has_waited = code_of(cause) in (WAITED, NOT_AVAILABLE)  # for long: `_in_short_tries`
            if is_last or is_away(cause, operational=operational) or has_waited or not lost:
                raise
        sleep(pause)
    raise AssertionError  # the last one has returned or raised


def begin_policies(*, using: str = DEFAULT_DB_ALIAS) -> None:
    """Store the initial defaults that aren't stored yet, as ``migrate`` does.

    Args:
        using: The alias of the database.
    """
    rows = []
    for binding in stored_bindings():
        policy = binding.policy
        if isinstance(policy, TTL) and policy.stored is not None:
            if not router.allow_migrate_model(using, binding.model):
                continue
            whose = {"name": lookup.name_of(binding), "scope": WHOLE_TABLE}
            rows.append(Policy(**whose, ttl=policy.stored.start, changed_at=Stamp()))
    Policy.objects.using(using).bulk_create(rows, ignore_conflicts=True)


@contextmanager
def _in_short_tries(using: str) -> Iterator[Callable[[Callable[[], R]], R]]:
    """What runs statements that may have to wait for a lock, for about half a minute.

    Whoever deletes by a default has locked its row until that is committed; on MariaDB and MySQL
    whoever updates or deletes anything by it has. While a change waits for these, later ones wait
    behind the change; so that gives way now and then.
    """
    connection = connections[using]
    if connection.vendor == "postgresql":
        _lock_table(connection)
    if connection.vendor != "mysql":
        yield lambda work: work()
        return

    def run(work: Callable[[], R]) -> R:
        for _ in range(TRIES - 1):
            try:
                return work()
            except OperationalError as error:
                if code_of(error.__cause__) != WAITED:
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


def _lock_table(connection: BaseDatabaseWrapper) -> None:
    """Keep others from locking rows of the policies; see the same of SQLAlchemy's `changes`."""
    table = connection.ops.quote_name(POLICIES)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout')")
        (before,) = cursor.fetchone()
        for last, wait in waits():
            try:
                with transaction.atomic(using=connection.alias):
                    cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{wait}ms"])
                    cursor.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
                break
            except OperationalError as error:
                if last or code_of(error.__cause__) != NOT_AVAILABLE:
                    raise
                sleep(wait / 2_000)
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])


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
