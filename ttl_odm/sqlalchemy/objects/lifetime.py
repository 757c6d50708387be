"""What a program does with one row's lifetime, in whichever columns it is stored.

`TTLMixin` has these functions as methods. Not every policy allows all of them: a row may have no
ttl of its own to set, and a touch can't extend a date that no write resets. Such a call raises
`TTLError`, which says which declaration would allow it.

What is assigned to the row is SQL, so that the database's clock decides; the next flush sends it.
Whether it is assigned at all (``at_most_every``, ``only_if``) depends on the row as it is in
memory, like anything that a program computes from an attribute. Lock the row where two programs
may decide at once.

Memory knows no end of a row that expires by a rule, so for such rows the database is asked.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Table, inspect, literal, select
from sqlalchemy.orm import object_session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.orm.exc import ObjectDeletedError
from sqlalchemy.sql import visitors
from sqlalchemy.util.concurrency import in_greenlet

from ttl_odm.core import expiry
from ttl_odm.core.lifetime import (
    EARLIEST_NOW,
    end_instant,
    grants,
    interval,
    is_recent,
    life_seconds,
    limited_end,
)
from ttl_odm.core.policy import TTL, ExpireAt
from ttl_odm.core.values import NEVER
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.gate import functions
from ttl_odm.sqlalchemy.policy.bindings import INFO_KEY, root_binding_of
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.policy.references import rule_of
from ttl_odm.sqlalchemy.rewrite.writes import Ago, SecondsUntil, Stamp, StampUntil
from ttl_odm.sqlalchemy.time.clock import LastModified, database_now, dialect_of
from ttl_odm.sqlalchemy.time.instants import Capacity, End, SecondsAhead

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Column
    from sqlalchemy.orm import Mapper

    from ttl_odm.core.lifetime import OnlyIf
    from ttl_odm.core.policy import Policy
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Rule
    from ttl_odm.sqlalchemy.policy.sources import DefaultTTL


_LIFETIME: Final = "ttl_odm_lifetime"
_TABLES: Final = "ttl_odm_tables"
"""The names under which a mapper remembers its `Lifetime`, and the tables it is mapped to."""

_STAMP: Final = Stamp()
"""What every touch assigns. It has no state, and making one takes as long as the assignment."""


class Lifetime(NamedTuple):
    """The policy of a mapped class and the names of the attributes that it reads.

    A class may map part of a table, a join or a subquery, without the columns that the policy
    reads. Then `is_mapped` is false, there are no `attributes`, and only the database knows the end
    of a row. The same is true of a second Table, whose columns may have other types, and whose rows
    may belong to other classes.

    Attributes:
        binding: The policy of the table.
        stamp: The attribute of the last modification, or of the date that the policy has instead.
        own: The attribute of the row's own ttl; None if rows can't have one.
        kind: The attribute on which the default depends; None if all rows share one.
        created: The attribute from which the limit to lives is counted; None without a limit.
        default: The default that the class's rows inherit.
        attributes: All of these attributes.
    """

    binding: Binding
    stamp: str
    own: str | None
    kind: str | None
    created: str | None
    default: DefaultTTL
    attributes: tuple[str, ...] = ()

    @property
    def is_mapped(self) -> bool:
        """Whether the class maps the columns of its lifetime."""
        return bool(self.attributes)

    def scope(self, values: Mapping[str, object]) -> object:
        """Return the value on which a row's default depends; None if all rows share one."""
        return None if self.kind is None else values[self.kind]

    def end(self, values: Mapping[str, object], policy: Policy) -> datetime | None:
        """Return the instant at which a row with these values expires (aware, UTC); None: never."""
        return expiry.expires_at(
            policy,
            instant=values[self.stamp],
            own=None if self.own is None else values[self.own],
            kind=None if self.kind is None else values[self.kind],
            created=None if self.created is None else values[self.created],
        )


