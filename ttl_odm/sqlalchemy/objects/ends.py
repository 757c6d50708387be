"""What a session knows of the ends of the rows that it has in memory.

A key whose row has expired is free, so the row that has it later may be another one. Memory can't
tell them apart; but until the end of an object, as it was loaded, no other row can have its key.
Once the end may have come, the object is *over*: a row that is loaded for its key counts as another
row, and a write needs proof that the row is still the same. Only its stamp gives that: a row that
others renewed and one that was inserted again look alike.

A flush lets objects forget the stamp that it has written by the server's clock. A `Seen` takes its
place until the stamp is loaded.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm.base import NO_VALUE
from sqlalchemy.util import EMPTY_DICT

from ttl_odm.core import expiry
from ttl_odm.core.expiry import EARLIEST
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.lifetime import lifetime_of
from ttl_odm.sqlalchemy.policy.predicate import KEEP_LAST_MODIFIED
from ttl_odm.sqlalchemy.purge.errors import ExpiredError
from ttl_odm.sqlalchemy.purge.statements import chunks, is_one_of
from ttl_odm.sqlalchemy.time.clock import clock_of, monotonic, sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Select
    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import Mapper

    from ttl_odm.core import Policy
    from ttl_odm.sqlalchemy.compat import State
    from ttl_odm.sqlalchemy.objects.lifetime import Lifetime
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.time.clock import Sample

    Key = tuple[Any, ...]
    Note = tuple["Seen | float | None", object]
    Written = tuple[Any, Connection]
    """An object's state (or None), and the connection that writes its row."""

R = TypeVar("R")

MARGIN: Final = 5
"""Seconds before its end from which a row must be read to know that it is the same.

Between that and the write a statement may wait for a lock: on SQLite for so long by default.
"""


class Seen(NamedTuple):
    """The end of an object's row, and the row's stamp, as a session has loaded or written them.

    Attributes:
        end: The end (aware, UTC); None for never.
        stamp: The value of the attribute; if it isn't exact, the latest instant it may be.
        is_exact: Whether the stamp is known exactly.
    """

    end: datetime | None
    stamp: Any
    is_exact: bool = True

    def may_be_over(self, dialect: Dialect, margin: int = 0) -> bool:
        """Return whether the end may have come, by an upper bound of the database's clock."""
        if self.end is None:
            return False
        sample = sample_of(dialect)
        # Without a sample (an unpickled object) nothing is known.
        return sample is None or self.end - timedelta(seconds=margin) <= sample.now()

    def is_of(self, stamp: object, lifetime: Lifetime) -> bool:
        """Return whether a row with this stamp is the one that was seen."""
        if self.is_exact:
            return bool(stamp == self.stamp)
        instant = expiry.instant_of(lifetime.default.policy, stamp)
        return instant is not None and bool(instant <= self.stamp)


NO_NOTE: Final[Note] = (None, None)
"""A flush's note about a row that it has written, and whose stamp isn't in memory: a `Note`.

It is kept in the object's state, as `ttl_odm_note`: a `Seen`, or the latest instant (by
`monotonic`) at which the server may have stamped the row; and the `runid` of the state, which
changes as soon as the object, or an attribute of it, is loaded.
"""


def _stored_values(state: State) -> Mapping[str, Any]:
    """Return the attributes in memory as they are stored, without changes that await a flush."""
    stored = state.dict
    return {**stored, **state.committed_state} if state.committed_state else stored


def held_by(state: State) -> set[str]:
    """Return the attributes that an object has in memory."""
    return set(state.manager) & state.dict.keys()


