"""What is timed on SQLAlchemy models: operations that take turns, and what is told of them.

Reads, identity-map hits, flushes of new rows, and renewals of rows. What is compared has an engine
of its own each: an engine on which a TTL table was met runs all its statements in a gated context,
and a model without TTL beside it would hide that cost. `benchmarks.sql_timing` runs these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count, cycle, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    ScalarResult,
    Update,
    bindparam,
    delete,
    event,
    select,
    text,
    update,
)

from benchmarks.goals import (
    BATCH,
    BY_HAND,
    FLUSH,
    FLUSH_ALONE,
    GET_AND_TOUCH,
    ONE_ROW,
    ONE_ROW_POSTGRES,
    RENEWAL,
    TOUCH,
    TOUCH_ALONE,
    UNFILTERED,
)
from benchmarks.sql_models import (
    ROWS,
    SEE,
    Item,
    ItemByHand,
    Keyed,
    KeyedByHand,
    KeyedPlain,
    Numbered,
    NumberedByHand,
    NumberedPlain,
    Seen,
    expired_by_hand,
    is_live,
    live_by_hand,
)
from benchmarks.sql_samples import acting, flushing, reading, reading_alone
from ttl_odm.sqlalchemy import touch
from ttl_odm.sqlalchemy.rewrite.writes import Stamp
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sqlalchemy import ColumnElement, Connection, Engine, Executable, Select
    from sqlalchemy.orm import Session

    from benchmarks.findings import Goal
    from benchmarks.harness import Sample

    NewEngine = Callable[[], Engine]
    Prepare = Callable[[NewEngine], Mapping[str, Sample]]

OVER_BY_HAND = "SQLAlchemy: a read with the gate / with a hand-written WHERE"
OVER_UNFILTERED = "SQLAlchemy: a read with the gate / without any filter"
INSERTS = "SQLAlchemy: a flush that inserts rows, with TTL / without"
RENEWALS = "SQLAlchemy: renewing a row, with TTL / without"
BASELINES = "SQLAlchemy: a flush UPDATE of a model without TTL / an UPDATE by hand"
HITS = "SQLAlchemy: session.get() of a live object that is in memory"
NOISE = "Noise: the same read without TTL, twice"

FREED: Final = "freed"
"""By hand, with what ttl_odm does for keys of expired rows."""

_LIST = 100
_IN_MEMORY = 100
_STEP = 7
"""Keys are read in strides, so that one page doesn't serve all reads."""

_NEW_ROWS = (1, 10, 100)


class Comparison(NamedTuple):
    """A ratio of two operations of one group, as it will be told.

    Attributes:
        section: the finding's.
        what: the finding's.
        over: the operation above the line.
        under: the one below it.
        goal: what the ratio should keep to.
        postgres_goal: the same on PostgreSQL, where it is another one.
        distant: whether it is measured with a longer round trip too.
    """

    section: str
    what: str
    over: str
    under: str
    goal: Goal | None = None
    postgres_goal: Goal | None = None
    distant: bool = False

    def goal_on(self, database: str) -> Goal | None:
        """The goal on a database.

        Args:
            database: its name in the report.
        """
        is_another = database == "PostgreSQL" and self.postgres_goal is not None
        return self.postgres_goal if is_another else self.goal


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
    def distant(self) -> Group:
        """The same with what is measured with a longer round trip too."""
        told = [each for each in self.told if isinstance(each, Comparison) and each.distant]
        return replace(self, told=tuple(told))

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
_ROWS_ONLY: Final = {"synchronize_session": False}
"""No object in memory is looked for, as somebody says who knows that there is none."""


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

    live, keys = live_by_hand(new_engine().dialect.name), _keys()
    statement = _by_key(select(ItemByHand), ItemByHand).where(live)

    def by_hand(session: Session) -> Callable[[], object]:
        return lambda: session.scalars(statement, {"key": next(keys)}).one()

    return {
        "gate": timed(Item),
        "by hand": reading(new_engine(), by_hand),
        "none": timed(ItemByHand),
        "none again": timed(ItemByHand),
    }


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