def lifetime_of(mapper: Mapper[Any]) -> Lifetime | None:
    """Return the lifetime of a class's objects; None if the class has no policy."""
    # Every lookup of every session calls this; most tables have an empty info.
    info = getattr(mapper.local_table, "info", None)
    if info is None:
        return _lifetime_in_many(mapper)
    if not info:
        return None
    memo = compat.memo_of(mapper)
    known: tuple[object, Lifetime] | None = memo.get(_LIFETIME)
    if known is not None and known[0] is info.get(INFO_KEY):
        return known[1]
    binding = root_binding_of(mapper.local_table)
    if binding is None:
        return None
    limit = binding.max_lifetime
    has_kinds = isinstance(binding.policy, TTL) and binding.policy.by is not None
    kind = binding.discriminator if has_kinds or binding.source.scoping is not None else None
    columns = (binding.last_modified, binding.override, kind, limit and limit.created)
    properties = compat.properties(mapper)
    keys: tuple[str | None, ...] = (None,) * len(columns)
    if binding.origin is None and all(c is None or c in properties for c in columns):
        keys = tuple(None if column is None else properties[column].key for column in columns)
    stamp, own, kind_key, created = keys
    default = binding.default_for(mapper.class_)
    attributes = tuple(key for key in keys if key is not None)
    lifetime = Lifetime(binding, stamp or "", own, kind_key, created, default, attributes)
    memo[_LIFETIME] = (info.get(INFO_KEY), lifetime)
    return lifetime


def _lifetime_in_many(mapper: Mapper[Any]) -> Lifetime | None:
    """Return the lifetime of a class mapped to a join or subquery: the first one in its tables."""
    for binding in map(root_binding_of, _tables_of(mapper)):
        if binding is not None:
            return Lifetime(binding, "", None, None, None, binding.default)
    return None


def _tables_of(mapper: Mapper[Any]) -> list[Table]:
    """Return the tables in the join or subquery that a class is mapped to."""
    memo = compat.memo_of(mapper)
    if _TABLES not in memo:
        elements = visitors.iterate(mapper.local_table)
        memo[_TABLES] = [element for element in elements if isinstance(element, Table)]
    tables: list[Table] = memo[_TABLES]
    return tables


def has_rule(mapper: Mapper[Any]) -> bool:
    """Return whether the rows of a class expire by a rule, so that memory knows no ends of them.

    Call it only for classes without a lifetime (`lifetime_of`).
    """
    info = getattr(mapper.local_table, "info", None)
    if info is None:
        return any(rule_of(table) is not None for table in _tables_of(mapper))
    return bool(info) and rule_of(mapper.local_table) is not None


def bound_lifetime(row: object) -> Lifetime:
    """Return the lifetime of a row's class; TTLConfigurationError if that has no TTL."""
    try:
        mapper = instance_state(row).manager.mapper
    except AttributeError:
        mapper = inspect(row).mapper  # raises SQLAlchemy's error
    lifetime = lifetime_of(mapper)
    if lifetime is None:
        rule = rule_of(mapper.local_table)
        if rule is not None:
            raise rule.rejected("lifetime", type(row).__name__)
        raise TTLConfigurationError(
            f"{type(row).__name__} has no TTL; declare __ttl__ on the model, or enable() it."
        )
    if lifetime.binding.origin is not None:
        raise TTLConfigurationError(
            f"{type(row).__name__} is mapped to a second Table object for "
            f"{lifetime.binding.table.fullname!r}, whose policy {lifetime.binding.name} declares: "
            f"use that class, or enable({type(row).__name__}, ...) too."
        )
    if not lifetime.is_mapped:
        raise TTLConfigurationError(
            f"{type(row).__name__} doesn't map the columns that determine the lifetime of a row "
            f"of {lifetime.binding.table.fullname!r} (such as "
            f"{lifetime.binding.last_modified.name!r}): map them too, or use a class that does."
        )
    return lifetime