def seen_of(state: State, lifetime: Lifetime, dialect: Dialect) -> Seen | None:
    """Return what memory has of an object's end; None if that isn't enough to determine it."""
    stored = _stored_values(state)
    for key in lifetime.attributes:
        if stored.get(key, NO_VALUE) is NO_VALUE:
            return None
    if not lifetime.attributes:
        return None
    policy = None
    if not lifetime.binding.source.is_known:
        policy = lifetime.binding.source.policy_on(dialect, lifetime.scope(stored))
        if policy is None:
            return None
    stamp = stored[lifetime.stamp]
    if lifetime.binding.is_adopted:
        readable = _is_readable(lifetime, stored, dialect)
        end_by = policy or lifetime.default.policy
        return Seen(lifetime.end(stored, end_by), stamp) if readable else None
    if not isinstance(stamp, datetime):
        return None
    # A faster `Lifetime.end()`: this runs for every object that is found in memory.
    own = None if lifetime.own is None else stored[lifetime.own]
    if own is not None:
        own = expiry.own_ttl(lifetime.binding.policy, own)  # type: ignore[arg-type]
    default = lifetime.default() if policy is None else policy.default
    seconds = expiry.effective_ttl(default, own)
    return Seen(None if seconds is None else stamp + timedelta(seconds=seconds), stamp)


def known_of(state: State, dialect: Dialect) -> Seen | None:
    """Return what a session knows of an object's end, whether loaded or written."""
    lifetime = lifetime_of(state.mapper)
    if lifetime is None:
        return None
    return seen_of(state, lifetime, dialect) or written_of(state, lifetime, dialect)


def _seen_before_write(state: State, dialect: Dialect) -> Seen | None:
    """Return what is known of an object's end, to compare its row with before a write.

    If Python doesn't know the default, and the transaction is too old to tell its current value,
    any end may have come.
    """
    seen, lifetime = known_of(state, dialect), lifetime_of(state.mapper)
    if seen is not None or lifetime is None or lifetime.binding.source.is_known:
        return seen
    stamp = _stored_values(state).get(lifetime.stamp, NO_VALUE)
    if stamp is not NO_VALUE:
        return Seen(EARLIEST, stamp)
    noted, sample = _noted(state), sample_of(dialect)
    if not isinstance(noted, float) or sample is None:
        return None
    return Seen(EARLIEST, _latest_stamp(sample.at(noted), lifetime), is_exact=False)


def written_of(state: State, lifetime: Lifetime, dialect: Dialect) -> Seen | None:
    """Return a flush's note on an object that was not loaded since, as a `Seen`."""
    known = _noted(state)
    if not lifetime.attributes or known is None:
        return None
    if isinstance(known, Seen):
        return known
    sample = sample_of(dialect)
    if sample is None:
        return None
    latest = sample.at(known)
    values = {**_stored_values(state), lifetime.stamp: latest - timedelta(seconds=MARGIN)}
    rest = [values.get(key, NO_VALUE) for key in lifetime.attributes]
    # A ttl may be SQL, or may not be in memory.
    if any(value is NO_VALUE or isinstance(value, ColumnElement) for value in rest):
        return None
    policy: Policy | None = lifetime.default.policy
    if not lifetime.binding.source.is_known:
        policy = lifetime.binding.source.policy_on(dialect, lifetime.scope(values))
    if policy is None:
        return None
    return Seen(lifetime.end(values, policy), _latest_stamp(latest, lifetime), is_exact=False)


def _noted(state: State) -> Seen | float | None:
    """Return a flush's note on an object, unless it was loaded since."""
    known, runid = getattr(state, "ttl_odm_note", NO_NOTE)
    return known if runid == state.runid else None


def _latest_stamp(latest: datetime, lifetime: Lifetime) -> datetime:
    """Return the latest stamp that a column can store for an instant."""
    instants = lifetime.binding.instants
    return latest if instants.native else latest + timedelta(seconds=instants.coarseness)


def expired_error(
    state: State,
    verb: str,
    fix: str = "Reload it (session.refresh()) before writing.",
) -> ExpiredError:
    """Return the error for an object that is over, and whose key may be another row's."""
    model, key = state.class_.__name__, state.key[1] if state.key else ()
    name = key[0] if len(key) == 1 else key
    return ExpiredError(
        f"{model} {name!r} can't be {verb}: the row that this session loaded has expired. The row "
        "that has its key now is either a new row or was renewed elsewhere; the two can't be "
        f"told apart. {fix}",
        model=model,
        key=name,
    )


