"""The identity map never serves an expired object, nor an old row's values beside a new row's.

``session.get()`` and lazy many-to-one loads answer from memory if they can. An object there is *in
doubt* once its end of life, as it was loaded, may have come by the upper bound of the database's
clock that `ttl_odm.sqlalchemy.time.clock` keeps. Only then does the lookup miss: SQLAlchemy asks
the database, whose predicate decides. Rows that are certainly alive cost no query.

``merge()`` and a flush of a new object look into the identity map on their own. If the row of an
object there is gone, the object is removed first, so that the new one is an INSERT. A flush does it
once more when it is about to write: a new object may have got its key from its parent meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.util import EMPTY_DICT

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.ends import expired_error, held_by, known_of, seen_of
from ttl_odm.sqlalchemy.objects.lifetime import has_rule, lifetime_of
from ttl_odm.sqlalchemy.policy.predicate import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.time.clock import dialect_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Select
    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import Mapper, Session, UOWTransaction

    from ttl_odm.sqlalchemy.compat import Handler, State
    from ttl_odm.sqlalchemy.objects.lifetime import Lifetime


def live_lookups(lookup: Handler) -> Handler:
    """Let the session find no object in memory that may have expired."""

    def live_lookup(session: Session, mapper: Mapper[Any], *args: object, **kw: Any) -> object:
        row = lookup(session, mapper, *args, **kw)
        if row is None:
            return row
        lifetime = lifetime_of(mapper)
        is_gated = lifetime is not None or has_rule(mapper)
        if not is_gated or not isinstance(row, mapper.base_mapper.class_):
            return row
        if kw.get("execution_options", EMPTY_DICT).get(INCLUDE_EXPIRED):
            return row
        if lifetime is None:  # a rule: only the database knows the end
            return row if compat.flushes_from_memory(session, kw.get("passive")) else None
        state = instance_state(row)
        if state.mapper is not mapper:  # a subclass may have a default of its own
            lifetime = lifetime_of(state.mapper) or lifetime
        return None if _in_doubt(session, state, lifetime) else row

    return live_lookup


def live_merges(merge: Handler) -> Handler:
    """Let ``merge()`` insert a new row for an object whose row is gone."""

    def live_merge(session: Session, state: State, *args: object, **kw: object) -> object:
        mapper = state.mapper
        if kw.get("load", True) and (lifetime_of(mapper) is not None or has_rule(mapper)):
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
        key: object,
        *,
        refresh_state: State | None = None,
        only_load_props: Collection[str] | None = None,
        **kw: object,
    ) -> object:
        if refresh_state is not None and refresh_state.key is not None and only_load_props:
            mapper = refresh_state.mapper
            lifetime = lifetime_of(mapper)
            if lifetime is not None and _is_over(
                refresh_state, dialect_of(session, refresh_state.obj())
            ):
                held = held_by(refresh_state).difference(only_load_props)
                if held and refresh_state.modified:
                    raise expired_error(refresh_state, "updated")
                # SQLAlchemy's statement may select only the columns that it asked for.
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


def whole_updates(apply: Handler) -> Handler:
    """Let a bulk UPDATE expire all attributes of an object that is over and whose key it updates.

    Otherwise it would have values of two rows, and no end that would show this to a flush.
    """

    def live_apply(cls: type, session: Session, *arguments: Any) -> object:
        _options, _statement, _parameters, objects, *_ = arguments
        for obj, state, _ in objects:
            if lifetime_of(state.mapper) is not None and _is_over(state, dialect_of(session, obj)):
                if state.modified:
                    raise expired_error(state, "updated")
                compat.expire(state, held_by(state))
        return apply(cls, session, *arguments)

    return live_apply


def release_key(uow: UOWTransaction, new: State, known: object, key: Any) -> None:
    """Let a flush insert a new object with the identity key of a known one whose row is gone.

    SQLAlchemy would make an UPDATE of the two if the known one is deleted.

    Raises:
        ExpiredError: The known object has changes, or its row was over and another one, which
            lives, has its key.
    """
    session, state = uow.session, instance_state(known)
    if not _may_be_gone(session, state):
        return
    dialect = dialect_of(session, known)
    is_deleted, was_over = state in uow.states and uow.states[state][0], _is_over(state, dialect)
    if session.get(new.mapper.class_, key[1], identity_token=key[2]) is None:
        if state.modified and not is_deleted:
            raise expired_error(state, "updated")
        compat.take_as_deleted(uow, state)
    elif was_over and is_deleted and not _is_over(state, dialect):
        raise expired_error(state, "deleted")


def drop_if_gone(session: Session, known: object, cls: type, key: Any) -> None:
    """Remove an object from a session if its row is gone, so that a new object can have its key."""
    state = instance_state(known)
    if not _may_be_gone(session, state):
        return
    dialect = dialect_of(session, known)
    was_over = _is_over(state, dialect)
    if session.get(cls, key[1], identity_token=key[2]) is None:
        # Of followers, memory knows no ends.
        if state.modified and (was_over or lifetime_of(state.mapper) is None):
            raise expired_error(state, "updated")
        session.expunge(known)
    elif was_over and known in session.deleted and not _is_over(state, dialect):
        raise expired_error(state, "deleted")


def _may_be_gone(session: Session, state: State) -> bool:
    """Return whether only the database can tell that an object is live."""
    lifetime = lifetime_of(state.mapper)
    if lifetime is None:
        return has_rule(state.mapper)
    return _in_doubt(session, state, lifetime)


def _in_doubt(session: Session, state: State, lifetime: Lifetime) -> bool:
    """Return whether only the database can tell that an object is live."""
    dialect = dialect_of(session, state.obj())
    seen = seen_of(state, lifetime, dialect)
    return seen is None or seen.may_be_over(dialect)


def _is_over(state: State, dialect: Dialect) -> bool:
    """Return whether the row of an object may have ended since it was seen."""
    seen = known_of(state, dialect)
    return seen is not None and seen.may_be_over(dialect)