def end_of(row: object) -> datetime | None:
    """Return the instant at which a row in memory expires (aware, UTC); None for never.

    If Python doesn't know the default, the one that this process read last counts.
    """
    mapper, rule = _rule(row)
    if rule is not None:
        end: datetime | None = _by_rule(row, mapper, rule, functions.expires_at(mapper.local_table))
        return end
    lifetime = bound_lifetime(row)
    values = {key: getattr(row, key) for key in lifetime.attributes}
    policy = lifetime.default.policy
    if not lifetime.binding.source.is_known:
        session = object_session(row)
        dialect = None if session is None else dialect_of(session, row)
        policy = lifetime.binding.source.policy_as_noted(dialect, lifetime.scope(values))
    return lifetime.end(values, policy)


def is_expired(row: object) -> bool:
    """Return whether a row has expired, by the database's clock; see `TTLMixin.is_expired`."""
    mapper, rule = _rule(row)
    if rule is not None:
        return _is_expired_by_rule(row, mapper, rule)
    end = end_of(row)
    return end is not None and expiry.is_expired(end, database_now(row))


def time_left(row: object) -> timedelta | None:
    """Return how long a row still lives, by the database's clock; None: forever. Never negative."""
    end = end_of(row)
    if end is not None:
        return expiry.remaining(end, database_now(row))
    mapper, rule = _rule(row)  # a row may have expired without an end of its own
    return timedelta(0) if rule is not None and _is_expired_by_rule(row, mapper, rule) else None


def _rule(row: object) -> tuple[Mapper[Any], Rule | None]:
    """Return the mapper of a row, and its rule; None if the row has a lifetime of its own."""
    mapper: Mapper[Any] = instance_state(row).manager.mapper
    return mapper, rule_of(mapper.local_table) if lifetime_of(mapper) is None else None


def _is_expired_by_rule(row: object, mapper: Mapper[Any], rule: Rule) -> bool:
    return bool(_by_rule(row, mapper, rule, functions.expired(mapper.local_table)))


def _by_rule(row: object, mapper: Mapper[Any], rule: Rule, value: ColumnElement[Any]) -> Any:
    """Ask the database for something about a row that expires by a rule; memory can't tell it."""
    session = object_session(row)
    if session is None or not instance_state(row).has_identity:
        raise rule.rejected("unread", type(row).__name__)
    key = zip(mapper.primary_key, mapper.primary_key_from_instance(row), strict=True)
    question = select(value).select_from(mapper.local_table).options(include_expired())
    return session.scalar(question.where(*(column == part for column, part in key)))


def touch(
    row: object, *, at_most_every: float | timedelta | None = None, only_if: OnlyIf | None = None
) -> bool:
    """Restart a row's lifetime at the next flush, without changing anything else.

    Args:
        row: An object of a mapped class with a TTL.
        at_most_every: Seconds, or a timedelta. A row that was written more recently is left alone,
            without a statement. If the row's data isn't in memory (after a commit), it is loaded
            first; an AsyncSession can't load it here, so the row is touched.
        only_if: With "longer" or "has_ttl", rows that never expire are left alone; with "no_ttl",
            all others. With "shorter", every row is left alone, since a touch never shortens a
            life.

    Returns:
        Whether the row's lifetime will be restarted.

    Raises:
        TTLConfigurationError: The row's class has no TTL, or an argument is invalid.
        TTLError: Under its policy, writes don't extend lives.
    """
    lifetime = bound_lifetime(row)
    check_extended(type(row).__name__, lifetime.binding)
    if at_most_every is not None:
        pause = interval(at_most_every)
        last = _last_written(row, lifetime)
        if last is not None and is_recent(last, database_now(row), pause):
            return False
    if only_if is not None:
        # The length of the new life makes no difference: a row with an end gets a later one,
        # except for the policy's limit.
        end = end_of(row)
        later = None if end is None else _limited(row, lifetime, end + timedelta.resolution)
        if not grants(only_if, end, later):
            return False
    setattr(row, lifetime.stamp, _STAMP)
    return True


