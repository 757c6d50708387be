"""Reading stored defaults and their history, and changing them.

A change is one transaction: it locks the row, writes the old value into the history with who
changed it and why, and stores the new value. From the commit on, every statement of every process
uses that.

This module must not know what a statement does with a default.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, TypeVar

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
from ttl_odm.stored.django import lookup
from ttl_odm.stored.django.models import Policy
from ttl_odm.stored.django.models import PolicyChange as Change
from ttl_odm.stored.django.source import stored_bindings
from ttl_odm.stored.rows import (
    INHERIT,
    POLICIES,
    WHOLE_TABLE,
    NamedDefault,
    PolicyChange,
    StoredNow,
    StoredPolicy,
    from_row,
    not_stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.stored import StoredTTL

    Model = type[models.Model]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class StoredDefault(NamedDefault):
    """A default that is stored, or may be, in a database.

    Attributes:
        binding: The policy of the table.
        using: The alias of the database.
    """

    binding: Binding
    using: str

    @classmethod
    def of(cls, target: Model, scope: object, using: str | None) -> StoredDefault:
        """Return the default of a model, for a value of `Stored.by`.

        A scope of None is that of all rows without a default of their own.

        Raises:
            TTLConfigurationError: The default isn't stored, or not by scopes.
        """
        binding = binding_of(target)
        policy = None if binding is None else binding.policy
        stored = policy.stored if isinstance(policy, TTL) else None
        if binding is None or stored is None:
            raise not_stored(target._meta.label)
        lookup.check_app(binding)
        using = using or router.db_for_write(binding.model)
        name, label, text = lookup.name_of(binding), binding.model._meta.label, None
        if scope is not None:
            if binding.scope is None:
                raise stored.without_scopes(label, scope)
            text = lookup.canonical_scope(connections[using], binding, scope)
        return cls(name, label, stored, text, binding, using)

    def read(self) -> StoredNow:
        """Read what is stored now."""
        changes = Change.objects.using(self.using).filter(name=self.name, scope__in=self.scopes)
        last = changes.aggregate(last=models.Max("id"))["last"]
        return self._read()._replace(last=str(last))

    def read_locked(self) -> StoredNow:
        """Read what is stored, except for the latest change, once the rows are locked."""
        # On MariaDB and MySQL a SELECT would read the transaction's snapshot.
        return self._read(locking=connections[self.using].vendor == "mysql")

    def _read(self, *, locking: bool = False) -> StoredNow:
        rows = Policy.objects.using(self.using).filter(name=self.name, scope__in=self.scopes)
        rows = rows.select_for_update() if locking else rows
        values = rows.values_list("scope", "ttl", "changed_at")
        return StoredNow.of(values, self.scopes, self.absent)


def stored_policies(*targets: Model, using: str | None = None) -> list[StoredPolicy]:
    """Read the stored defaults, ordered by name.

    Args:
        targets: Models; if none is given, all that the database has.
        using: The alias of the database; by default the one that the routers choose for writes.

    Raises:
        TTLConfigurationError: The default of a target isn't stored.
    """
    return [
        from_row(StoredPolicy, row)
        for rows in _chosen(Policy, targets, using)
        for row in rows.order_by("name", "scope")
    ]


def policy_changes(*targets: Model, using: str | None = None) -> list[PolicyChange]:
    """Read the changes of stored defaults, newest first; arguments as for `stored_policies`."""
    return [
        from_row(PolicyChange, row)
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
    process. Within ``atomic()`` the change is part of that transaction; otherwise it has one of its
    own.

    Args:
        target: A model.
        ttl: The new default: None, -1, or seconds as an int, an integral float or a timedelta.
            "default" removes that of a scope, whose rows then have the table's.
        scope: A value of `Stored.by`, for the rows that have it; None for all rows without their
            own default.
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
    """Change a default to a value that was checked; see `set_policy`.

    Call it inside `in_transaction`. It calls `check` once the rows are locked and before it changes
    anything; `check` may raise an error.
    """
    using, name, scope = default.using, default.name, default.scope or WHOLE_TABLE
    rows = Policy.objects.using(using).filter(name=name)
    whole, row = rows.filter(scope=WHOLE_TABLE), rows.filter(scope=scope)
    author: dict[str, str | None] = {"changed_by": by, "reason": reason}
    with _in_short_tries(using) as run:
        # Transactions that delete by any default of the table hold this row: see
        # `lookup.lock_row`. Writing it makes a transaction with an older snapshot fail, and locks
        # the file on SQLite, which has no FOR UPDATE.
        run(lambda: whole.update(ttl=models.F("ttl")))
        stored = run(lambda: list(row.select_for_update().values_list("ttl", flat=True)))
        before: int | None = stored[0] if stored else default.absent
        check()
        if ttl == INHERIT and not stored:
            return before
        if not stored:
            new = Policy(name=name, scope=scope, ttl=ttl, changed_at=Stamp(), **author)
            run(lambda: new.save(using=using, force_insert=True))
        elif ttl == INHERIT:
            run(lambda: row.update(changed_at=Stamp()))
        else:
            run(lambda: row.update(ttl=ttl, changed_at=Stamp(), **author))
        at = row.values_list("changed_at", flat=True).get()
        written = {"changed_at": at, "ttl_before": before, "ttl_after": ttl, **author}
        Change.objects.using(using).create(name=name, scope=scope, **written)
        if ttl == INHERIT:
            run(row.delete)
    return before


def in_transaction(using: str, work: Callable[[], R]) -> R:
    """Run a change in the alias's transaction, or in one of its own.

    Its own transaction is repeated if it loses a race for a row against another change.
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
            # For half a minute: see `_in_short_tries`.
            has_waited = code_of(cause) in (WAITED, NOT_AVAILABLE)
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
            key = {"name": lookup.name_of(binding), "scope": WHOLE_TABLE}
            rows.append(Policy(**key, ttl=policy.stored.start, changed_at=Stamp()))
    Policy.objects.using(using).bulk_create(rows, ignore_conflicts=True)


@contextmanager
def _in_short_tries(using: str) -> Iterator[Callable[[Callable[[], R]], R]]:
    """Yield a function that runs queries, and waits for locks in short tries.

    It waits for half a minute in all. `ttl_odm.stored.sqlalchemy.changes` says why.
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
    # Not by Django's own cursor, which rejects all statements once one of the transaction failed.
    with closing(connection.create_cursor()) as cursor:
        cursor.execute(f"SELECT @@{setting}")
        (before,) = cursor.fetchone()
        cursor.execute(f"SET {setting} = 1")
        try:
            yield run
        except BaseException:
            with suppress(Exception):  # it would hide the first error
                cursor.execute(f"SET {setting} = {before}")
            raise
        cursor.execute(f"SET {setting} = {before}")


def _lock_table(connection: BaseDatabaseWrapper) -> None:
    """Keep other transactions from locking rows of the policies, on PostgreSQL.

    `ttl_odm.stored.sqlalchemy.changes` says why.
    """
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
    model: type[Policy | Change], targets: tuple[Model, ...], using: str | None
) -> Iterator[AnyQuerySet]:
    """The stored defaults or changes of some models, or all of them, in each database."""
    if not targets:
        yield model.objects.using(using or router.db_for_write(model))
        return
    names: dict[str, list[str]] = {}
    for target in targets:
        default = StoredDefault.of(target, None, using)
        names.setdefault(default.using, []).append(default.name)
    for alias, chosen in names.items():
        yield model.objects.using(alias).filter(name__in=chosen)
