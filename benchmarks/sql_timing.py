"""The timed comparisons inside one process: reads, identity-map hits and flushes of new rows.

Each sitting has a process of its own, this module as a program (see `benchmarks.workers`): where
Python happens to put things makes a percent. What is compared has an engine of its own each: an
engine on which a TTL table was met runs all its statements in a gated context, and a model without
TTL beside it would hide that cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, cycle, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import ScalarResult, bindparam, create_engine, select, text

from benchmarks.findings import Finding, ratio
from benchmarks.goals import BY_HAND, UNFILTERED
from benchmarks.harness import estimate, rotated, sitting
from benchmarks.sql_models import (
    ROWS,
    Item,
    ItemByHand,
    Keyed,
    KeyedByHand,
    KeyedPlain,
    Numbered,
    NumberedByHand,
    NumberedPlain,
    empty_tables,
    is_live,
    live_by_hand,
)
from benchmarks.sql_samples import flushing, reading, reading_alone
from benchmarks.workers import sample, serve, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sqlalchemy import Engine, Select
    from sqlalchemy.orm import Session

    from benchmarks.findings import Goal
    from benchmarks.harness import Round, Sample

    NewEngine = Callable[[], Engine]
    Prepare = Callable[[NewEngine], Mapping[str, Sample]]

OVER_BY_HAND = "SQLAlchemy: a read with the gate / with a hand-written WHERE"
OVER_UNFILTERED = "SQLAlchemy: a read with the gate / without any filter"
INSERTS = "SQLAlchemy: a flush that inserts rows, with TTL / without"
HITS = "SQLAlchemy: session.get() of a live object that is in memory"
NOISE = "Noise: the same read without TTL, twice"

_LIST = 100
_IN_MEMORY = 100
_STEP = 7
"""Keys are read in strides, so that one page doesn't serve all reads."""

_NEW_ROWS = (1, 10, 100)


class Comparison(NamedTuple):
    """A ratio of two operations of one group, as it will be told."""

    section: str
    what: str
    over: str
    under: str
    goal: Goal | None = None


class Cost(NamedTuple):
    """The time of one operation of a group, in microseconds, as it will be told."""

    section: str
    what: str
    of: str


@dataclass(frozen=True)
class Group:
    """Operations that take turns with each other, and what is told of them."""

    prepare: Prepare
    told: tuple[Comparison | Cost, ...]

    @property
    def names(self) -> list[str]:
        """The operations that something is told of."""
        names = [
            name
            for told in self.told
            for name in ((told.of,) if isinstance(told, Cost) else (told.over, told.under))
        ]
        return list(dict.fromkeys(names))


_LITERALLY = {"literal_binds": True}


def _reads(
    take: Callable[[Engine, Callable[[Session], Callable[[], object]]], Sample],
    finish: Callable[[Any, Any], Select[Any]],
    fetch: Callable[[Any], object],
) -> Prepare:
    """A prebuilt statement in every variant, each run with a key that changes."""

    def prepare(new_engine: NewEngine) -> Mapping[str, Sample]:
        by_hand = live_by_hand(new_engine().dialect.name)
        literally = text(f"({by_hand.compile(compile_kwargs=_LITERALLY)})")
        unfiltered = finish(select(ItemByHand), ItemByHand)

        def timed(statement: Select[Any]) -> Sample:
            keys = _keys()

            def make(session: Session) -> Callable[[], object]:
                return lambda: fetch(session.scalars(statement, {"key": next(keys)}))

            return take(new_engine(), make)

        return {
            "gate": timed(finish(select(Item), Item)),
            "expressions": timed(unfiltered.where(by_hand)),
            "literals": timed(unfiltered.where(literally)),
            "none": timed(unfiltered),
            "none again": timed(unfiltered),
        }

    return prepare


def _keys() -> Iterator[int]:
    return cycle([key for key in range(1, ROWS - 2 * _LIST, _STEP) if is_live(key)])


def _by_key(statement: Select[Any], model: Any) -> Select[Any]:
    return statement.where(model.id == bindparam("key"))


def _hundred(statement: Select[Any], model: Any) -> Select[Any]:
    return statement.where(model.id >= bindparam("key")).order_by(model.id).limit(_LIST)


def _gets(new_engine: NewEngine) -> Mapping[str, Sample]:
    """``session.get()`` of an object that is not in memory."""

    def timed(model: Any) -> Sample:
        keys = _keys()
        return reading(new_engine(), lambda session: lambda: session.get_one(model, next(keys)))

    return {"gate": timed(Item), "none": timed(ItemByHand), "none again": timed(ItemByHand)}


def _hits(new_engine: NewEngine) -> Mapping[str, Sample]:
    """``session.get()`` of an object that is in memory."""

    def timed(model: Any) -> Sample:
        def make(session: Session) -> Callable[[], object]:
            objects = session.scalars(select(model).order_by(model.id).limit(_IN_MEMORY)).all()
            session.info["held"] = objects  # the identity map itself refers weakly
            keys = cycle([item.id for item in objects])
            return lambda: session.get(model, next(keys))

        return reading(new_engine(), make)

    return {"gate": timed(Item), "none": timed(ItemByHand)}


