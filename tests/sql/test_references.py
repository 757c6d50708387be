"""What refuses, costs, or is left alone, where expired rows refer to rows that are written.

What could be written is in `tests.leaks.paths_references`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    Computed,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    delete,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age, set_last_modified
from tests.leaks.data import DAY
from tests.leaks.living import Lasting
from tests.leaks.models import make_models
from tests.sql.sweeping import HOUR, left
from ttl_odm.core.policy import ExpireAfter
from ttl_odm.dialects import EPOCH
from ttl_odm.sqlalchemy import TTLMixin, enable
from ttl_odm.sqlalchemy.policy.references import Change
from ttl_odm.sweeper import Skip, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine
    from sqlalchemy.exc import DBAPIError


@pytest.fixture
def m(engine: Engine, enforcing: None) -> Any:
    models = make_models(Lasting, type("Base", (DeclarativeBase,), {}))
    for base in (models.Base, models.Elsewhere):
        base.metadata.create_all(engine)
    return models


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


def expire(session: Session, *rows: Any) -> None:
    """Let objects expire that were added, and forget them."""
    session.flush()
    for row in rows:
        age(session.connection(), row.__mapper__.base_mapper.local_table.name, row.id, 2 * DAY)
    session.commit()
    session.expunge_all()


def hosts(m: Any, session: Session) -> None:
    """A firm whose caller has expired; a live meal refers to the caller."""
    session.add(m.Firm(id=1, code="host"))
    session.flush()
    caller = m.Caller(id=1, host_id=1, name="ann")
    session.add(caller)
    session.flush()
    session.add(m.Meal(id=1, caller_id=1))
    expire(session, caller)


@pytest.mark.slow
def test_a_live_row_behind_an_expired_one_still_restricts_and_the_error_says_so(
    m: Any, session: Session, violation: type[DBAPIError]
) -> None:
    hosts(m, session)
    session.delete(session.get_one(m.Firm, 1))
    with pytest.raises(violation, match=r"expired row of 'parties' blocks this statement"):
        session.flush()
    session.rollback()
    session.get_one(m.Firm, 1).id = 2
    with pytest.raises(violation, match=r"expired row of 'parties' blocks this statement"):
        session.flush()
    session.rollback()
    assert session.scalars(select(m.Firm.id)).all() == [1]


@pytest.mark.slow
def test_a_live_row_behind_an_expired_one_does_not_disturb_writes_to_other_rows(
    m: Any, session: Session
) -> None:
    hosts(m, session)
    session.add(m.Firm(id=2, code="alone"))
    session.flush()
    session.execute(delete(m.Firm).where(m.Firm.id == 2))
    firms = m.Firm.__table__
    assert session.execute(update(firms).values(id=firms.c.id, code="host")).rowcount == 1  # type: ignore[attr-defined]


@pytest.mark.slow
def test_an_expired_parent_that_a_delete_does_not_see_keeps_its_expired_children(
    m: Any, session: Session
) -> None:
    """They may be in somebody's way, but not in the way of this."""
    session.add(m.Firm(id=1, code="host"))
    session.flush()
    ticket = m.Ticket(id=1, firm_id=1)
    session.add_all([ticket, m.Ticket(id=2, firm_id=1)])
    session.flush()
    first, second = m.Reply(id=1, ticket_id=1), m.Reply(id=2, ticket_id=1, reply_id=1)
    session.add(first)
    session.flush()
    session.add(second)
    expire(session, ticket, first)
    session.execute(delete(m.Ticket))  # the second reply is live and holds the first
    session.commit()
    assert (left(session.connection(), m.Ticket), left(session.connection(), m.Reply)) == (
        {1},
        {1, 2},
    )


