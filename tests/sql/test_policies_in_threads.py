"""`enable` and `disable` while other threads run statements, which end by one of the policies.

No thread is timed: one stops inside a statement until the policy has changed, or many run for a
number of changes.
"""

from __future__ import annotations

from datetime import datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    ColumnElement,
    ForeignKey,
    Integer,
    String,
    delete,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    joinedload,
    mapped_column,
    relationship,
)
from sqlalchemy.sql.compiler import SQLCompiler

from tests.guard import GUARD
from ttl_odm import TTL, ExpireAfter, ExpireAt
from ttl_odm.sqlalchemy import disable, enable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

PAST, FUTURE = datetime(2020, 1, 1), datetime(2100, 1, 1)  # noqa: DTZ001 (naive columns)
POLICIES = (
    ExpireAt("ends"),
    ExpireAfter("began", 60),
    TTL(60, last_modified="began", override=None),
)


class Models:
    """Of the carts 1 to 6 the odd ones have ended; all began in the future."""

    def __init__(self, engine: Engine) -> None:
        class Base(DeclarativeBase):
            pass

        class Cart(Base):
            __tablename__ = "threads_carts"
            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
            name: Mapped[str] = mapped_column(String(20), unique=True)
            ends: Mapped[datetime]
            began: Mapped[datetime]

        class Item(Base):
            __tablename__ = "threads_items"
            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
            cart_id: Mapped[int] = mapped_column(ForeignKey("threads_carts.id"))
            cart: Mapped[Cart] = relationship()

        self.cart, self.item = Cart, Item
        Base.metadata.create_all(engine)
        with Session(engine) as session:
            for key in range(1, 7):
                ends = PAST if key % 2 else FUTURE
                session.add(Cart(id=key, name=str(key), ends=ends, began=FUTURE))
                session.add(Item(id=key, cart_id=key))
            session.commit()


@pytest.fixture
def models(engine: Engine) -> Models:
    return Models(engine)


