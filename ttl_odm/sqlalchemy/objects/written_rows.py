"""The rows that a flush writes: whether they are still its objects', and how many go at once."""

from __future__ import annotations

from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm.base import NO_VALUE

from ttl_odm.core.expiry import EARLIEST
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.ends import MARGIN, NO_NOTE, known_of, look_at, to_check
from ttl_odm.sqlalchemy.objects.lifetime import lifetime_of
from ttl_odm.sqlalchemy.policy.known import see_to
from ttl_odm.sqlalchemy.policy.parameters import KEEP_LAST_MODIFIED
from ttl_odm.sqlalchemy.time.clock import monotonic, sample_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection
    from sqlalchemy.orm import Mapper

    from ttl_odm.sqlalchemy.compat import State
    from ttl_odm.sqlalchemy.objects.ends import Key, Seen
    from ttl_odm.sqlalchemy.objects.lifetime import Lifetime
    from ttl_odm.sqlalchemy.policy.binding import Binding

    Written = tuple[Any, Connection]
    """An object's state (or None), and where its row is written."""


def check_same(
    binding: Binding, mapper: Mapper[Any], records: Iterable[Written], verb: str
) -> None:
    """Raise `ExpiredError` if the key of an object may be another row's by now.

    Rows whose end is far are known to be the same. The others are looked at, and locked until the
    write. What is known of those that keep their stamps is noted, since objects forget them.
    """
    near: dict[Connection, dict[Key, tuple[State, Seen]]] = {}
    far: dict[object, tuple[Lifetime, datetime, float] | None] = {}
    for state, connection in records:
        if state is None or state.key is None:
            continue
        dialect, mapped = connection.dialect, state.manager.mapper
        name = mapped, dialect
        if name not in far:
            far[name] = _far(mapped, connection)
        if compat.options_of(connection).get(KEEP_LAST_MODIFIED):
            state.ttl_odm_note = known_of(state, dialect), state.runid
        known = far[name]
        if known is not None:  # for most objects, this is all that is asked
            lifetime, stamped, noted = known
            row = state.obj()
            stored, values = state.committed_state, {} if row is None else row.__dict__
            stamp: Any = stored.get(lifetime.stamp, values.get(lifetime.stamp))
            at, runid = getattr(state, "ttl_odm_note", NO_NOTE)
            is_far = (
                isinstance(at, float) and runid == state.runid and at > noted
                if stamp is None or stamp is NO_VALUE  # as of a row that is touched once more
                else stamp.__class__ is datetime and stamp > stamped
            )
            own: Any = lifetime.own
            if is_far and stored.get(own, values.get(own)) is None:
                continue
        seen = to_check(state, dialect)
        if seen is not None and seen.may_be_over(dialect, MARGIN):
            near.setdefault(connection, {})[tuple(state.key[1])] = state, seen
    for connection, states in near.items():
        look_at(connection, states, binding, mapper, verb)


def _far(mapped: Mapper[Any], connection: Connection) -> tuple[Lifetime, datetime, float] | None:
    """What a class's rows without a ttl of their own were stamped after, if their end is far.

    That is an instant of the database's, and one of a note's; None where only `known_of` can tell.
    """
    lifetime, sample = lifetime_of(mapped), sample_of(connection.dialect)
    if lifetime is None:
        return None
    if lifetime.binding.stored is not None:
        see_to(connection, lifetime.binding)  # for what `known_of` is asked, too
        return None
    if sample is None or lifetime.binding.is_adopted:
        return None
    lifetime.default.read()
    life = lifetime.default.lifetime.inherited_life
    if life is None:
        return lifetime, EARLIEST, -inf
    moment = monotonic() - life + MARGIN
    return lifetime, sample.at(moment), moment + MARGIN


def countable(records: list[Any], connection_at: int = compat.CONNECTION) -> list[list[Any]]:
    """What a flush writes, in batches of which the driver counts the rows."""
    if len(records) > 1 and not records[0][connection_at].dialect.supports_sane_multi_rowcount:
        return [[record] for record in records]
    return [records] if records else []