def _flushes(rows: int) -> Prepare:
    def prepare(new_engine: NewEngine) -> Mapping[str, Sample]:
        numbers = count()

        def keyed(model: Any) -> Sample:
            def add(session: Session) -> None:
                keys = islice(numbers, rows)
                session.add_all([model(key=f"{key:030}", payload="x" * 100) for key in keys])

            return flushing(new_engine(), add)

        def numbered(model: Any) -> Sample:
            def add(session: Session) -> None:
                session.add_all([model(payload="x" * 100) for _ in range(rows)])

            return flushing(new_engine(), add)

        return {
            "keyed": keyed(Keyed),
            "keyed by hand": keyed(KeyedByHand),
            "keyed plain": keyed(KeyedPlain),
            "numbered": numbered(Numbered),
            "numbered by hand": numbered(NumberedByHand),
            "numbered plain": numbered(NumberedPlain),
        }

    return prepare


def _told_of_read(what: str) -> tuple[Comparison, ...]:
    return (
        Comparison(
            OVER_BY_HAND, f"{what}; by hand as expressions", "gate", "expressions", goal=BY_HAND
        ),
        Comparison(
            OVER_BY_HAND, f"{what}; by hand as literal SQL", "gate", "literals", goal=BY_HAND
        ),
        Comparison(OVER_UNFILTERED, what, "gate", "none", goal=UNFILTERED),
        Comparison(NOISE, what, "none again", "none"),
    )


def _told_of_flush(rows: int) -> Iterator[Comparison]:
    amount = "1 row" if rows == 1 else f"{rows} rows"
    for kind, whose in (("keyed", "its own key"), ("numbered", "the database's key")):
        what = f"{amount}, {whose}"
        yield Comparison(INSERTS, f"{what}; without the columns", kind, f"{kind} plain")
        yield Comparison(INSERTS, f"{what}; stamped by hand", kind, f"{kind} by hand")


GROUPS = (
    Group(_reads(reading, _by_key, ScalarResult.one), _told_of_read("select by key")),
    Group(
        _reads(reading_alone, _by_key, ScalarResult.one),
        _told_of_read("select by key and nothing else"),
    ),
    Group(_reads(reading, _hundred, ScalarResult.all), _told_of_read("list of 100")),
    Group(
        _gets,
        (
            Comparison(OVER_UNFILTERED, "session.get", "gate", "none", goal=UNFILTERED),
            Comparison(NOISE, "session.get", "none again", "none"),
        ),
    ),
    *(Group(_flushes(rows), tuple(_told_of_flush(rows))) for rows in _NEW_ROWS),
    Group(_hits, (Cost(HITS, "with TTL", "gate"), Cost(HITS, "without TTL", "none"))),
)


class _Operations(dict[str, "Sample"]):
    """All operations on a database, by their group's place and their name.

    A group is prepared when it is first asked for, each operation with an engine of its own.
    """

    def __init__(self, url: str) -> None:
        """None is prepared yet."""
        super().__init__()
        self._url = url

    def __missing__(self, operation: str) -> Sample:
        """Prepare the operation's group."""
        place, _, _ = operation.partition(" ")
        prepared = GROUPS[int(place)].prepare(lambda: create_engine(self._url))
        found = {f"{place} {name}": each for name, each in prepared.items()}
        self.update(found)
        return found[operation]


class Timing:
    """The timed comparisons on one database, sitting by sitting.

    Args:
        database: its name in the report.
        url: SQLAlchemy's URL of a database with the tables.
        rounds: in each sitting.
    """

    def __init__(self, database: str, url: str, rounds: int) -> None:
        """Nothing is measured yet."""
        self._database = database
        self._url = url
        self._rounds = rounds
        self._sittings: dict[Group, list[list[Round]]] = {group: [] for group in GROUPS}

    def sit(self, number: int) -> None:
        """Measure everything once, in a new process, on new connections.

        Args:
            number: how often this was done before; another engine connects first each time.
        """
        engine = create_engine(self._url)
        empty_tables(engine)
        engine.dispose()
        with worker(__name__, url=self._url) as ask:
            for place, (group, sittings) in enumerate(self._sittings.items()):
                samples = {
                    name: sample(ask, f"{place} {name}") for name in rotated(group.names, number)
                }
                sittings.append(sitting(samples, self._rounds))

    def findings(self) -> Iterator[Finding]:
        """Sum up."""
        for group, sittings in self._sittings.items():
            for told in group.told:
                yield compared(told, self._database, sittings)


def compared(told: Comparison | Cost, database: str, sittings: list[list[Round]]) -> Finding:
    """What the sittings of a group say of one comparison or cost.

    Args:
        told: which.
        database: where.
        sittings: the rounds of each sitting.
    """
    if isinstance(told, Cost):
        taken = estimate(sittings, lambda times: times[told.of] * 1e6)
        return Finding(told.section, told.what, database, "µs", taken)
    return ratio(told.section, told.what, database, sittings, told.over, told.under, told.goal)


if __name__ == "__main__":
    serve(_Operations)