def rows_of_keys(
    connection: Connection,
    rows: Select[Any],
    columns: Sequence[ColumnElement[Any]],
    keys: Collection[Key],
) -> Iterator[tuple[Key, Sequence[Any]]]:
    """Yield those of a SELECT's rows that have one of some keys, each with the key as it was given.

    The SELECT begins with the columns of the key. Their types may return another value than they
    were given (a TypeDecorator that makes text lower-case), so a row whose key isn't among these is
    read once more, by each of the keys that are left.
    """
    left, strays, width = dict.fromkeys(keys), False, len(columns)
    for row in connection.execute(rows.where(is_one_of(columns, keys))).all():
        key = tuple(row[:width])
        if key in left:
            del left[key]
            yield key, row
        else:
            strays = True
    for key in left if strays else ():
        own = connection.execute(rows.where(is_one_of(columns, [key]))).first()
        if own is not None:
            yield key, own


def _check_rows(
    connection: Connection,
    states: Mapping[Key, tuple[State, Seen]],
    binding: Binding,
    mapper: Mapper[Any],
    verb: str,
) -> None:
    """Lock the rows of objects that may be over, or raise `ExpiredError` if one is another row."""
    columns = compat.identity_columns(mapper, binding.table)
    statement = select(*columns, binding.last_modified)
    if clock_of(connection.dialect).locks_rows:
        # In the order in which a flush writes them.
        statement = statement.order_by(*columns).with_for_update(key_share=verb == "updated")
    for key, (*_, stamp) in rows_of_keys(connection, statement, columns, states):
        state, seen = states[key]
        lifetime = lifetime_of(state.mapper)
        if lifetime is None or seen.is_of(stamp, lifetime):
            continue
        # The clock is read after the query: an object that isn't over now wasn't over then, so
        # its row is the same.
        if seen.may_be_over(connection.dialect):
            raise expired_error(state, verb)


_READ: Final = (date, int, float, Decimal, str)


def _is_readable(lifetime: Lifetime, stored: Mapping[str, object], dialect: Dialect) -> bool:
    """Return whether Python understands the values of columns that aren't ours."""
    clock, limit = clock_of(dialect), lifetime.binding.max_lifetime
    columns = [(lifetime.stamp, lifetime.binding.instants)]
    if limit is not None and lifetime.created is not None:
        columns.append((lifetime.created, limit.instants))
    return all(
        (stored[key] is None or isinstance(stored[key], _READ)) and not instants.on(clock).shifts
        for key, instants in columns
    )


def checked(
    binding: Binding,
    mapper: Mapper[Any],
    records: list[R],
    verb: str,
    written: Callable[[R], Written],
) -> Iterable[list[R]]:
    """Return what a flush writes, in runs; `ExpiredError` if an object's key may be another row's.

    Rows whose end is far are known to be the same. The others are read and locked just before their
    run is written: earlier, they would be locked before rows that SQLAlchemy writes first, and two
    flushes of the same rows could deadlock.
    """
    near = _near(map(written, records))
    # Nearly always none is, and a generator would take longer than this answer.
    return _checked_runs(binding, mapper, records, verb, near) if near else (records,)


def _checked_runs(
    binding: Binding,
    mapper: Mapper[Any],
    records: list[R],
    verb: str,
    near: Mapping[int, _Near],
) -> Iterator[list[R]]:
    """Yield runs of records, each once the rows in it whose ends are near have been locked."""
    pairs = [(record, near.get(index)) for index, record in enumerate(records)]
    for connection, group in groupby(pairs, key=lambda pair: pair[1] and pair[1].connection):
        run = list(group)
        if connection is None:
            yield [record for record, _ in run]
            continue
        for some in chunks(run):
            states = {row.key: (row.state, row.seen) for _, row in some if row is not None}
            _check_rows(connection, states, binding, mapper, verb)
            yield [record for record, _ in some]