# MySQL 9.7 lets a cascade end where it comes to a table the second time, with us or without, and
# leaves rows that refer to nothing.
@pytest.mark.databases("sqlite", "postgres", "mariadb")
def test_rows_that_refer_to_each_other_in_a_circle_of_tables_go_with_their_parent(
    engine: Engine, made: Any, enforcing: None, session: Session
) -> None:
    class Base(DeclarativeBase):
        pass

    class Left(Base):
        __tablename__ = "lefts"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        right: Mapped[int | None] = mapped_column(
            ForeignKey("rights.id", ondelete="CASCADE", use_alter=True, name="left_right")
        )

    class Right(Base):
        __tablename__ = "rights"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        left: Mapped[int | None] = mapped_column(ForeignKey("lefts.id", ondelete="CASCADE"))

    class Leaf(TTLMixin, Base):
        __tablename__ = "leaves"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        left: Mapped[int] = mapped_column(ForeignKey("lefts.id"))

    made(Leaf)
    session.add(Left(id=1))
    session.flush()
    for number in range(1, 4):
        session.add(Right(id=number, left=number))
        session.flush()
        session.add(Left(id=number + 1, right=number))
        session.flush()
    leaves = [Leaf(id=number, left=number) for number in (2, 4)]
    session.add_all(leaves)
    expire(session, *leaves)
    session.execute(delete(Left).where(Left.id == 1))
    session.commit()
    assert [left(session.connection(), model) for model in (Left, Right, Leaf)] == [
        set(),
        set(),
        set(),
    ]


def shop(*, together: bool = False) -> tuple[Any, Any]:
    """Two models on two bases, one of which knows the other's table by its name alone."""

    class Base(DeclarativeBase):
        pass

    class Other(DeclarativeBase):
        metadata = Base.metadata if together else MetaData()

    class Shop(Base):
        __tablename__ = "shops"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Sale(TTLMixin, Other):
        __tablename__ = "sales"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        shop_id: Mapped[int] = mapped_column(ForeignKey("shops.id"))

    return Shop, Sale


@pytest.mark.usefixtures("enforcing")
def test_a_foreign_key_that_only_names_a_table_of_another_metadata_counts(
    made: Any, session: Session
) -> None:
    made(shop(together=True)[0])
    shops, sales = shop()
    session.add(shops(id=1))
    session.flush()
    session.execute(insert(sales.__table__).values(id=1, shop_id=1))
    age(session.connection(), "sales", 1, 2 * HOUR)
    session.commit()
    session.delete(session.get_one(shops, 1))
    session.commit()
    assert (left(session.connection(), shops), left(session.connection(), sales)) == (set(), set())


def test_such_a_table_may_be_in_another_database(made: Any, session: Session) -> None:
    shops, _sales = shop()
    made(shops)
    session.add_all([shops(id=1), shops(id=2)])
    session.commit()
    for key in 1, 2:
        session.delete(session.get_one(shops, key))
        session.commit()
    assert session.scalars(select(shops.id)).all() == []


@pytest.mark.usefixtures("enforcing")
def test_such_a_table_may_be_made_after_the_first_write(made: Any, session: Session) -> None:
    shops, sales = shop()
    made(shops)
    session.add_all([shops(id=1), shops(id=2)])
    session.commit()
    session.delete(session.get_one(shops, 2))
    session.commit()
    made(shop(together=True)[0])
    session.execute(insert(sales.__table__).values(id=1, shop_id=1))
    age(session.connection(), "sales", 1, 2 * HOUR)
    session.commit()
    session.delete(session.get_one(shops, 1))
    session.commit()
    assert (left(session.connection(), shops), left(session.connection(), sales)) == (set(), set())