def _flushes(rows: int, models: Mapping[str, Any], key: str | None) -> Prepare:
    """A flush of new rows of each model, whose keys are made here if they have an attribute.

    Of one that is to be ``freed`` by hand, the flush deletes expired rows with these keys first.
    """

    def prepare(new_engine: NewEngine) -> Mapping[str, Sample]:
        numbers = count()

        def flush(name: str, model: Any) -> Sample:
            engine = new_engine()
            expired = expired_by_hand(engine.dialect.name, model) if name == FREED else None

            def add(session: Session) -> None:
                keys = islice(numbers, rows)
                session.add_all([model(payload="x" * 100, **own(number)) for number in keys])
                if expired is not None and not session.info.setdefault(FREED, False):
                    session.info[FREED] = True
                    event.listen(session, "before_flush", partial(_free, model, expired))

            return flushing(engine, add)

        def own(number: int) -> dict[str, str]:
            return {} if key is None else {key: f"{number:030}"}

        return {name: flush(name, model) for name, model in models.items()}

    return prepare


def _free(
    model: Any, expired: ColumnElement[bool], session: Session, _context: object, _instances: object
) -> None:
    """Delete the expired rows whose keys new ones have, as somebody does who has no ttl_odm."""
    keys = [row.key for row in session.new]
    session.execute(delete(model).where(model.key.in_(keys), expired), execution_options=_ROWS_ONLY)


def renewals(*, commit: bool) -> Prepare:
    """One row is written anew, after it was loaded."""

    def prepare(new_engine: NewEngine) -> Mapping[str, Sample]:
        def touched(session: Session, row: Any) -> Callable[[], object]:
            def touch() -> None:
                row.touch()
                session.flush()

            return touch

        def seen(session: Session, row: Any) -> Callable[[], object]:
            key = row.id
            return lambda: session.execute(SEE, {"key": key})

        def changed(session: Session, row: Any) -> Callable[[], object]:
            def change() -> None:
                row.amount += 1  # always another value: else the ORM would send nothing
                session.flush()

            return change

        def act(
            model: Any,
            way: Callable[[Session, Any], Callable[[], object]],
            *,
            is_guarded: bool = False,
        ) -> Sample:
            keys, engine = _keys(), new_engine()
            if is_guarded:
                _guard(engine)
            return acting(
                engine,
                lambda session: way(session, session.get_one(model, next(keys))),
                commit=commit,
            )

        return {
            "touch": act(Item, touched),
            "change": act(Item, changed),
            "change by hand": act(ItemByHand, changed),
            "guarded": act(ItemByHand, changed, is_guarded=True),
            "plain": act(Seen, changed),
            "by hand": act(Seen, seen),
        }

    return prepare


def _guard(engine: Engine) -> None:
    """Let each UPDATE of a flush find live rows only, as somebody would who has no ttl_odm."""
    live, table = live_by_hand(engine.dialect.name), ItemByHand.metadata.tables["items"]

    @lru_cache  # the ORM has one statement for all UPDATEs of the same columns
    def guarded(statement: Update) -> Update:
        return statement.where(live)

    @event.listens_for(engine, "before_execute", retval=True)
    def add_the_condition(  # pyright: ignore[reportUnusedFunction]
        _connection: Connection, statement: Executable, many: Any, one: Any, _options: Any
    ) -> tuple[Executable, Any, Any]:
        if isinstance(statement, Update) and statement.table is table:
            statement = guarded(statement)
        return statement, many, one


