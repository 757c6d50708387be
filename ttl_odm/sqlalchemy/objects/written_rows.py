"""The rows that a flush writes: whether they are still its objects', and how many go at once."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sqlalchemy.orm.base import NO_VALUE

from ttl_odm.core.expiry import EARLIEST
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.ends import MARGIN, NO_NOTE, known_of, look_at, to_check
from ttl_odm.sqlalchemy.objects.lifetime import lifetime_of
from ttl_odm.sqlalchemy.policy.parameters import KEEP_LAST_MODIFIED
from ttl_odm.sqlalchemy.time.clock import monotonic, sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlalchemy import Connection
    from sqlalchemy.orm import Mapper

    from ttl_odm.sqlalchemy.compat import State
    from ttl_odm.sqlalchemy.objects.ends import Key, Seen
    from ttl_odm.sqlalchemy.objects.lifetime import Lifetime
    from ttl_odm.sqlalchemy.policy.binding import Binding

    Written = tuple[Any, Connection]
    """An object's state (or None), and where its row is written."""

R = TypeVar("R")


def checked(
    binding: Binding,
    mapper: Mapper[Any],
    records: list[R],
    verb: str,
    written: Callable[[R], Written],
) -> Iterator[list[R]]:
    """Yield what a flush writes in runs; `ExpiredError` if an object's key may be another row's.

    Rows whose end is far are known to be the same. The others are looked at, and locked, just
    before their run is written: earlier, they would be locked before rows that SQLAlchemy writes
    first, and two flushes of the same rows could deadlock.
    """
    near = list(_near(map(written, records)))
    if not any(near):  # as almost always
        yield records
        return
    runs = groupby(zip(records, near, strict=True), key=lambda pair: pair[1] and pair[1].connection)
    for connection, pairs in runs:
        run = list(pairs)
        if connection is not None:
            states = {row.key: (row.state, row.seen) for _, row in run if row is not None}
            look_at(connection, states, binding, mapper, verb)
        yield [record for record, _ in run]


class _Near(NamedTuple):
    """An object that is written, and whose end may have come by then."""

    connection: Connection
    key: Key
    state: State
    seen: Seen


def _near(records: Iterable[Written]) -> Iterator[_Near | None]:
    """Each object of these whose end is near, or None.

    What is known of those that keep their stamps is noted, since objects forget them.
    """
    far: dict[object, tuple[Lifetime, datetime, float] | None] = {}
    for state, connection in records:
        if state is None or state.key is None:
            yield None
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
                yield None
                continue
        seen = to_check(state, dialect)
        is_near = seen is not None and seen.may_be_over(dialect, MARGIN)
        yield _Near(connection, tuple(state.key[1]), state, seen) if is_near and seen else None


def _far(mapped: Mapper[Any], connection: Connection) -> tuple[Lifetime, datetime, float] | None:
    """What a class's rows without a ttl of their own were stamped after, if their end is far.

    That is an instant of the database's, and one of a note's; None where only `known_of` can tell.
    """
    lifetime, sample = lifetime_of(mapped), sample_of(connection.dialect)
    if lifetime is None:
        return None
    if not lifetime.binding.source.is_known:
        lifetime.binding.source.see(connection)  # for what `known_of` is asked, too
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