@pytest.mark.usefixtures("enforcing")
def test_a_key_that_the_database_computes_may_be_referred_to(
    made: Any, session: Session, violation: type[DBAPIError]
) -> None:
    class Base(DeclarativeBase):
        pass

    class Road(Base):
        __tablename__ = "roads"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        number: Mapped[int]
        code: Mapped[int] = mapped_column(Computed("number + 1000", persisted=True), unique=True)

    class Toll(TTLMixin, Base):
        __tablename__ = "tolls"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        road: Mapped[int] = mapped_column(ForeignKey("roads.code"))

    made(Road)
    session.add_all([Road(id=1, number=1), Road(id=2, number=2)])
    session.flush()
    tolls = [Toll(id=1, road=1001), Toll(id=2, road=1002)]
    session.add_all(tolls)
    expire(session, tolls[0])
    session.execute(update(Road).where(Road.id == 1).values(number=3))
    with pytest.raises(violation, match=r"(?i)foreign key constraint"):  # a live row refers to it
        session.execute(update(Road).where(Road.id == 2).values(number=4))
    session.rollback()


@pytest.mark.slow
def test_foreign_keys_are_not_followed_again_for_each_execution(m: Any) -> None:
    change = Change(m.Firm.__table__)
    assert change.consequences()
    assert Change(m.Firm.__table__).consequences() is change.consequences()
    before = change.consequences()

    class Kiosk(TTLMixin, m.Base):
        __tablename__ = "kiosks"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True)
        firm_id: Mapped[int] = mapped_column(ForeignKey("firms.id"))

    assert len(change.consequences()) == len(before) + 1


@pytest.fixture
def statements(engine: Engine) -> list[str]:
    """What is sent to the database."""
    sent: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def record(_c: Any, _cur: Any, statement: str, *_: Any) -> None:
        sent.append(statement.split(maxsplit=1)[0])

    return sent


@pytest.mark.slow
def test_nothing_is_looked_up_for_tables_to_which_no_row_with_a_policy_refers(
    m: Any, session: Session, statements: list[str]
) -> None:
    session.add(m.Firm(id=1, code="a"))
    session.flush()
    session.add_all([m.Visit(id=1, firm_id=1), m.Visit(id=2, firm_id=1)])
    session.commit()
    statements.clear()
    visits, firms = m.Visit.__table__, m.Firm.__table__
    for statement in (
        delete(visits).where(visits.c.id == 1),
        delete(m.Permit.__table__),
        update(m.Booking.__table__).values(number=2),
        update(visits).where(visits.c.id == 2).values(firm_id=1),
        update(firms).values(name="b"),
    ):
        session.connection().execute(statement)
    session.commit()
    assert statements == ["DELETE", "DELETE", "UPDATE", "UPDATE", "UPDATE"]


def test_tables_of_an_abstract_base_may_share_their_info(made: Any, session: Session) -> None:
    class Base(DeclarativeBase):
        __table_args__: Any = {"info": {"shared": True}}

    class Note(TTLMixin, Base):
        __tablename__ = "notes"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True)

    class Memo(TTLMixin, Base):
        __tablename__ = "memos"
        __ttl__ = -1

        id: Mapped[int] = mapped_column(primary_key=True)

    class Plain(Base):
        __tablename__ = "plains"

        id: Mapped[int] = mapped_column(primary_key=True)

    made(Note)
    note, memo = Note(id=1), Memo(id=1)
    session.add_all([note, memo, Plain(id=1)])
    expire(session, note, memo)
    assert [session.scalar(select(func.count()).select_from(t)) for t in (Note, Memo, Plain)] == [
        0,
        1,
        1,
    ]


@pytest.mark.usefixtures("enforcing")
def test_a_policy_that_comes_later_counts_for_statements_that_were_compiled_before(
    engine: Engine,
) -> None:
    metadata = MetaData()
    tops = Table("tops", metadata, Column("id", Integer, primary_key=True, autoincrement=False))
    mids = Table(
        "mids",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("top", ForeignKey("tops.id", ondelete="CASCADE")),
    )
    ends = Table(
        "ends",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("mid", ForeignKey("mids.id")),
        Column("born", Integer),
    )
    metadata.create_all(engine)
    statement = delete(tops).where(tops.c.id == 1)
    with engine.begin() as connection:
        connection.execute(statement)
        for table, row in (tops, {"id": 1}), (mids, {"id": 1, "top": 1}):
            connection.execute(insert(table), row)
        connection.execute(insert(ends), {"id": 1, "mid": 1, "born": 0})
    enable(ends, ExpireAfter("born", HOUR, unit="s"))
    with engine.begin() as connection:
        assert connection.execute(statement).rowcount == 1


