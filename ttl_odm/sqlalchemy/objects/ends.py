"""What a session knows of the ends of the rows that it has in memory.

A key whose row has expired is free, so the row that has it later may be another one. Memory can't
see that; but while the end of an object, as it was loaded, has not come, no other row can have its
key. Once it may have come the object is *over*: what is loaded for its key is taken for another
row's, and a write needs proof that the row is still the same, which only its stamp gives: a row
renewed by others and one made anew look alike.

A flush lets objects forget the stamp that it has written by the server's clock. A `Seen` stands in
for it until the stamp is loaded.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.orm.base import NO_VALUE
from sqlalchemy.orm.exc import StaleDataError

from ttl_odm import errors
from ttl_odm.core import expiry
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.lifetime import lifetime_of
from ttl_odm.sqlalchemy.time.clock import clock_of, monotonic, sample_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import InstanceState, Mapper

    from ttl_odm.sqlalchemy.objects.lifetime import Lifetime
    from ttl_odm.sqlalchemy.policy.binding import Binding

    Key = tuple[Any, ...]
    Written = tuple[InstanceState[Any] | None, Connection]

_MARGIN: Final = 5
MARGIN: Final = timedelta(seconds=_MARGIN)
"""How long before its end a row is no longer taken for the same without a look at it.

Between that and the write a statement may wait for a lock: on SQLite for so long by default.
"""

_NOTHING: Final = (None, None)
_NOTE: Final = "ttl_odm_note"
"""An attribute of an object's state: what is known of a row whose stamp isn't in memory.

That is a `Seen`, or when the server has stamped the row (by `monotonic`) at the latest; and the
load after which that was so: any load of the object, whole or of an attribute, is another.
"""


class ExpiredError(errors.ExpiredError, StaleDataError, DontWrapMixin):
    """The row has expired (or was deleted), so it can't be changed or deleted."""


class Seen(NamedTuple):
    """The end of an object's row, and the row's stamp, as a session has loaded or written them.

    The end is aware, in UTC; None for never. The stamp is what the attribute held; where it isn't
    exact, the latest instant that can be.
    """

    end: datetime | None
    stamp: Any
    is_exact: bool = True

    def may_be_over(self, dialect: Dialect, margin: timedelta = timedelta(0)) -> bool:
        """Whether the end may have come, by the upper bound of a database's clock."""
        if self.end is None:
            return False
        sample = sample_of(dialect)
        # Without a sample (an unpickled object) nothing is known.
        return sample is None or self.end <= sample.now() + margin

    def is_of(self, stamp: object, lifetime: Lifetime) -> bool:
        """Whether a row with this stamp is the one that was seen."""
        if self.is_exact:
            return bool(stamp == self.stamp)
        instant = expiry.instant_of(lifetime.default.policy, stamp)
        return instant is not None and bool(instant <= self.stamp)


def stored_values(state: InstanceState[Any]) -> Mapping[str, Any]:
    """The attributes that are in memory: what is stored, not what waits for the next flush."""
    stored: dict[str, Any] = state.dict
    return {**stored, **state.committed_state} if state.committed_state else stored


def seen_of(state: InstanceState[Any], lifetime: Lifetime, dialect: Dialect) -> Seen | None:
    """What memory has of an object's end; None where that isn't enough to tell it."""
    stored = stored_values(state)
    if not lifetime.is_mapped or any(
        stored.get(key, NO_VALUE) is NO_VALUE for key in lifetime.attributes
    ):
        return None
    stamp = stored[lifetime.stamp]
    if lifetime.binding.is_adopted:
        readable = _is_readable(lifetime, stored, dialect)
        return Seen(lifetime.end(stored), stamp) if readable else None
    return Seen(_end(lifetime, stored, stamp), stamp) if isinstance(stamp, datetime) else None


def note(state: Any, known: Seen | float | None) -> None:
    """Keep what is known of an object's row, whose stamp is about to be forgotten: see `_NOTE`."""
    state.ttl_odm_note = (known, state.runid)


def known_of(state: InstanceState[Any], dialect: Dialect) -> Seen | None:
    """What a session knows of an object's end, be it loaded or written."""
    lifetime = lifetime_of(state.mapper)
    if lifetime is None:
        return None
    return seen_of(state, lifetime, dialect) or written_of(state, lifetime, dialect)


def written_of(state: InstanceState[Any], lifetime: Lifetime, dialect: Dialect) -> Seen | None:
    """What a flush has noted of an object that was not loaded since."""
    known, runid = getattr(state, _NOTE, _NOTHING)
    if not lifetime.is_mapped or known is None or runid != state.runid:
        return None
    if isinstance(known, Seen):
        return known
    sample = sample_of(dialect)
    if sample is None:
        return None
    latest = sample.at(known)
    values = {**stored_values(state), lifetime.stamp: latest - MARGIN}
    rest = [values.get(key, NO_VALUE) for key in lifetime.attributes]
    # A ttl may be SQL, or not in memory.
    if any(value is NO_VALUE or isinstance(value, ColumnElement) for value in rest):
        return None
    instants = lifetime.binding.instants
    if not instants.native:
        latest += timedelta(seconds=instants.coarseness)
    return Seen(lifetime.end(values), latest, is_exact=False)


