"""The identity map never serves an expired object.

``session.get()`` and lazy many-to-one loads answer from memory where they can. An object there
is *in doubt* once its end of life, as it was loaded, may have come by the upper bound of the
database's clock that `ttl_odm.sqlalchemy.time.clock_sample` keeps. Then, and only then, the lookup
misses: SQLAlchemy asks the database, whose predicate decides. Rows that are plainly alive cost
no query.

``merge()`` and a flush of a new object look into the identity map on their own; an object
there whose row is gone is taken out first, so that the new one is an INSERT.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy.orm import Session

from ttl_odm.core import expiry
from ttl_odm.core.policy import TTL
from ttl_odm.sqlalchemy.policy.binding import root_binding_of
from ttl_odm.sqlalchemy.policy.parameters import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.clock_sample import sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy.orm import InstanceState, Mapper

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.policy.parameters import DefaultTTL

_NONE: Final[MappingProxyType[str, Any]] = MappingProxyType({})


class Lifetime(NamedTuple):
    """What the lifetime of a class's objects hangs on.

    Attributes:
        binding: the policy of the table that holds it.
        stamp: the attribute of the last modification, or of the date that it has instead.
        own: the attribute of the row's own ttl, or None where rows can't have one.
        kind: the attribute of the row's kind, or None where the policy tells no kinds apart.
        created: the attribute of the row's creation, or None where lives have no limit.
        default: what its rows inherit.
    """

    binding: Binding
    stamp: str
    own: str | None
    kind: str | None
    created: str | None
    default: DefaultTTL

    @property
    def attributes(self) -> tuple[str, ...]:
        """Those that there are."""
        keys = (self.stamp, self.own, self.kind, self.created)
        return tuple(key for key in keys if key is not None)

    def end(self, values: Mapping[str, Any]) -> datetime | None:
        """The instant at which a row expires (aware, UTC); None for never.

        Args:
            values: what the row has in each of the `attributes`.
        """
        return expiry.expires_at(
            self.default.policy,
            instant=values[self.stamp],
            own=None if self.own is None else values[self.own],
            kind=None if self.kind is None else values[self.kind],
            created=None if self.created is None else values[self.created],
        )


def lifetime_of(mapper: Mapper[Any]) -> Lifetime | None:
    """The lifetime of a class's objects; None where the class has no policy."""
    # Every look-up of every session comes through here: most tables have no info at all.
    if not getattr(mapper.local_table, "info", None):
        return None
    binding = root_binding_of(mapper.local_table)
    if binding is None:
        return None
    memo: Any = mapper._memoized_values
    found = memo.get("ttl_odm_lifetime")
    if found is None or found.binding is not binding:
        stamp, own = binding.last_modified, binding.override
        has_kinds = isinstance(binding.policy, TTL) and binding.policy.by is not None
        kind = binding.discriminator if has_kinds else None
        created = None if binding.max_lifetime is None else binding.max_lifetime.created
        found = memo["ttl_odm_lifetime"] = Lifetime(
            binding,
            mapper.get_property_by_column(stamp).key,
            None if own is None else mapper.get_property_by_column(own).key,
            None if kind is None else mapper.get_property_by_column(kind).key,
            None if created is None else mapper.get_property_by_column(created).key,
            binding.default_for(mapper.class_),
        )
    return found  # type: ignore[no-any-return]


def _in_doubt(session: Session, state: InstanceState[Any], lifetime: Lifetime) -> bool:
    """Whether a look at the database is needed to know that an object is live."""
    stored = state.dict
    if state.committed_state:  # what is stored counts, not what waits for the next flush
        stored = {**stored, **state.committed_state}
    stamp = stored.get(lifetime.stamp)
    if lifetime.binding.is_adopted:
        return _adopted_in_doubt(session, state, lifetime, stored)
    if not isinstance(stamp, datetime) or (lifetime.own is not None and lifetime.own not in stored):
        return True
    own = None
    if lifetime.own is not None and stored[lifetime.own] is not None:
        own = expiry.own_ttl(lifetime.binding.policy, stored[lifetime.own])  # type: ignore[arg-type]
    seconds = expiry.effective_ttl(lifetime.default(), own)
    if seconds is None:
        return False
    sample = sample_of(session.get_bind(state.mapper).dialect)
    # Without a sample (an unpickled object): ask.
    return sample is None or stamp + timedelta(seconds=seconds) <= sample.now()


def _adopted_in_doubt(
    session: Session, state: InstanceState[Any], lifetime: Lifetime, stored: Mapping[str, Any]
) -> bool:
    """The same for columns that are not ours, which may hold anything."""
    if any(key not in stored for key in lifetime.attributes):
        return True
    dialect = session.get_bind(state.mapper).dialect
    instants, cap = lifetime.binding.instants, lifetime.binding.max_lifetime
    if not instants.is_readable(stored[lifetime.stamp]) or instants.on(clock_of(dialect)).shifts:
        return True
    if cap is not None and (
        not cap.instants.is_readable(stored[str(lifetime.created)])
        or cap.instants.on(clock_of(dialect)).shifts
    ):
        return True
    end = lifetime.end(stored)
    if end is None:
        return False
    sample = sample_of(dialect)
    return sample is None or end <= sample.now()


def _wrap_identity_lookup(lookup: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(lookup)
    def live_lookup(session: Session, mapper: Mapper[Any], *args: Any, **kw: Any) -> Any:
        found = lookup(session, mapper, *args, **kw)
        if found is None:
            return found
        lifetime = lifetime_of(mapper)
        if lifetime is None or not isinstance(found, mapper.base_mapper.class_):
            return found
        if kw.get("execution_options", _NONE).get(INCLUDE_EXPIRED):
            return found
        state: Any = found._sa_instance_state
        if state.mapper is not mapper:  # a subclass may have a default of its own
            lifetime = lifetime_of(state.mapper) or lifetime
        if not _in_doubt(session, state, lifetime):
            return found
        _forget_lifetime(state, lifetime)
        return None

    return live_lookup


def _forget_lifetime(state: InstanceState[Any], lifetime: Lifetime) -> None:
    """Let the next load read the lifetime anew. Changes that wait for a flush stay."""
    state._expire_attributes(
        state.dict, [key for key in lifetime.attributes if key not in state.committed_state]
    )


def _drop_if_gone(session: Session, state: InstanceState[Any]) -> None:
    """Take an object out of the session whose row is gone and whose key ``state`` has."""
    mapper = state.mapper
    if lifetime_of(mapper) is None:
        return
    key = state.key or mapper._identity_key_from_state(state)
    known = session.identity_map.get(key)
    if known is None or known is state.obj():
        return
    known_state: Any = known._sa_instance_state
    lifetime = lifetime_of(known_state.mapper)
    if (
        lifetime is not None
        and _in_doubt(session, known_state, lifetime)
        and session.get(mapper.class_, key[1]) is None
    ):
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