def touches(*, commit: bool) -> Prepare:
    """One row is written anew, without being loaded before; by hand, of the very same table."""

    def prepare(new_engine: NewEngine) -> Mapping[str, Sample]:
        dialect = new_engine().dialect
        live, table = live_by_hand(dialect.name), ItemByHand.metadata.tables["items"]
        condition = live.compile(compile_kwargs=_LITERALLY)
        by_hand = text(
            f"UPDATE items SET _ts = {clock_of(dialect).stamp} "  # noqa: S608 (no input)
            f"WHERE id = :key AND ({condition})"
        )

        def touched(session: Session, key: int) -> object:
            return session.execute(touch(Item).where(Item.id == key))

        def updated(session: Session, key: int) -> object:
            stamped = update(table).values(_ts=Stamp())
            return session.execute(stamped.where(table.c.id == key, live))

        def written(session: Session, key: int) -> object:
            return session.execute(by_hand, {"key": key})

        def act(way: Callable[[Session, int], object]) -> Sample:
            keys = _keys()

            def make(session: Session) -> Callable[[], object]:
                session.connection()
                return lambda: way(session, next(keys))

            return acting(new_engine(), make, commit=commit)

        return {"touch": act(touched), "core": act(updated), "by hand": act(written)}

    return prepare


def gets_and_touches(new_engine: NewEngine) -> Mapping[str, Sample]:
    """A row is read and written anew: by one statement where there is RETURNING, by a flush."""
    dialect = new_engine().dialect
    has_returning, live = dialect.update_returning, live_by_hand(dialect.name)

    def at_once(session: Session, key: int) -> object:
        statement = touch(Item).where(Item.id == key)
        if has_returning:
            return session.scalars(statement.returning(Item)).one()
        session.execute(statement)
        return session.get_one(Item, key)

    def by_hand(session: Session, key: int) -> object:
        renewed = update(ItemByHand).where(ItemByHand.id == key, live)
        renewed = renewed.values(last_modified=Stamp())
        if has_returning:
            return session.scalars(
                renewed.returning(ItemByHand), execution_options=_ROWS_ONLY
            ).one()
        session.execute(renewed, execution_options=_ROWS_ONLY)
        return session.get_one(ItemByHand, key)

    def one_by_one(session: Session, key: int) -> object:
        row = session.get_one(Item, key)
        row.touch()
        session.flush()
        return row

    def act(way: Callable[[Session, int], object]) -> Sample:
        keys = _keys()

        def make(session: Session) -> Callable[[], object]:
            session.connection()
            return lambda: way(session, next(keys))

        return acting(new_engine(), make)

    return {"at once": act(at_once), "by hand": act(by_hand), "one by one": act(one_by_one)}


def _told_of_read(what: str, *, distant: bool = False) -> tuple[Comparison, ...]:
    return (
        Comparison(
            OVER_BY_HAND, f"{what}; by hand as expressions", "gate", "expressions", goal=BY_HAND
        ),
        Comparison(
            OVER_BY_HAND, f"{what}; by hand as literal SQL", "gate", "literals", goal=BY_HAND
        ),
        Comparison(OVER_UNFILTERED, what, "gate", "none", goal=UNFILTERED, distant=distant),
        Comparison(
            OVER_UNFILTERED, f"{what}; a WHERE by hand", "expressions", "none", distant=distant
        ),
        Comparison(NOISE, what, "none again", "none", distant=distant),
    )


def _of_flushes(rows: int) -> Iterator[Group]:
    """New rows with keys of their own, and new rows whose keys the database makes."""
    amount = "1 row" if rows == 1 else f"{rows} rows"
    goal, postgres_goal = {1: (ONE_ROW, ONE_ROW_POSTGRES), 100: (BATCH, None)}.get(
        rows, (None, None)
    )
    keyed = {"gate": Keyed, "by hand": KeyedByHand, "plain": KeyedPlain, FREED: KeyedByHand}
    numbered = {"gate": Numbered, "by hand": NumberedByHand, "plain": NumberedPlain}
    own = f"{amount}, its own key"
    freed = f"{own}, freed by hand; stamped by hand"
    yield Group(
        _flushes(rows, keyed, "key"),
        (
            *_told_of_flush(own, goal, postgres_goal),
            Comparison(INSERTS, freed, FREED, "by hand", distant=True),
        ),
    )
    yield Group(_flushes(rows, numbered, None), _told_of_flush(f"{amount}, the database's key"))