def expired_error(
    state: InstanceState[Any],
    verb: str,
    fix: str = "Load it anew (session.refresh()) and then write.",
) -> ExpiredError:
    """The error for an object that is over, and whose key may be another row's."""
    model, key = state.class_.__name__, state.key[1] if state.key else ()
    name = key[0] if len(key) == 1 else key
    return ExpiredError(
        f"{model} {name!r} can't be {verb}: it had expired as this session knew it, and the row "
        "that has its key now is a new one, or was renewed by others meanwhile, which can't be "
        f"told apart. {fix}",
        model=model,
        key=name,
    )


def _end(lifetime: Lifetime, stored: Mapping[str, Any], stamp: datetime) -> datetime | None:
    own = None if lifetime.own is None else stored[lifetime.own]
    if own is not None:
        own = expiry.own_ttl(lifetime.binding.policy, own)  # type: ignore[arg-type]
    seconds = expiry.effective_ttl(lifetime.default(), own)
    return None if seconds is None else stamp + timedelta(seconds=seconds)


def check_same(
    binding: Binding, mapper: Mapper[Any], records: Iterable[Written], verb: str
) -> None:
    """Raise `ExpiredError` if the key of an object may be another row's by now.

    Rows whose end is far are known to be the same. The others are looked at, and locked until the
    write.
    """
    near: dict[Connection, dict[Key, tuple[InstanceState[Any], Seen]]] = {}
    lifetimes: dict[object, tuple[Lifetime, tuple[datetime, float] | None] | None] = {}
    for state, connection in records:
        if state is None or state.key is None:
            continue
        name = state.mapper, connection.dialect
        if name not in lifetimes:
            lifetime = lifetime_of(state.mapper)
            lifetimes[name] = lifetime and (lifetime, _far(lifetime, connection.dialect))
        known = lifetimes[name]
        if known is None:
            continue
        lifetime, far = known
        if far is not None:  # for most objects, this is all that is asked
            stored, values = state.committed_state, state.dict
            stamp: Any = stored.get(lifetime.stamp, values.get(lifetime.stamp))
            if stamp is None:
                noted: tuple[Any, Any] = getattr(state, _NOTE, _NOTHING)
                at, runid = noted
                is_far = at.__class__ is float and runid == state.runid and at > far[1]
            else:
                is_far = stamp.__class__ is datetime and stamp > far[0]
            own: Any = lifetime.own
            if is_far and stored.get(own, values.get(own)) is None:
                continue
        seen = known_of(state, connection.dialect)
        if seen is not None and seen.may_be_over(connection.dialect, MARGIN):
            near.setdefault(connection, {})[tuple(state.key[1])] = state, seen
    for connection, states in near.items():
        _look_at(connection, states, binding, mapper, verb)


def _look_at(
    connection: Connection,
    states: Mapping[Key, tuple[InstanceState[Any], Seen]],
    binding: Binding,
    mapper: Mapper[Any],
    verb: str,
) -> None:
    columns = compat.primary_key(mapper, binding.table)
    statement = select(*columns, binding.last_modified).where(has_one_of(columns, states))
    locked = statement.with_for_update(key_share=verb == "updated")
    for *key, stamp in connection.execute(locked).all():
        state, seen = states[tuple(key)]
        lifetime = lifetime_of(state.mapper)
        if lifetime is None or seen.is_of(stamp, lifetime):
            continue
        # By now: what is alive after the look was so at the look, and is the same.
        if seen.may_be_over(connection.dialect):
            raise expired_error(state, verb)


def _far(lifetime: Lifetime, dialect: Dialect) -> tuple[datetime, float] | None:
    """What the row of an object without a ttl of its own was stamped after, if its end is far.

    It is in the terms of the stamp, and of a note.
    """
    sample = sample_of(dialect)
    if sample is None or lifetime.binding.is_adopted:
        return None
    seconds = expiry.effective_ttl(lifetime.default(), None)
    if seconds is None:
        return expiry.EARLIEST, -inf
    now = monotonic()
    return sample.at(now - seconds + _MARGIN), now - seconds + 2 * _MARGIN


def has_one_of(columns: Iterable[ColumnElement[Any]], keys: Iterable[Key]) -> ColumnElement[bool]:
    """The condition that a row has one of these keys."""
    return or_(*(and_(*(c == v for c, v in zip(columns, key, strict=True))) for key in keys))


def _is_readable(lifetime: Lifetime, stored: Mapping[str, Any], dialect: Dialect) -> bool:
    """Whether Python understands columns that are not ours, which may hold anything."""
    clock, limit = clock_of(dialect), lifetime.binding.max_lifetime
    columns = [(lifetime.stamp, lifetime.binding.instants)]
    if limit is not None and lifetime.created is not None:
        columns.append((lifetime.created, limit.instants))
    return all(
        (stored[key] is None or isinstance(stored[key], (date, int, str)))
        and not instants.on(clock).shifts
        for key, instants in columns
    )