# Sweeps


def swept(engine: Engine, *targets: Any) -> dict[str, tuple[int, int]]:
    """How many rows went by a sweep of some targets, and how many had to stay."""
    report = Sweeper(engine, list(targets)).run_once()
    report.raise_for_failures()
    return {
        target.table: (target.deleted, target.skips.get(Skip.RESTRICTED, 0))
        for target in report.targets
    }


@pytest.mark.slow
def test_a_sweep_leaves_only_rows_of_a_subclass_to_which_live_rows_refer(
    engine: Engine, m: Any, session: Session
) -> None:
    callers = [m.Caller(id=number, name=str(number)) for number in range(1, 9)]
    session.add_all(callers)
    session.flush()
    meals = [m.Meal(id=number, caller_id=number) for number in (3, 5, 6)]
    session.add_all(meals)
    expire(session, *callers, meals[0])
    for _ in range(2):
        swept(engine, m.Party)
        assert (left(session.connection(), m.Party), left(session.connection(), m.Meal)) == (
            {5, 6},
            {5, 6},
        )
        session.rollback()
    assert swept(engine, m.Party) == {"parties": (0, 2)}


@pytest.mark.slow
def test_a_sweep_takes_expired_rows_that_hang_on_rows_by_a_cascade(
    engine: Engine, m: Any, session: Session
) -> None:
    session.add(m.Firm(id=1, code="a"))
    session.flush()
    tickets = [m.Ticket(id=number, firm_id=1) for number in range(1, 6)]
    session.add_all(tickets)
    session.flush()
    replies = [m.Reply(id=number, ticket_id=number) for number in range(1, 5)]
    session.add_all(replies)
    expire(session, *tickets, *replies[:3])
    # As if the replies had expired since theirs was swept.
    assert swept(engine, m.Ticket) == {"tickets": (4, 1)}
    assert (left(session.connection(), m.Ticket), left(session.connection(), m.Reply)) == ({4}, {4})


@pytest.mark.slow
@pytest.mark.usefixtures("enforcing")
@pytest.mark.parametrize(
    "ages",
    [
        pytest.param("000000000", id="all at once"),
        pytest.param("000000011", id="most at once"),
        pytest.param("000012222", id="trees that share an instant"),
        pytest.param("012345678", id="one by one"),
    ],
)
def test_a_row_that_bookings_behind_a_tree_does_not_hold_up_other_trees(
    engine: Engine, made: Any, session: Session, ages: str
) -> None:
    class Base(DeclarativeBase):
        pass

    class Topic(TTLMixin, Base):
        __tablename__ = "topics"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        parent: Mapped[int | None] = mapped_column(
            ForeignKey("topics.id", ondelete="CASCADE"), index=True
        )

    class Pin(Base):
        __tablename__ = "pins"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        topic: Mapped[int] = mapped_column(ForeignKey("topics.id"), index=True)

    made(Topic)
    for start in (10, 20, 30):  # three of three each
        for number in range(3):
            session.add(Topic(id=start + number, parent=start + number - 1 if number else None))
            session.flush()
    session.add(Pin(id=1, topic=22))
    session.commit()
    keys = session.scalars(select(Topic.id).order_by(Topic.id)).all()
    for key, later in zip(keys, ages, strict=True):
        instant = EPOCH + timedelta(days=1, milliseconds=int(later))
        set_last_modified(session.connection(), "topics", key, instant)
    session.commit()
    (report,) = Sweeper(engine, [Topic]).run_once().targets
    assert report.skips == {Skip.RESTRICTED: 3}
    assert left(session.connection(), Topic) == {20, 21, 22}
