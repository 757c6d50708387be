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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.orm.base import NO_VALUE
from sqlalchemy.orm.exc import StaleDataError

from ttl_odm import errors
from ttl_odm.core import expiry
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.lifetime import lifetime_of
from ttl_odm.sqlalchemy.time.clock import clock_of, sample_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import InstanceState, Mapper

    from ttl_odm.sqlalchemy.objects.lifetime import Lifetime
    from ttl_odm.sqlalchemy.policy.binding import Binding

    Key = tuple[Any, ...]

MARGIN: Final = timedelta(seconds=5)
"""How long before its end a row is no longer taken for the same without a look at it.

Between that and the write a statement may wait for a lock: on SQLite for so long by default.
"""

_KNOWN: Final = "ttl_odm_known"
"""In ``InstanceState.info``: what is known of a row whose stamp isn't in memory."""


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


def note(state: InstanceState[Any], known: Seen | datetime | None) -> None:
    """Keep what is known of an object's row, whose stamp is about to be forgotten.

    It is what was seen, or the latest instant at which the server has stamped it, or nothing.
    """
    if known is not None:
        # Any load of the object, whole or of an attribute, gives it another runid.
        state.info[_KNOWN] = (known, state.runid)
    elif "info" in vars(state):  # asking for it would make one for each object
        state.info.pop(_KNOWN, None)


def note_written(state: InstanceState[Any], dialect: Dialect) -> None:
    """Keep that an object's row was stamped by the server just now."""
    sample = sample_of(dialect)
    note(state, None if sample is None else sample.now())


def written_of(state: InstanceState[Any], lifetime: Lifetime) -> Seen | None:
    """What a flush has noted of an object that was not loaded since."""
    if not lifetime.is_mapped or "info" not in vars(state):
        return None
    known, runid = state.info.get(_KNOWN, (None, None))
    if known is None or runid != state.runid:
        return None
    if isinstance(known, Seen):
        return known
    values = {**stored_values(state), lifetime.stamp: known - MARGIN}
    rest = [values.get(key, NO_VALUE) for key in lifetime.attributes]
    # A ttl may be SQL, or not in memory.
    if any(value is NO_VALUE or isinstance(value, ColumnElement) for value in rest):
        return None
    instants = lifetime.binding.instants
    latest = known if instants.native else known + timedelta(seconds=instants.coarseness)
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
    binding: Binding, mapper: Mapper[Any], records: Sequence[Any], verb: str
) -> dict[InstanceState[Any], Seen]:
    """Raise `ExpiredError` if the key of an object may be another row's by now.

    Rows whose end is far are known to be the same. The others are looked at, and locked until the
    write. Returns what was seen of each row.
    """
    known: dict[InstanceState[Any], Seen] = {}
    near: dict[Connection, dict[Key, InstanceState[Any]]] = {}
    for record in records:
        state: InstanceState[Any] | None = record[compat.STATE]
        connection: Connection = record[compat.CONNECTION]
        if state is None or state.key is None:
            continue
        lifetime = lifetime_of(state.mapper)
        if lifetime is None:
            continue
        seen = seen_of(state, lifetime, connection.dialect) or written_of(state, lifetime)
        if seen is not None:
            known[state] = seen
            if seen.may_be_over(connection.dialect, MARGIN):
                near.setdefault(connection, {})[tuple(state.key[1])] = state
    for connection, states in near.items():
        columns = compat.primary_key(mapper, binding.table)
        statement = select(*columns, binding.last_modified).where(has_one_of(columns, states))
        locked = statement.with_for_update(key_share=verb == "updated")
        for *key, stamp in connection.execute(locked).all():
            state = states[tuple(key)]
            seen = known[state]
            lifetime = lifetime_of(state.mapper)
            if lifetime is None or seen.is_of(stamp, lifetime):
                continue
            # By now: what is alive after the look was so at the look, and is the same.
            if seen.may_be_over(connection.dialect):
                raise expired_error(state, verb)
    return known


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
