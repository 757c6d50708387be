"""The identity map never serves an expired object, nor an old row's values under a new row's key.

``session.get()`` and lazy many-to-one loads answer from memory where they can. An object there
is *in doubt* once its end of life, as it was loaded, may have come by the upper bound of the
database's clock that `ttl_odm.sqlalchemy.time.clock` keeps. Then, and only then, the lookup
misses: SQLAlchemy asks the database, whose predicate decides. Rows that are plainly alive cost
no query.

SQLAlchemy leaves an object as it is when a row comes for it. So each class with a policy has one
more thing to do with rows (`Arrivals`), which SQLAlchemy calls for objects that were in memory
before: one that is over by then gets everything from the row, which may be a new one.

``merge()`` and a flush of a new object look into the identity map on their own; an object
there whose row is gone is taken out first, so that the new one is an INSERT.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.orm.base import NO_VALUE

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.ends import expired_error, known_of, seen_of, written_of
from ttl_odm.sqlalchemy.objects.lifetime import lifetime_of
from ttl_odm.sqlalchemy.policy.parameters import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.time.clock import dialect_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sqlalchemy import Select
    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import InstanceState, Mapper, QueryContext, Session

    from ttl_odm.sqlalchemy.compat import Handler
    from ttl_odm.sqlalchemy.objects.lifetime import Lifetime

    Populators = dict[str, list[tuple[str, Callable[..., Any]]]]

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
        return None if _in_doubt(session, state, lifetime) else row

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


def whole_reloads(load: Handler) -> Handler:
    """Let no attribute of an object that is over be loaded beside its old ones."""

    def live_load(
        session: Session,
        statement: Select[Any],
        key: Any,
        *,
        refresh_state: InstanceState[Any] | None = None,
        only_load_props: Collection[str] | None = None,
        **kw: object,
    ) -> Any:
        if refresh_state is not None and refresh_state.key is not None and only_load_props:
            mapper = refresh_state.mapper
            lifetime = lifetime_of(mapper)
            if lifetime is not None and _is_over(
                refresh_state, dialect_of(session, refresh_state.obj())
            ):
                held = _held(refresh_state).difference(only_load_props)
                if held and refresh_state.modified:
                    raise expired_error(refresh_state, "updated")
                # SQLAlchemy's statement may have no more columns than it takes.
                statement, key = select(mapper), refresh_state.key
                only_load_props = {*only_load_props, *held.intersection(mapper.column_attrs.keys())}
                compat.expire(refresh_state, held)
        return load(
            session,
            statement,
            key,
            refresh_state=refresh_state,
            only_load_props=only_load_props,
            **kw,
        )

    return live_load


def drop_if_gone(session: Session, known: object, cls: type, key: Any) -> None:
    """Take an object out of a session if its row is gone and one of a class is to have its key."""
    state = instance_state(known)
    lifetime = lifetime_of(state.mapper)
    if lifetime is None or not _in_doubt(session, state, lifetime):
        return
    dialect = dialect_of(session, known)
    was_over = _is_over(state, dialect)
    if session.get(cls, key[1], identity_token=key[2]) is None:
        if state.modified and was_over:
            raise expired_error(state, "updated")
        session.expunge(known)
    elif was_over and known in session.deleted and not _is_over(state, dialect):
        raise expired_error(state, "deleted")


def arrivals_of(mapper: Mapper[Any]) -> Arrivals | None:
    """What a class does with rows that come for objects in memory; None where they have no end."""
    lifetime = lifetime_of(mapper)
    return None if lifetime is None or not lifetime.is_mapped else _ARRIVALS


class Arrivals:
    """A row that comes for an object which was in memory before.

    To SQLAlchemy it is one more property of a class, with nothing to select; what is registered as
    "eager" is called for objects that it would leave as they are, and for no others.
    """

    def create_row_processor(
        self,
        context: QueryContext,
        _entity: object,
        path: Any,
        mapper: Mapper[Any],
        result: Any,
        _adapter: object,
        populators: Populators,
    ) -> None:
        """Called by SQLAlchemy once the rows of a statement are there."""
        lifetime = lifetime_of(mapper)
        if lifetime is None or context.populate_existing:  # the policy was taken away since
            return
        # Subclasses come here when the first row is one of theirs.
        name = compat.identity_class(mapper), path.path
        doubts: dict[Any, _Doubts | None] = compat.judges_of(result)
        if name not in doubts:
            # What is loaded while the statement runs is no older than its rows.
            identities = context.session.identity_map
            lookup = compat.lookup_of(context, mapper, path) if len(identities) else None
            # A concrete subclass comes here as a second class of the same rows.
            doubts[name] = lookup and _Doubts(lookup, mapper.inherits is not None, [])
        here = doubts[name]
        if here is not None:
            stamp_of = dict(populators["quick"]).get(lifetime.stamp)
            arrival = _Arrival(context, mapper, lifetime, result.dialect, populators, stamp_of)
            here.arrivals.append(arrival)
            if here.are_open:
                populators["eager"].append(("ttl_odm", arrival.receive))


@dataclass(slots=True)
class _Doubts:
    """Which rows may be others than those that the objects in memory were loaded from.

    Those aren't that have the stamp that the object has. That is asked of many rows at once, and
    classes receive the others only: what SQLAlchemy calls for each row makes a load of objects that
    are in memory slower by half.
    """

    lookup: compat.Lookup
    are_open: bool
    arrivals: list[_Arrival]

    def judge(self, rows: Sequence[Any]) -> list[int]:
        """The indexes of doubtful rows, before SQLAlchemy makes objects of them."""
        if self.are_open:
            self.switch(is_on=False)
        first = self.arrivals[0]
        key, stamp_of = first.lifetime.stamp, first.stamp_of
        class_, key_of, token, find = self.lookup
        states = [*map(find, zip(repeat(class_), map(key_of, rows), repeat(token)))]
        known = [
            None if state is None else getattr(state.obj(), "__dict__", _NONE).get(key)
            for state in states
        ]
        if stamp_of is None:  # not among the columns
            return [index for index, state in enumerate(states) if state is not None]
        stamps = [*map(stamp_of, rows)]
        if known == stamps:
            return []
        return [
            index
            for index, state in enumerate(states)
            if state is not None and known[index] != stamps[index] and not state.expired
        ]

    def switch(self, *, is_on: bool) -> None:
        """Let classes receive the next rows, or not."""
        self.are_open = is_on
        for arrival in self.arrivals:
            eager, entry = arrival.populators["eager"], ("ttl_odm", arrival.receive)
            if is_on:
                eager.append(entry)
            else:
                eager.remove(entry)


class _Arrival(NamedTuple):
    """What a class does with doubtful rows."""

    context: QueryContext
    mapper: Mapper[Any]
    lifetime: Lifetime
    dialect: Dialect
    populators: Populators
    stamp_of: Callable[[Any], Any] | None

    def receive(self, state: InstanceState[Any], values: dict[str, Any], row: Any) -> None:
        """Let an object in memory have the row, if that may be another's."""
        if state.expired:
            return  # nothing was in memory, as after a commit
        lifetime, mapper = self.lifetime, self.mapper
        stamp = NO_VALUE if self.stamp_of is None else self.stamp_of(row)
        # What SQLAlchemy has filled was not in memory before.
        if lifetime.stamp not in self.context.partials[state]:  # type: ignore[attr-defined]
            if self.stamp_of is not None and values.get(lifetime.stamp) == stamp:
                return
            seen = seen_of(state, lifetime, self.dialect)
        else:
            seen = written_of(state, lifetime, self.dialect)
            if seen is None and lifetime.stamp in state.dict and not state.modified:
                held = _held(state).intersection(state.mapper.column_attrs.keys())
                compat.populate(self.context, state, row, self.populators, held)
        if seen is None or not seen.may_be_over(self.dialect):
            return
        if stamp is not NO_VALUE and seen.is_of(stamp, lifetime):
            return
        if state.modified:
            raise expired_error(state, "updated")
        if mapper is not state.mapper and mapper.polymorphic_on is not None:
            fix = f"It is a {mapper.class_.__name__} now: take the old one out of the session."
            raise expired_error(state, "loaded", fix)
        compat.populate(self.context, state, row, self.populators, _held(state))


_ARRIVALS: Final = Arrivals()


def _in_doubt(session: Session, state: InstanceState[Any], lifetime: Lifetime) -> bool:
    """Whether the database has to be asked to know that an object is live."""
    dialect = dialect_of(session, state.obj())
    seen = seen_of(state, lifetime, dialect)
    return seen is None or seen.may_be_over(dialect)


def _is_over(state: InstanceState[Any], dialect: Dialect) -> bool:
    """Whether the row of an object may have ended since it was seen."""
    seen = known_of(state, dialect)
    return seen is not None and seen.may_be_over(dialect)


def _held(state: InstanceState[Any]) -> set[str]:
    """The attributes that an object has in memory."""
    return set(state.manager) & state.dict.keys()
