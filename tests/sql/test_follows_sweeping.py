"""A sweep takes the rows that follow others before these."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, create_engine, func, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.sql.following import EXPIRED, HOUR, Base, Cart, Item, Memo, Note, expire, fill, stored
from ttl_odm import Follows, TTLConfigurationError
from ttl_odm.sqlalchemy import TTLMixin, include_expired
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

TREE = ("carts", "items", "remarks", "memos", "drafts")


@pytest.fixture(autouse=True)
def _rows(engine: Engine, enforcing: None) -> None:
    fill(engine)


def sweeper(engine: Engine, **options: Any) -> Sweeper:
    return Sweeper(engine, Base, lease=False, **options)


def test_a_sweep_takes_parents_with_all_that_follows_them(engine: Engine) -> None:
    report = sweeper(engine).run_once()
    assert report.outcome == "finished", report.problems
    (target,) = report.targets
    assert target.deleted == 1
    assert dict(target.referring) == {"items": 2, "remarks": 2, "memos": 3, "drafts": 1}
    assert stored(engine, *TREE) == [1, 2, 2, 1, 3]
    assert sweeper(engine).run_once().deleted == 0


@pytest.mark.every_server
def test_a_dry_run_counts_what_follows_expired_rows(engine: Engine) -> None:
    report = sweeper(engine, dry_run=True).run_once()
    (target,) = report.targets
    assert target.due == 1
    along = {"items": 2, "remarks": 2, "memos": 1, "drafts": 1}
    assert dict(target.due_followers) == along
    assert (report.due, report.deleted) == (7, 0)
    assert "7 rows expired" in str(report)
    assert "carts: 2 rows of items would be deleted as well, because their parents" in str(report)
    assert report.to_dict()["targets"][0]["due_followers"] == along
    assert stored(engine, *TREE) == [2, 4, 4, 4, 4]
    Cart.__ttl__ = None
    try:
        assert sweeper(engine, dry_run=True).run_once().due is None
    finally:
        Cart.__ttl__ = HOUR


def put_full_cart(engine: Engine) -> None:
    """An expired cart, with an item that has 2,500 notes."""
    with engine.begin() as connection:
        connection.execute(insert(Cart), [{"id": 3}])
        connection.execute(insert(Item), [{"id": 30, "cart_id": 3}])
        connection.execute(
            insert(Note), [{"id": number, "item_id": 30} for number in range(1_000, 3_500)]
        )
        expire(connection, 3)


@pytest.mark.slow
def test_more_followers_than_a_batch_takes_go_in_several(engine: Engine) -> None:
    put_full_cart(engine)
    report = sweeper(engine, batch_size=500).run_once()
    assert report.outcome == "finished", report.problems
    assert report.targets[0].referring["remarks"] == 2_502
    assert report.targets[0].batches > 1
    assert stored(engine, *TREE) == [1, 2, 2, 1, 3]


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_parent_that_somebody_holds_stays_with_its_followers(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(insert(Cart), [{"id": 3}])
        connection.execute(insert(Item), [{"id": 30, "cart_id": 3}])
        expire(connection, 3)
    other = create_engine(engine.url)
    with Session(other) as session:
        held = select(Cart.id).where(Cart.id == EXPIRED).with_for_update()
        session.scalars(held.options(include_expired())).all()
        sweeper(engine).run_once()
        assert stored(engine, "carts", "items", "remarks") == [2, 4, 4]
    other.dispose()
    sweeper(engine).run_once()
    assert stored(engine, "carts", "items", "remarks") == [1, 2, 2]


def test_a_parent_renewed_by_a_new_default_keeps_what_it_has(engine: Engine) -> None:
    try:
        Cart.__ttl__ = 86_400
        assert sweeper(engine).run_once().targets[0].deleted == 0
    finally:
        Cart.__ttl__ = 3_600
    assert stored(engine, *TREE) == [2, 4, 4, 2, 4]


@pytest.mark.slow
def test_a_raised_default_does_not_bring_back_a_parent_without_all_that_followed(
    engine: Engine,
) -> None:
    put_full_cart(engine)
    cut_short = Sweeper(engine, Base, lease=False, batch_size=500, on_progress=lambda _: stop())
    stop = cut_short.stop
    cut_short.run_once()
    assert 3 < stored(engine, "remarks")[0] < 2_504
    try:
        Cart.__ttl__ = 86_400
        with Session(engine) as session:
            assert session.get(Cart, 3) is None
            assert session.scalar(select(func.count(Note.id)).where(Note.item_id == 30)) == 0
    finally:
        Cart.__ttl__ = 3_600
    assert sweeper(engine).run_once().outcome == "finished"
    assert stored(engine, *TREE) == [1, 2, 2, 1, 3]


class Kinds(DeclarativeBase):
    pass


class Kind(Enum):
    FULL = "full"


class Crate(TTLMixin, Kinds):
    """Its key isn't stored as Python has it."""

    __tablename__ = "crates"
    __ttl__ = HOUR

    id: Mapped[Kind] = mapped_column(primary_key=True)


class Bottle(Kinds):
    __tablename__ = "bottles"
    __ttl__ = Follows("crate_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    crate_id: Mapped[Kind] = mapped_column(ForeignKey("crates.id"), index=True)


def test_an_expired_parent_is_found_by_any_key_if_some_followers_are_left(engine: Engine) -> None:
    Kinds.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Crate(id=Kind.FULL))
        session.flush()
        session.add_all(Bottle(id=number, crate_id=Kind.FULL) for number in range(10))
        session.flush()
        age(session.connection(), "crates", Kind.FULL.name, 2 * HOUR)
        session.commit()
    cut_short = Sweeper(engine, Kinds, lease=False, batch_size=5, on_progress=lambda _: stop())
    stop = cut_short.stop
    cut_short.run_once().raise_for_failures()
    assert stored(engine, "crates", "bottles") == [1, 5]
    Sweeper(engine, Kinds, lease=False).run_once().raise_for_failures()
    assert stored(engine, "crates", "bottles") == [0, 0]


@pytest.mark.slow
def test_orphans_go_with_all_that_follows_them(engine: Engine) -> None:
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":  # elsewhere the foreign key keeps them from being made
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            connection.exec_driver_sql("INSERT INTO items (id, cart_id, name) VALUES (90, 99, '')")
            connection.exec_driver_sql(
                "INSERT INTO remarks (id, item_id, text) VALUES (900, 90, '')"
            )
            connection.commit()
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        rows = [{"id": number, "basket": 99} for number in range(1_000, 2_200)]
        connection.execute(insert(Memo), rows)
        connection.commit()
    report = sweeper(engine, batch_size=500).run_once()
    assert report.outcome == "finished", report.problems
    assert report.targets[0].referring["memos"] == 1_203
    assert stored(engine, *TREE) == [1, 2, 2, 1, 3]
    assert not sweeper(engine).run_once().targets[0].referring


def test_a_follower_may_be_named_beside_its_root(engine: Engine) -> None:
    report = Sweeper(engine, [Cart, Item, Note.__table__], lease=False).run_once()
    assert [target.table for target in report.targets] == ["carts"]
    assert stored(engine, "carts", "items", "remarks") == [1, 2, 2]


@pytest.mark.databases("sqlite")
def test_a_follower_is_no_target_of_its_own(engine: Engine) -> None:
    with pytest.raises(TTLConfigurationError, match=r"'remarks' can't be swept alone.* Sweep Cart"):
        Sweeper(engine, [Note])
