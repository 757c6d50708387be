"""The identity map never serves an expired object.

``session.get()`` and lazy many-to-one loads answer from memory where they can. An object there
is *in doubt* once its end of life, as it was loaded, may have come by the upper bound of the
database's clock that `ttl_odm.sqlalchemy.time.clock` keeps. Then, and only then, the lookup
misses: SQLAlchemy asks the database, whose predicate decides. Rows that are plainly alive cost
no query.

``merge()`` and a flush of a new object look into the identity map on their own; an object
there whose row is gone is taken out first, so that the new one is an INSERT.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.orm.attributes import instance_state

from ttl_odm.core import expiry
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.lifetime import lifetime_of
from ttl_odm.sqlalchemy.policy.parameters import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.time.clock import clock_of, sample_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import InstanceState, Mapper, Session

    from ttl_odm.sqlalchemy.compat import Handler
    from ttl_odm.sqlalchemy.objects.lifetime import Lifetime

_NONE: Final[Mapping[str, object]] = MappingProxyType({})


def live_lookups(lookup: Handler) -> Handler:
    """Let the session find no object in memory that may have expired."""

    def live_lookup(session: Session, mapper: Mapper[Any], *args: object, **kw: Any) -> Any:
        row = lookup(session, mapper, *args, **kw)
        if row is None:
            return row
        lifetime = lifetime_of(mapper)
        if lifetime is None or not isinstance(row, mapper.base_mapper.class_):
            return row
        if kw.get("execution_options", _NONE).get(INCLUDE_EXPIRED):
            return row
        state = instance_state(row)
        if state.mapper is not mapper:  # a subclass may have a default of its own
            lifetime = lifetime_of(state.mapper) or lifetime
        if not _in_doubt(session, state, lifetime):
            return row
        # The next load reads the lifetime anew. Changes that wait for a flush stay.
        compat.expire(
            state, [key for key in lifetime.attributes if key not in state.committed_state]
        )
        return None

    return live_lookup


def live_merges(merge: Handler) -> Handler:
    """Let ``merge()`` make a new row of an object whose row is gone."""

    def live_merge(session: Session, state: InstanceState[Any], *args: object, **kw: object) -> Any:
        if kw.get("load", True) and lifetime_of(state.mapper) is not None:
            key = state.key or compat.identity_keys(state.mapper)(state)
            known = session.identity_map.get(key)
            if known is not None and known is not state.obj():
                drop_if_gone(session, known, state.mapper.class_, key)
        return merge(session, state, *args, **kw)

    return live_merge


def drop_if_gone(session: Session, known: object, cls: type, key: Any) -> None:
    """Take an object out of a session if its row is gone and one of a class is to have its key."""
    state = instance_state(known)
    lifetime = lifetime_of(state.mapper)
    if (
        lifetime is not None
        and _in_doubt(session, state, lifetime)
        and session.get(cls, key[1]) is None
    ):
        session.expunge(known)


def _in_doubt(session: Session, state: InstanceState[Any], lifetime: Lifetime) -> bool:
    """Whether the database has to be asked to know that an object is live."""
    stored = state.dict
    if state.committed_state:  # what is stored counts, not what waits for the next flush
        stored = {**stored, **state.committed_state}
    if any(key not in stored for key in lifetime.attributes):
        return True
    if lifetime.binding.is_adopted:
        if not _is_readable(lifetime, stored, session.get_bind(state.mapper).dialect):
            return True
        end = lifetime.end(stored)
    else:
        stamp = stored[lifetime.stamp]
        if not isinstance(stamp, datetime):
            return True
        own = None if lifetime.own is None else stored[lifetime.own]
        if own is not None:
            own = expiry.own_ttl(lifetime.binding.policy, own)  # type: ignore[arg-type]
        seconds = expiry.effective_ttl(lifetime.default(), own)
        end = None if seconds is None else stamp + timedelta(seconds=seconds)
    if end is None:
        return False
    sample = sample_of(session.get_bind(state.mapper).dialect)
    # Without a sample (an unpickled object): ask.
    return sample is None or end <= sample.now()


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