def persist(row: object) -> None:
    """Let a row live forever (ttl -1), regardless of the default, up to `TTL.max_lifetime`.

    Raises:
        TTLError: The policy doesn't allow it. The next three functions raise it too.
    """
    lifetime = bound_lifetime(row)
    policy, name = lifetime.binding.policy, type(row).__name__
    check_written(name, "persist()", lifetime.binding)
    if lifetime.own is not None:
        setattr(row, lifetime.own, NEVER)
    elif isinstance(policy, ExpireAt) and policy.null == "never":
        _set_null(row, lifetime.stamp, lifetime.binding.last_modified)
    else:
        raise no_own_lifetime(name, "persist()", lifetime.binding)


def inherit_ttl(row: object) -> None:
    """Remove a row's own ttl, so that the default applies again."""
    lifetime = bound_lifetime(row)
    if lifetime.own is None or lifetime.binding.override is None:
        raise no_own_lifetime(type(row).__name__, "inherit_ttl()", lifetime.binding)
    check_written(type(row).__name__, "inherit_ttl()", lifetime.binding)
    _set_null(row, lifetime.own, lifetime.binding.override)


def expire_in(row: object, life: float | timedelta, *, only_if: OnlyIf | None = None) -> bool:
    """Let a row live for this long, counted from the next flush.

    Args:
        row: An object of a mapped class with a TTL.
        life: Whole seconds, or a timedelta of whole seconds. With zero or less the row expires at
            the flush.
        only_if: A condition, without which the row is left alone: the new life is "longer" or
            "shorter" than the current one, or the row has a lifetime ("has_ttl") or none
            ("no_ttl"). `ttl_odm.core.lifetime` has a table.

    Returns:
        Whether the row will get this life.

    Raises:
        InvalidTTL: The number isn't whole, or is over 2147483647. The flush raises it too, if the
            column of an `ExpireAt` can't hold the value.
    """
    lifetime = bound_lifetime(row)
    check_written(type(row).__name__, "expire_in()", lifetime.binding)
    where = f"{type(row).__name__}.{lifetime.own or lifetime.stamp}"
    seconds = life_seconds(life, where=where)
    if only_if is not None:
        end = _limited(row, lifetime, database_now(row) + timedelta(seconds=seconds))
        if not grants(only_if, end_of(row), end):
            return False
    own, stamp = values_for_life(type(row).__name__, lifetime.binding, seconds, where)
    if lifetime.own is not None:
        setattr(row, lifetime.own, own)
    setattr(row, lifetime.stamp, stamp)
    return True


def values_for_life(
    name: str, binding: Binding, seconds: int, where: str
) -> tuple[int | None, ColumnElement[Any]]:
    """Return what ``expire_in`` writes: the row's own ttl, or None, and the stamp or date.

    Args:
        name: The model's name.
        binding: Its policy.
        seconds: The new life, from `life_seconds`.
        where: The model and the field, for messages.

    Raises:
        TTLError: The policy gives rows no lifetime of their own.
    """
    instants = binding.instants
    passed = Ago(1 if instants.native else 1 + instants.coarseness)
    if binding.override is not None:
        return seconds or 1, Stamp() if seconds else passed
    if isinstance(binding.policy, ExpireAt):
        ahead = Ago(-seconds, SecondsAhead(Capacity(instants, where)))
        return None, instants.stored(ahead if seconds else passed)
    raise no_own_lifetime(name, "expire_in()", binding)


