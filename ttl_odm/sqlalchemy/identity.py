"""The identity map never serves an expired object.

``session.get()`` and lazy many-to-one loads answer from memory where they can. An object there
is *in doubt* once its end of life, as it was loaded, may have come by the upper bound of the
database's clock that `ttl_odm.sqlalchemy.observed` keeps. Then, and only then, the lookup
misses: SQLAlchemy asks the database, whose predicate decides. Rows that are plainly alive cost
no query.

``merge()`` and a flush of a new object look into the identity map on their own; an object
there whose row is gone is taken out first, so that the new one is an INSERT.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect
from sqlalchemy.orm import Session

from ttl_odm.core import expiry
from ttl_odm.errors import TTLError
from ttl_odm.sqlalchemy.binding import Binding, root_binding_of
from ttl_odm.sqlalchemy.observed import database_now
from ttl_odm.sqlalchemy.options import INCLUDE_EXPIRED

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import InstanceState, Mapper


def _lifetime_keys(mapper: Mapper[Any], binding: Binding) -> tuple[str, str | None]:
    """The attributes that the lifetime hangs on: the last modification and the own ttl."""
    stamp, own = binding.last_modified, binding.override
    return (
        mapper.get_property_by_column(stamp).key,
        None if own is None else mapper.get_property_by_column(own).key,
    )


def _in_doubt(state: InstanceState[Any], binding: Binding) -> bool:
    """Whether a look at the database is needed to know that an object is live."""
    stamp_key, own_key = _lifetime_keys(state.mapper, binding)
    # What is stored counts, not what waits for the next flush.
    stored = {**state.dict, **state.committed_state}
    stamp = stored.get(stamp_key)
    if not isinstance(stamp, datetime) or (own_key is not None and own_key not in stored):
        return True
    own = None if own_key is None else expiry.own_ttl(binding.policy, stored[own_key])
    seconds = expiry.effective_ttl(binding.default_for(state.mapper.class_)(), own)
    if seconds is None:
        return False
    try:
        now = database_now(state.obj())
    except TTLError:  # the clock isn't known (an unpickled object): ask
        return True
    return stamp + timedelta(seconds=seconds) <= now


def _wrap_identity_lookup(lookup: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(lookup)
    def live_lookup(session: Session, mapper: Mapper[Any], *args: Any, **kw: Any) -> Any:
        found = lookup(session, mapper, *args, **kw)
        binding = root_binding_of(mapper.local_table)
        if binding is None or not isinstance(found, mapper.base_mapper.class_):
            return found
        if kw.get("execution_options", {}).get(INCLUDE_EXPIRED):
            return found
        state: Any = found._sa_instance_state
        if not _in_doubt(state, binding):
            return found
        _forget_lifetime(state, binding)
        return None

    return live_lookup


def _forget_lifetime(state: InstanceState[Any], binding: Binding) -> None:
    """Let the next load read the lifetime anew. Changes that wait for a flush stay."""
    keys = _lifetime_keys(state.mapper, binding)
    state._expire_attributes(
        state.dict, [key for key in keys if key is not None and key not in state.committed_state]
    )


def _drop_if_gone(session: Session, state: InstanceState[Any]) -> None:
    """Take an object out of the session whose row is gone and whose key ``state`` has."""
    mapper = state.mapper
    binding = root_binding_of(mapper.local_table)
    if binding is None:
        return
    key = state.key or mapper._identity_key_from_state(state)
    known = session.identity_map.get(key)
    if known is None or known is state.obj():
        return
    known_state: Any = inspect(known)
    if _in_doubt(known_state, binding) and session.get(mapper.class_, key[1]) is None:
        session.expunge(known)


def _wrap_merge(merge: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(merge)
    def live_merge(session: Session, state: InstanceState[Any], *args: Any, **kw: Any) -> Any:
        if kw.get("load", True):
            _drop_if_gone(session, state)
        return merge(session, state, *args, **kw)

    return live_merge


def _wrap_flush(flush: Callable[..., None]) -> Callable[..., None]:
    @wraps(flush)
    def live_flush(session: Session, *args: Any, **kw: Any) -> None:
        for state in list(session._new):
            _drop_if_gone(session, state)
        flush(session, *args, **kw)

    return live_flush


def install() -> None:
    """Wrap the session's look-ups; called once, when ``ttl_odm.sqlalchemy`` is imported."""
    session: Any = Session
    session._identity_lookup = _wrap_identity_lookup(session._identity_lookup)
    session._merge = _wrap_merge(session._merge)
    session._flush = _wrap_flush(session._flush)