class InThread:
    """Some work in a thread; calling it waits for the end, and returns the result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._outcome: list[Any] = []
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome.append(self._work())
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            self._outcome.append(error)

    def __call__(self) -> Any:
        self._thread.join(GUARD)
        (result,) = self._outcome
        if isinstance(result, BaseException):
            raise result
        return result


class Stop:
    """Something stops in a thread until the test goes on."""

    def __init__(self) -> None:
        self.reached, self.go_on = Event(), Event()

    def __call__(self, *_: object) -> None:
        if not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(GUARD)


@pytest.fixture
def stop() -> Iterator[Stop]:
    made = Stop()
    yield made
    made.go_on.set()


def keys(engine: Engine, model: Any) -> set[int]:
    with engine.connect() as connection:
        return set(connection.scalars(select(model.id)))


def change(model: Any, to: Any) -> None:
    if to is None:
        disable(model)
    else:
        enable(model, to)


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("after", [None, *POLICIES[1:], 60])
def test_a_statement_that_was_compiled_ends_by_the_policy_of_then(
    engine: Engine, models: Models, stop: Stop, monkeypatch: pytest.MonkeyPatch, after: Any
) -> None:
    """Between its SQL and its bound values, of which one is read from the class."""
    enable(models.cart, ExpireAfter("began", 60) if after == 60 else ExpireAt("ends"))
    everything = keys(engine, models.cart)
    plain = SQLCompiler.construct_params

    def construct_params(self: Any, *args: Any, **kw: Any) -> Any:
        stop()
        return plain(self, *args, **kw)

    with monkeypatch.context() as patched:
        patched.setattr(SQLCompiler, "construct_params", construct_params)
        wait = InThread(lambda: keys(engine, models.cart))
        assert stop.reached.wait(GUARD)
    change(models.cart, ExpireAt("ends") if after == 60 else after)
    stop.go_on.set()
    assert wait() == everything
    assert keys(engine, models.cart) == ({2, 4, 6} if after == 60 else {1, 2, 3, 4, 5, 6})
    if after is not None:
        disable(models.cart)


class Slow(ColumnElement[int]):
    """A zero that takes its time to be compiled."""

    inherit_cache = False
    type = Integer()

    def __init__(self, stop: Stop) -> None:
        self.stop = stop


@compiles(Slow)
def _render(element: Slow, *_: Any, **__: Any) -> str:
    element.stop()
    return "0"


@pytest.mark.databases("sqlite")
def test_a_statement_that_is_being_compiled_has_one_policy(
    engine: Engine, models: Models, stop: Stop
) -> None:
    """The change waits for it: otherwise half of it would have no condition.

    If it is quick enough, the statement is compiled again before it runs, and has none at all.
    """
    enable(models.cart, ExpireAt("ends"))
    one, *more = (select(models.cart.id).where(models.cart.id == key) for key in range(1, 7))
    halves = one.union_all(*more[:2], select(Slow(stop)), *more[2:])

    def read() -> set[int]:
        with engine.connect() as connection:
            return set(connection.scalars(halves)) - {0}

    wait = InThread(read)
    assert stop.reached.wait(GUARD)
    disabled = InThread(lambda: disable(models.cart))
    stop.go_on.set()
    disabled()
    assert wait() in ({2, 4, 6}, {1, 2, 3, 4, 5, 6})
    assert read() == {1, 2, 3, 4, 5, 6}


@pytest.mark.databases("sqlite")
def test_a_policy_can_change_inside_of_a_compilation(engine: Engine, models: Models) -> None:
    """As where a listener enables a model when the mappers are configured: it waits for nobody."""
    changed: list[bool] = []

    def enables() -> None:
        if not changed:
            changed.append(True)
            enable(models.cart, ExpireAt("ends"))

    with engine.connect() as connection:
        slow = select(Slow(enables)).union_all(select(models.cart.id))  # type: ignore[arg-type]
        connection.execute(slow)
        assert set(connection.scalars(slow)) - {0} == {2, 4, 6}
    disable(models.cart)


def reads(models: Models) -> list[Callable[[Session, int], object]]:
    """What threads do, some of it compiled each time."""
    cart, item = models.cart, models.item

    def lazy(session: Session, _: int) -> None:
        for row in session.scalars(select(item)).all():
            assert row.cart is None or row.cart.id == row.id

    return [
        lambda session, _: session.scalars(select(cart)).all(),
        lambda session, n: session.execute(select(cart.id, literal_column(str(n)))).all(),
        lambda session, _: session.scalars(select(item).options(joinedload(item.cart))).all(),
        lambda session, n: session.get(cart, n % 6),
        lazy,
    ]


def writes(models: Models) -> list[Callable[[Session, int], object]]:
    cart = models.cart

    def flush(session: Session, number: int) -> None:
        session.add(cart(id=100 + number, name=f"new {number}", ends=FUTURE, began=FUTURE))
        session.flush()

    def change_row(session: Session, number: int) -> None:
        row = session.get(cart, 2)
        row.name = f"changed {number}"
        session.flush()

    values = {"ends": FUTURE, "began": FUTURE}
    return [
        flush,
        change_row,
        lambda session, n: session.execute(
            insert(cart), [{"id": 200 + n, "name": f"bulk {n}", **values}]
        ),
        lambda session, n: session.execute(
            update(cart).where(cart.id == 4).values(name=f"updated {n}")
        ),
        lambda session, _: session.execute(delete(cart).where(cart.id == 500)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("work", [reads, writes])
def test_no_thread_fails_while_policies_come_and_go(
    engine: Engine, models: Models, work: Any
) -> None:
    changes, stopped = range(60), Event()
    works = work(models)
    if engine.dialect.name == "sqlite":  # one writer at a time
        works = works if work is reads else works[:1]

    def repeat(step: Callable[[Session, int], object], own: int) -> Callable[[], int]:
        def run() -> int:
            number = 0
            while not stopped.is_set():
                with Session(engine) as session:
                    step(session, 1_000 * own + number % 100)
                number += 1
            return number

        return run

    waits = [InThread(repeat(step, own)) for own, step in enumerate(works, 1)]
    try:
        for number in changes:
            enable(models.cart, POLICIES[number % 3])
            if number % 2:
                enable(models.cart, POLICIES[(number + 1) % 3])
            keys(engine, models.cart)
            disable(models.cart)
    finally:
        stopped.set()
        runs = [wait() for wait in waits]
    assert all(runs)
    assert keys(engine, models.cart) == {1, 2, 3, 4, 5, 6}