def expire_at(row: object, instant: datetime, *, only_if: OnlyIf | None = None) -> bool:
    """Let a row expire at exactly this instant, or right after it if its column is coarser.

    The next flush stores the remaining seconds as the ttl, rounded up, and a ``_ts`` that many
    seconds before the instant. A later write restarts that ttl, as any write does. If the policy
    is `ExpireAt`, its column is set to the instant.

    Args:
        row: An object of a mapped class with a TTL.
        instant: An aware datetime; if it is in the past, the row expires at the flush.
        only_if: As in `expire_in`.

    Returns:
        Whether the row will expire then.

    Raises:
        InvalidTTL: The datetime is naive, or too late for the row: more than 68 years from now,
            for a row with a ttl. The flush raises it too, if the column of an `ExpireAt` can't
            hold the value. (`persist` lets a row live forever.)
    """
    lifetime = bound_lifetime(row)
    check_written(type(row).__name__, "expire_at()", lifetime.binding)
    where = f"{type(row).__name__}.{lifetime.own or lifetime.stamp}"
    now = None if lifetime.own is None else partial(_now_at_least, row)
    instant = end_instant(instant, where=where, now=now)
    if only_if is not None and not grants(only_if, end_of(row), _limited(row, lifetime, instant)):
        return False
    instants = lifetime.binding.instants
    if lifetime.own is not None:
        end = literal(instant, LastModified())
        setattr(row, lifetime.own, SecondsUntil(end))
        setattr(row, lifetime.stamp, StampUntil(end))
    elif isinstance(lifetime.binding.policy, ExpireAt):
        fitting = literal(instant, End(Capacity(instants, where)))
        setattr(row, lifetime.stamp, instants.stored(fitting))
    else:
        raise no_own_lifetime(type(row).__name__, "expire_at()", lifetime.binding)
    return True


def _now_at_least(row: object) -> datetime:
    """Return the database's now, or an earlier instant if this process has never asked for it."""
    try:
        return database_now(row)
    except TTLError:
        return EARLIEST_NOW


def _limited(row: object, lifetime: Lifetime, end: datetime) -> datetime | None:
    created = None if lifetime.created is None else getattr(row, lifetime.created)
    return limited_end(lifetime.default.policy, created, end)


def _last_written(row: object, lifetime: Lifetime) -> datetime | None:
    """Return when a row was last written (aware); None if that can't be known here."""
    state = inspect(row)
    if lifetime.stamp not in state.dict:
        session = state.session
        if session is None or not state.has_identity:
            return None
        if dialect_of(session, row).is_async and not in_greenlet():
            return None  # it can't be loaded here
    try:
        value = getattr(row, lifetime.stamp)
    except ObjectDeletedError:  # it has expired: the flush will say so
        return None
    if isinstance(value, ColumnElement):  # touched before, and not flushed yet
        return None
    return expiry.instant_of(lifetime.binding.policy, value)


def _set_null(row: object, attribute: str, column: Column[Any]) -> None:
    if not column.nullable:
        raise TTLError(
            f"{type(row).__name__}.{attribute} can't be NULL (column {column.name!r}), which this "
            "needs: make the column nullable."
        )
    setattr(row, attribute, None)


def check_extended(name: str, binding: Binding) -> None:
    """Raise TTLError if writes don't extend a row's life; `name` is the model's."""
    if not binding.stamps:
        raise TTLError(
            f"{name}.touch(): with {binding.policy!r} no write renews a row; set "
            f"{binding.last_modified.name!r}, or declare TTL(seconds, last_modified=...)."
        )


def check_written(name: str, call: str, binding: Binding) -> None:
    """Raise TTLError for a computed column, before the database rejects the write."""
    column = binding.last_modified if binding.override is None else binding.override
    if column.computed is not None:
        raise TTLError(
            f"{name}.{call}: the database computes column {column.name!r} "
            f"({column.computed.sqltext}), so it can't be set; set the columns that it is "
            "computed from."
        )


def no_own_lifetime(name: str, call: str, binding: Binding) -> TTLError:
    """Return the error for a policy that gives rows no lifetime of their own."""
    return TTLError(
        f"{name}.{call}: with {binding.policy!r}, a row has no lifetime of its own; that needs "
        "TTL(..., override='a column of seconds') or ExpireAt('a column')."
    )