def _told_of_flush(
    what: str, goal: Goal | None = None, postgres_goal: Goal | None = None
) -> tuple[Comparison, ...]:
    return (
        Comparison(INSERTS, f"{what}; without the columns", "gate", "plain"),
        Comparison(
            section=INSERTS,
            what=f"{what}; stamped by hand",
            over="gate",
            under="by hand",
            goal=goal,
            postgres_goal=postgres_goal,
            distant=True,
        ),
    )


def _told_of_renewal(*, commit: bool) -> tuple[Comparison, ...]:
    """The goals are for what ends with a commit, as a request does; what has none explains them."""
    after = " and commit" if commit else ""
    touch, change = f"touch(){after or ' and flush'}", f"flush UPDATE of one column{after}"
    goal = RENEWAL if commit else None
    renewal = partial(Comparison, RENEWALS, distant=True)
    return (
        renewal(f"{touch}; an UPDATE by hand", "touch", "by hand", goal=goal),
        renewal(f"{change}; an UPDATE by hand", "change", "by hand", goal=goal),
        renewal(
            f"{change}; stamped by hand",
            "change",
            "change by hand",
            goal=FLUSH if commit else FLUSH_ALONE,
        ),
        renewal(f"{change}, guarded by hand; stamped by hand", "guarded", "change by hand"),
        Comparison(BASELINES, change, "plain", "by hand", distant=True),
    )


def _told_of_touch(*, commit: bool) -> tuple[Comparison, ...]:
    after, goal = (" and commit", TOUCH) if commit else ("", TOUCH_ALONE)
    told = partial(Comparison, RENEWALS, distant=True)
    return (
        told(f"touch(Model){after}; an UPDATE by hand", "touch", "by hand", goal=goal),
        told(f"SQLAlchemy's own Core UPDATE{after}; an UPDATE by hand", "core", "by hand"),
    )


GROUPS: Final = (
    Group(_reads(reading, _by_key, ScalarResult.one), _told_of_read("select by key", distant=True)),
    Group(
        _reads(reading_alone, _by_key, ScalarResult.one),
        _told_of_read("select by key and nothing else", distant=True),
    ),
    Group(_reads(reading, _hundred, ScalarResult.all), _told_of_read("list of 100")),
    Group(
        _gets,
        (
            Comparison(
                *(OVER_UNFILTERED, "session.get", "gate", "none"), goal=UNFILTERED, distant=True
            ),
            Comparison(
                *(OVER_UNFILTERED, "session.get; a WHERE by hand", "by hand", "none"), distant=True
            ),
            Comparison(NOISE, "session.get", "none again", "none", distant=True),
        ),
    ),
    *(group for rows in _NEW_ROWS for group in _of_flushes(rows)),
    *(Group(renewals(commit=commit), _told_of_renewal(commit=commit)) for commit in (True, False)),
    *(Group(touches(commit=commit), _told_of_touch(commit=commit)) for commit in (True, False)),
    Group(
        gets_and_touches,
        (
            Comparison(
                *(RENEWALS, "get and touch at once; get, touch() and flush"),
                *("at once", "one by one"),
                postgres_goal=GET_AND_TOUCH,
                distant=True,
            ),
            Comparison(
                *(RENEWALS, "get and touch at once, by hand; get, touch() and flush"),
                *("by hand", "one by one"),
                distant=True,
            ),
        ),
    ),
    Group(_hits, (Cost(HITS, "with TTL", "gate"), Cost(HITS, "without TTL", "none"))),
)
