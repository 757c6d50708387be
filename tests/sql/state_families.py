"""A third state machine: rows that follow others, and all that gives them other parents.

Nothing brings a row back to life here, so the plain Python model holds the live rows only. Expired
ones are stored for as long as they are in nobody's way.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import Computed, Connection, ForeignKey, delete, insert, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Mapped, Session, mapped_column

from tests.clocks import stop_clock
from tests.sql.state_world import DEFAULT, START, Base
from ttl_odm import Follows
from ttl_odm.core import effective_ttl
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin
from ttl_odm.sqlalchemy.time import clock as database_clock

if TYPE_CHECKING:
    from collections.abc import Callable


class Cart(TTLMixin, Base):
    """Has the lifetime."""

    __tablename__ = "state_carts"
    __ttl__ = DEFAULT

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Label(Base):
    """Lives for ever, and names the cart before the one that its items may get."""

    __tablename__ = "state_labels"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    before: Mapped[int]


class Item(Base):
    """Follows its cart to another key."""

    __tablename__ = "state_items"
    __ttl__ = Follows("cart_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int] = mapped_column(
        ForeignKey("state_carts.id", onupdate="CASCADE"), index=True
    )
    label_id: Mapped[int] = mapped_column(ForeignKey("state_labels.id"), index=True)


class Ware(Base):
    """Is in the cart after the spot that it names."""

    __tablename__ = "state_wares"
    __ttl__ = Follows("cart_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    spot: Mapped[int]
    cart_id: Mapped[int] = mapped_column(
        Computed("spot + 1", persisted=True), ForeignKey("state_carts.id"), index=True
    )


class LiveCart(NamedTuple):
    """A cart that exists: its ``_ts``, and its own ttl."""

    ts: datetime
    ttl: int | None


CARTS = st.sampled_from([1, 2, 3])
KEYS = st.sampled_from([1, 2])
TTLS = st.sampled_from([None, -1, -1, 5, 5])
INSERTS = st.sampled_from(["flush", "orm", "core"])
BULK = st.sampled_from(["orm", "core"])
WRITES = st.sampled_from(["flush", "orm", "core"])
NO_SYNC = {"synchronize_session": False}


class FamilyMachine(RuleBasedStateMachine):
    """Carts, with followers whose parent is given, computed, or changed by the database."""

    connection: Connection

    @initialize(seconds=st.sampled_from([0, 5]))
    def begin(self, seconds: int) -> None:
        """Start with two carts, of which the first may have expired, and rows below each."""
        self.transaction = self.connection.begin()
        self.now = START
        self.carts: dict[int, LiveCart] = {}
        self.labels: dict[int, int] = {}
        self.items: dict[int, tuple[int, int]] = {}
        self.wares: dict[int, int] = {}
        self.set_clock()
        for cart, ttl in ((1, 5), (2, -1)):
            self.put_cart(cart, ttl, "core")
            self.put_label(cart, 2 - cart)
            self.put_item(cart, cart, cart, "core")
            self.put_ware(cart, cart - 1, "core")
        self.advance(seconds)

    def teardown(self) -> None:
        """Leave nothing."""
        self.transaction.rollback()

    def set_clock(self) -> None:
        stop_clock(self.connection, self.now)
        database_clock.forget(self.connection.dialect)

    def try_to(self, write: Callable[[Session], object]) -> bool:
        """Whether a write raises no error; if it does, it is undone."""
        with Session(self.connection, join_transaction_mode="create_savepoint") as session:
            try:
                write(session)
                session.commit()
            except (DBAPIError, ExpiredError):
                session.rollback()
                return False
        return True

    def put(self, model: Any, way: str, **values: Any) -> bool:
        """Insert a row; whether that raised no error."""

        def write(session: Session) -> None:
            if way == "flush":
                session.add(model(**values))
            elif way == "orm":
                session.execute(insert(model), [values])
            else:
                session.execute(insert(model.__table__).values(**values))

        return self.try_to(write)

    def below(self, cart: int) -> bool:
        """Whether live rows follow a cart."""
        followed = {above for above, _ in self.items.values()}
        return cart in followed | {spot + 1 for spot in self.wares.values()}

    @rule(seconds=st.sampled_from([1, 4, 5, 6, 10]))
    def advance(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.set_clock()
        for key, cart in list(self.carts.items()):
            life = effective_ttl(DEFAULT, cart.ttl)
            if life is not None and cart.ts + timedelta(seconds=life) <= self.now:
                del self.carts[key]
        self.items = {key: row for key, row in self.items.items() if row[0] in self.carts}
        self.wares = {key: spot for key, spot in self.wares.items() if spot + 1 in self.carts}

    @rule(key=CARTS, ttl=TTLS, way=INSERTS)
    def put_cart(self, key: int, ttl: int | None, way: str) -> None:
        assert self.put(Cart, way, id=key, ttl=ttl) == (key not in self.carts)
        self.carts.setdefault(key, LiveCart(self.now, ttl))

    @rule(key=KEYS, before=st.sampled_from([0, 1, 2]))
    def put_label(self, key: int, before: int) -> None:
        assert self.put(Label, "flush", id=key, before=before) == (key not in self.labels)
        self.labels.setdefault(key, before)

    @rule(key=KEYS, cart=CARTS, label=KEYS, way=INSERTS)
    def put_item(self, key: int, cart: int, label: int, way: str) -> None:
        fits = cart in self.carts and label in self.labels and key not in self.items
        done = self.put(Item, way, id=key, cart_id=cart, label_id=label)
        assert done or not fits
        if fits:
            self.items[key] = (cart, label)

    @rule(key=KEYS, spot=st.sampled_from([0, 1, 2]), way=INSERTS)
    def put_ware(self, key: int, spot: int, way: str) -> None:
        fits = spot + 1 in self.carts and key not in self.wares
        done = self.put(Ware, way, id=key, spot=spot)
        assert done or not fits
        if fits:
            self.wares[key] = spot

    @rule(way=BULK, names=st.sampled_from(["join", "subquery"]))
    def move_items_to_what_another_table_names(self, way: str, names: str) -> None:
        item: Any = Item if way == "orm" else Item.__table__
        label: Any = Label if way == "orm" else Label.__table__
        columns, theirs = getattr(item, "c", item), getattr(label, "c", label)
        named = theirs.before + 1
        same = columns.label_id == theirs.id
        if names == "join":
            moved = update(item).where(same).values(cart_id=named)
        else:
            moved = update(item).values(cart_id=select(named).where(same).scalar_subquery())
        done = self.try_to(lambda session: session.execute(moved, execution_options=NO_SYNC))
        to = {key: self.labels[label] + 1 for key, (_, label) in self.items.items()}
        assert done or not set(to.values()) <= self.carts.keys()
        for key, cart in to.items() if done else ():
            if cart in self.carts:
                self.items[key] = (cart, self.items[key][1])

    @rule(key=KEYS, spot=st.sampled_from([0, 1, 2]), way=WRITES)
    def move_a_ware(self, key: int, spot: int, way: str) -> None:
        def write(session: Session) -> None:
            if way == "flush":
                ware = session.get(Ware, key)
                if ware is not None:
                    ware.spot = spot
                return
            target: Any = Ware if way == "orm" else Ware.__table__
            own = getattr(target, "c", target).id == key
            changed = update(target).where(own).values(spot=spot)
            session.execute(changed, execution_options=NO_SYNC)

        done = self.try_to(write)
        if key in self.wares:
            assert done or spot + 1 not in self.carts
            if spot + 1 in self.carts:
                self.wares[key] = spot

    @rule(way=BULK)
    def move_all_wares_on(self, way: str) -> None:
        target: Any = Ware if way == "orm" else Ware.__table__
        moved = update(target).values(spot=getattr(target, "c", target).spot + 1)
        done = self.try_to(lambda session: session.execute(moved, execution_options=NO_SYNC))
        assert done or not {spot + 2 for spot in self.wares.values()} <= self.carts.keys()
        for key, spot in self.wares.items() if done else ():
            if spot + 2 in self.carts:
                self.wares[key] = spot + 1

    @rule(old=CARTS, new=CARTS, way=WRITES)
    def give_a_cart_another_key(self, old: int, new: int, way: str) -> None:
        if old == new:
            return

        def write(session: Session) -> None:
            if way == "flush":
                cart = session.get(Cart, old)
                if cart is not None:
                    cart.id = new
                return
            target: Any = Cart if way == "orm" else Cart.__table__
            own = getattr(target, "c", target).id == old
            changed = update(target).where(own).values(id=new)
            session.execute(changed, execution_options=NO_SYNC)

        done = self.try_to(write)
        if old not in self.carts:
            assert done
            return
        holds = old in {spot + 1 for spot in self.wares.values()}  # which no key is handed on to
        assert done == (new not in self.carts and not holds)
        if done:
            self.carts[new] = self.carts.pop(old)._replace(ts=self.now)
            for key, (cart, label) in self.items.items():
                self.items[key] = (new if cart == old else cart, label)

    @rule(key=CARTS, way=WRITES)
    def delete_a_cart(self, key: int, way: str) -> None:
        done = self.delete(Cart, key, way)
        if key in self.carts:
            assert done == (not self.below(key))
        if done:
            self.carts.pop(key, None)

    @rule(key=KEYS, way=WRITES)
    def delete_a_label(self, key: int, way: str) -> None:
        done = self.delete(Label, key, way)
        assert done == (key not in {label for _, label in self.items.values()})
        if done:
            self.labels.pop(key, None)

    def delete(self, model: Any, key: int, way: str) -> bool:
        """Delete a row, if it exists; whether that raised no error."""

        def write(session: Session) -> None:
            if way == "flush":
                row = session.get(model, key)
                if row is not None:
                    session.delete(row)
                return
            target: Any = model if way == "orm" else model.__table__
            own = getattr(target, "c", target).id == key
            session.execute(delete(target).where(own), execution_options=NO_SYNC)

        return self.try_to(write)

    @rule(key=KEYS)
    def give_a_label_another_key(self, key: int) -> None:
        other = 3 - key
        changed = update(Label).where(Label.id == key).values(id=other)
        done = self.try_to(lambda session: session.execute(changed, execution_options=NO_SYNC))
        if key in self.labels:
            is_held = key in {label for _, label in self.items.values()}
            assert done == (other not in self.labels and not is_held)
            if done:
                self.labels[other] = self.labels.pop(key)

    @invariant()
    def every_read_agrees(self) -> None:
        with Session(self.connection, join_transaction_mode="create_savepoint") as session:
            assert set(session.scalars(select(Cart.id))) == self.carts.keys()
            assert dict(session.execute(select(Label.id, Label.before)).all()) == self.labels  # type: ignore[arg-type]
            items = session.execute(select(Item.id, Item.cart_id, Item.label_id))
            assert {key: (cart, label) for key, cart, label in items} == self.items
            wares = session.execute(select(Ware.id, Ware.spot, Ware.cart_id))
            assert {key: spot for key, spot, cart in wares if cart == spot + 1} == self.wares
