"""Rows that are loaded for objects in memory: an old row's values never stay under a new row's key.

SQLAlchemy leaves an object as it is when a row is loaded for it. So each class with a policy has an
additional property (`Arrivals`), which SQLAlchemy calls for objects that were in memory before. If
such an object is over by then, it is loaded completely from the row, which may be a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import CursorResult
from sqlalchemy.orm.base import NO_VALUE
from sqlalchemy.util import EMPTY_DICT

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.objects.ends import expired_error, held_by, seen_of, written_of
from ttl_odm.sqlalchemy.objects.lifetime import lifetime_of
from ttl_odm.sqlalchemy.policy.bindings import root_binding_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import Mapper, QueryContext
    from sqlalchemy.orm.path_registry import PathRegistry

    from ttl_odm.sqlalchemy.compat import Handler, State
    from ttl_odm.sqlalchemy.objects.lifetime import Lifetime

    Receiver = tuple[str, Callable[..., None]]
    Populators = dict[str, list[Receiver]]
    Rows = Sequence[tuple[object, ...]]


def receiving(properties: Callable[[Mapper[Any]], frozenset[object]]) -> Handler:
    """Let mappers with a policy have `Arrivals` among their properties when they load rows."""

    def with_arrivals(mapper: Mapper[Any]) -> object:
        own = properties(mapper)
        return own if root_binding_of(mapper.local_table) is None else own | {_ARRIVALS}

    return with_arrivals


class Arrivals:
    """A row that is loaded for an object which was in memory before.

    To SQLAlchemy it is one more property of a class, with nothing to select. A function that is
    registered as "eager" is called only for objects that SQLAlchemy would leave as they are.
    """

    def create_row_processor(
        self,
        context: QueryContext,
        _entity: object,
        path: PathRegistry,
        mapper: Mapper[Any],
        result: Any,
        _adapter: object,
        populators: Populators,
    ) -> None:
        """Called by SQLAlchemy when a statement has run, before its rows are read."""
        objects = compat.objects_of(context.session.identity_map)
        # Most reads by key end here. A subclass is processed later, when there are objects.
        if context.populate_existing or not (objects or mapper.polymorphic_on is not None):
            return
        # Stored on the result to avoid a reference cycle.
        known: dict[object, _Doubts | None] = vars(result).setdefault("ttl_odm_doubts", {})
        # For a subclass, this is called at its first row.
        name = compat.identity_class(mapper), path.path
        if name not in known:
            # Objects that are loaded while the statement runs are no older than its rows.
            lookup = compat.lookup_of(context, mapper, path) if objects else None
            # For a concrete subclass, this is called as for a second class of the same rows.
            known[name] = lookup and _Doubts(lookup, mapper.inherits is not None, [])
        doubts = known[name]
        lifetime = None if doubts is None else lifetime_of(mapper)
        if doubts is None or lifetime is None or not lifetime.attributes:
            return
        stamp_of = dict(populators["quick"]).get(lifetime.stamp)
        arrival = _Arrival(context, mapper, lifetime, result.dialect, populators, stamp_of)
        doubts.arrivals.append(arrival)
        if doubts.are_open:
            populators["eager"].append(("ttl_odm", arrival.receive))
        if result.__class__ is CursorResult:
            result.__class__ = _JudgedResult


_ARRIVALS: Final = Arrivals()


@dataclass(slots=True)
class _Doubts:
    """Which rows may differ from those that the objects in memory were loaded from.

    A row with the stamp that its object has is the same. Stamps are compared for many rows at once,
    and classes receive only the other rows: a function that SQLAlchemy calls for each row makes a
    load of objects that are in memory slower by half.
    """

    lookup: compat.Lookup
    are_open: bool
    arrivals: list[_Arrival]

    def judge(self, rows: Rows) -> Iterable[int]:
        """Return the indexes of doubtful rows, before SQLAlchemy makes objects of the rows."""
        if self.are_open:
            self.switch(is_on=False)
        arrival = self.arrivals[0]
        stamp, stamp_of = arrival.lifetime.stamp, arrival.stamp_of
        class_, key_of, token, find = self.lookup
        states = [*map(find, zip(repeat(class_), map(key_of, rows), repeat(token)))]
        if stamp_of is None:  # not among the columns
            return [index for index, state in enumerate(states) if state is not None]
        try:
            known = [state and state.obj().__dict__.get(stamp) for state in states]
        except AttributeError:  # one of the objects has been garbage-collected
            known = [getattr(s and s.obj(), "__dict__", EMPTY_DICT).get(stamp) for s in states]
        stamps = [*map(stamp_of, rows)]
        if known == stamps:
            return ()
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


class _JudgedResult(CursorResult[Any]):
    """A result whose rows are judged, many at a time, before the ORM makes objects of them."""

    __slots__ = ()

    def fetchmany(self, size: int | None = None) -> Any:
        """Judge a portion of rows that the ORM reads."""
        return self._judged(super().fetchmany(size))

    def _raw_all_tuples(self) -> Rows:
        return self._judged(super()._raw_all_tuples())

    def _raw_all_rows(self) -> Rows:  # the same in SQLAlchemy 2.0
        return self._judged(super()._raw_all_rows())  # type: ignore[misc]

    def _judged(self, rows: Rows) -> Rows:
        judges: list[_Doubts] = []
        indexes: set[int] = set()
        for doubts in vars(self)["ttl_odm_doubts"].values():
            if doubts is not None and doubts.arrivals:
                judges.append(doubts)
                indexes.update(doubts.judge(rows))
        if not indexes:
            return rows

        def in_turn() -> Iterator[tuple[object, ...]]:
            for index, row in enumerate(rows):
                is_doubtful = index in indexes
                for doubts in judges if is_doubtful else ():
                    doubts.switch(is_on=True)
                yield row
                for doubts in judges if is_doubtful else ():
                    doubts.switch(is_on=False)

        return in_turn()  # type: ignore[return-value]


class _Arrival(NamedTuple):
    """What a class does with doubtful rows."""

    context: QueryContext
    mapper: Mapper[Any]
    lifetime: Lifetime
    dialect: Dialect
    populators: Populators
    stamp_of: Callable[[object], object] | None

    def receive(self, state: State, values: Mapping[str, object], row: object) -> None:
        """Load an object in memory from the row, if the row may be another one."""
        if state.expired:
            return  # nothing was in memory, as after a commit
        lifetime, mapper = self.lifetime, self.mapper
        stamp = NO_VALUE if self.stamp_of is None else self.stamp_of(row)
        # Attributes that SQLAlchemy has filled were not in memory before.
        if lifetime.stamp not in self.context.partials[state]:  # type: ignore[attr-defined]
            if self.stamp_of is not None and values.get(lifetime.stamp) == stamp:
                return
            seen = seen_of(state, lifetime, self.dialect)
        else:
            seen = written_of(state, lifetime, self.dialect)
            if seen is None and lifetime.stamp in state.dict and not state.modified:
                held = held_by(state).intersection(state.mapper.column_attrs.keys())
                compat.populate(self.context, state, row, self.populators, held)
        if seen is None or not seen.may_be_over(self.dialect):
            return
        if stamp is not NO_VALUE and seen.is_of(stamp, lifetime):
            return
        if state.modified:
            raise expired_error(state, "updated")
        if mapper is not state.mapper and mapper.polymorphic_on is not None:
            fix = f"It is a {mapper.class_.__name__} now: expunge the old object from the session."
            raise expired_error(state, "loaded", fix)
        compat.populate(self.context, state, row, self.populators, held_by(state))