class _Near(NamedTuple):
    """An object that is written, and whose end may have come by then."""

    connection: Connection
    key: Key
    state: State
    seen: Seen


def _near(records: Iterable[Written]) -> Mapping[int, _Near]:
    """Return the objects whose end is near, by their places among the records.

    For objects that keep their stamps, what is known is noted, since objects forget them.
    """
    near: dict[int, _Near] = {}
    mapper = connection = far = keeps_stamps = None
    for index, (state, where) in enumerate(records):
        if state is None or state.key is None:
            continue
        mapped = state.manager.mapper
        if mapped is not mapper or where is not connection:
            mapper, connection = mapped, where
            far = _far(mapped, where)
            keeps_stamps = compat.options_of(where).get(KEEP_LAST_MODIFIED)
        if keeps_stamps:
            state.ttl_odm_note = known_of(state, where.dialect), state.runid
        if far is not None:  # for most objects, this suffices
            row = state.obj()
            stored, values = state.committed_state, EMPTY_DICT if row is None else row.__dict__
            stamp = stored.get(far.stamp, values.get(far.stamp))
            if stamp is None or stamp is NO_VALUE:  # as for a row that is touched again
                at, runid = getattr(state, "ttl_odm_note", NO_NOTE)
                is_far = isinstance(at, float) and runid == state.runid and at > far.noted
            else:
                is_far = stamp.__class__ is datetime and stamp > far.stamped
            if is_far and stored.get(far.own, values.get(far.own)) is None:
                continue
        seen = _seen_before_write(state, where.dialect)
        if seen is not None and seen.may_be_over(where.dialect, MARGIN):
            near[index] = _Near(where, tuple(state.key[1]), state, seen)
    return near


_FAR: Final = "ttl_odm_far"
"""The name under which a mapper remembers a `_Far`."""

_SLACK: Final = 1
"""Seconds for which a `_Far` is valid: computing an instant costs as much as judging an object."""


class _Far(NamedTuple):
    """The stamp from which on the end of a class's row is far, if the row has no ttl of its own.

    It is an instant of the database (`stamped`), or one of a note (`noted`). Both depend on the
    fields before them, which are compared each time, and are late by up to `_SLACK`: then a few
    more rows than necessary are examined.
    """

    lifetime: Lifetime
    sample: Sample
    life: int | None
    until: float
    stamped: datetime
    noted: float
    stamp: str
    own: str | None

    @classmethod
    def of(cls, lifetime: Lifetime, sample: Sample, life: int | None) -> _Far:
        """Return one for a life that rows inherit; with a life of None, rows have no end."""
        until = monotonic() + _SLACK
        moment = -inf if life is None else until - life + MARGIN
        stamped = EARLIEST if life is None else sample.at(moment)
        names = lifetime.stamp, lifetime.own
        return cls(lifetime, sample, life, until, stamped, moment + MARGIN, *names)


def _far(mapped: Mapper[Any], connection: Connection) -> _Far | None:
    """Return the stamps from which on an end is far; None if only `known_of` can determine it."""
    lifetime, sample = lifetime_of(mapped), sample_of(connection.dialect)
    if lifetime is None:
        return None
    binding, default = lifetime.binding, lifetime.default
    if not binding.source.is_known:
        # `known_of` needs it, too.
        binding.source.see(connection, connection.get_execution_options())
        return None
    if sample is None or binding.is_adopted:
        return None
    if getattr(default.owner, "__ttl__", None) is not default.declared:  # as `read` asks, uncalled
        default.read()
    life, memo = default.lifetime.inherited_life, compat.memo_of(mapped)
    far: _Far | None = memo.get(_FAR)
    if (
        far is None
        or far.lifetime is not lifetime
        or far.sample is not sample
        or far.life != life
        or monotonic() >= far.until
    ):
        far = memo[_FAR] = _Far.of(lifetime, sample, life)
    return far
