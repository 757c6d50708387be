"""`touch` as a statement: rows are renewed, and read with it, without being loaded before."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import BigInteger, ForeignKey, String, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column

from tests.clocks import age
from tests.sql.models import web_session
from ttl_odm import TTL, ExpireAfter, ExpireAt, Follows, InvalidTTL, TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy import TTLMixin, disable, enable, include_expired, touch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

RETURNING = pytest.mark.databases("sqlite", "postgres")
"""The databases that have UPDATE ... RETURNING."""


@pytest.fixture
def session(engine: Engine, model: Any) -> Iterator[Session]:
    """Rows that were written 100 seconds ago; one of them has expired."""
    with Session(engine) as session:
        ttls = {"a": None, "dead": 50, "never": -1, "own": 1000}
        session.add_all([model(id=key, ttl=ttl) for key, ttl in ttls.items()])
        session.commit()
        for key in ttls:
            age(session.connection(), "web_sessions", key, 100)
        session.commit()
        yield session


def renewed(session: Session, model: Any) -> list[Any]:
    """The rows that are younger than the oldest, which nothing renews; expired ones too."""
    stamps = select(model.id, model.last_modified).options(include_expired()).order_by(model.id)
    known = session.execute(stamps).all()
    oldest = min(stamp for _, stamp in known)
    return [key for key, stamp in known if stamp - oldest > timedelta(seconds=50)]


def test_one_statement_renews_live_rows_and_counts_them(
    session: Session, model: Any, verbs: list[str]
) -> None:
    session.connection()
    verbs.clear()
    assert session.execute(touch(model).where(model.id == "a")).rowcount == 1
    assert session.execute(touch(model).where(model.id == "dead")).rowcount == 0
    assert session.execute(touch(model).where(model.id == "none")).rowcount == 0
    assert verbs == ["UPDATE"] * 3
    assert renewed(session, model) == ["a"]
    assert session.execute(touch(model)).rowcount == 3
    assert renewed(session, model) == ["a", "never", "own"]


@RETURNING
def test_one_statement_gets_a_row_and_renews_it(
    session: Session, model: Any, verbs: list[str]
) -> None:
    session.connection()
    verbs.clear()
    row = session.scalars(touch(model).where(model.id == "own").returning(model)).one_or_none()
    assert row is not None
    assert (row.ttl, row.expires_at - row.last_modified) == (1000, timedelta(seconds=1000))
    gone = session.scalars(touch(model).where(model.id == "dead").returning(model)).one_or_none()
    assert gone is None
    assert verbs == ["UPDATE"] * 2
    assert renewed(session, model) == ["own"]


@pytest.mark.databases("mariadb", "mysql")
def test_without_returning_two_statements_renew_a_row_and_get_it(
    session: Session, model: Any, verbs: list[str]
) -> None:
    session.connection()
    verbs.clear()
    assert session.execute(touch(model).where(model.id == "own")).rowcount == 1
    row = session.get(model, "own")
    assert row is not None
    assert row.expires_at - row.last_modified == timedelta(seconds=1000)
    assert verbs == ["UPDATE", "SELECT"]


def test_rows_written_recently_are_left_alone_and_not_counted(session: Session, model: Any) -> None:
    stale = touch(model, at_most_every=90).where(model.id == "a")
    assert session.execute(touch(model, at_most_every=101.5).where(model.id == "a")).rowcount == 0
    assert session.execute(stale).rowcount == 1
    assert session.execute(stale).rowcount == 0
    assert session.execute(touch(model, at_most_every=timedelta(minutes=1))).rowcount == 2


@RETURNING
def test_a_row_that_was_written_recently_is_returned_as_it_is(session: Session, model: Any) -> None:
    before = session.get_one(model, "a").last_modified
    session.expire_all()
    for condition in ({"at_most_every": 1000}, {"only_if": "no_ttl"}, {"only_if": "shorter"}):
        for life in (None, 7):
            if life and condition == {"only_if": "shorter"}:
                continue
            statement = touch(model, expire_in=life, **condition)
            rows = session.scalars(statement.where(model.id == "a").returning(model)).all()
            assert [(row.last_modified, row.ttl) for row in rows] == [(before, None)]
            assert session.scalars(statement.where(model.id == "dead").returning(model)).all() == []
    core = touch(model.__table__, at_most_every=1000).returning(model.__table__.c.id)
    assert sorted(session.connection().scalars(core)) == ["a", "never", "own"]
    assert renewed(session, model) == []


@RETURNING
def test_a_row_that_is_due_is_renewed_and_returned(session: Session, model: Any) -> None:
    statement = touch(model, at_most_every=90, expire_in=7).where(model.id == "a")
    row = session.scalars(statement.returning(model)).one()
    assert (row.ttl, row.expires_at - row.last_modified) == (7, timedelta(seconds=7))
    assert renewed(session, model) == ["a"]


def test_expire_in_gives_rows_their_own_life(session: Session, model: Any) -> None:
    assert session.execute(touch(model, expire_in=timedelta(minutes=5))).rowcount == 3
    rows = session.scalars(select(model).order_by(model.id)).all()
    assert [(row.id, row.ttl) for row in rows] == [("a", 300), ("never", 300), ("own", 300)]
    assert {row.expires_at - row.last_modified for row in rows} == {timedelta(minutes=5)}
    assert session.execute(touch(model, expire_in=0).where(model.id == "a")).rowcount == 1
    assert session.get(model, "a") is None
    assert session.execute(touch(model).where(model.id == "a")).rowcount == 0


# The rows end in 3500 and in 900 seconds, and never.
@pytest.mark.parametrize(
    ("only_if", "life", "granted"),
    [
        ("longer", None, ["a", "own"]),
        ("has_ttl", None, ["a", "own"]),
        ("no_ttl", None, ["never"]),
        ("shorter", None, []),
        ("longer", 2000, ["own"]),
        ("longer", 4000, ["a", "own"]),
        ("longer", 500, []),
        ("shorter", 2000, ["a", "never"]),
        ("shorter", 4000, ["never"]),
        ("shorter", 0, ["a", "never", "own"]),
        ("has_ttl", 2000, ["a", "own"]),
        ("no_ttl", 2000, ["never"]),
    ],
)
def test_a_condition_chooses_the_same_rows_as_for_objects(
    session: Session, model: Any, only_if: Any, life: int | None, granted: list[str]
) -> None:
    result = session.execute(touch(model, only_if=only_if, expire_in=life))
    assert result.rowcount == len(granted)
    if granted and life != 0:
        assert renewed(session, model) == granted
    session.rollback()
    rows = session.scalars(select(model).order_by(model.id))
    by_objects = [
        row.id
        for row in rows
        if (row.touch(only_if=only_if) if life is None else row.expire_in(life, only_if=only_if))
    ]
    assert by_objects == granted


def test_objects_in_the_session_have_the_new_values(session: Session, model: Any) -> None:
    rows = {row.id: row for row in session.scalars(select(model))}
    before = {key: row.last_modified for key, row in rows.items()}
    session.execute(touch(model, expire_in=60).where(model.id == "a"))
    assert rows["a"].ttl == 60
    assert rows["a"].last_modified > before["a"]
    assert rows["own"].last_modified == before["own"]
    session.execute(touch(model, expire_in=70, only_if="longer").where(model.id != "own"))
    assert (rows["a"].ttl, rows["never"].ttl) == (70, -1)
    session.execute(touch(model, expire_in=10, only_if="longer"))
    assert (rows["a"].ttl, rows["never"].ttl, rows["own"].ttl) == (70, -1, 1000)
    assert rows["own"].last_modified == before["own"]
    assert not session.dirty


@RETURNING
def test_an_object_in_the_session_has_what_is_returned_without_a_further_statement(
    session: Session, model: Any, verbs: list[str]
) -> None:
    row = session.get_one(model, "a")
    before = row.last_modified
    verbs.clear()
    statement = touch(model, expire_in=60).where(model.id == "a").returning(model)
    assert session.scalars(statement).one() is row
    assert row.last_modified > before
    assert (row.ttl, row.expires_at - row.last_modified) == (60, timedelta(minutes=1))
    assert verbs == ["UPDATE"]


def test_a_policy_that_changes_changes_the_statement(session: Session, model: Any) -> None:
    first = touch(model)
    assert touch(model) is first
    enable(model, ExpireAt("last_modified"))
    try:
        with pytest.raises(TTLError, match="no write renews"):
            touch(model)
    finally:
        disable(model)
    assert session.execute(touch(model).where(model.id == "a")).rowcount == 1


def test_tables_and_aliases_are_touched_without_a_session(
    engine: Engine, session: Session, model: Any
) -> None:
    table = model.__table__
    other, alias = aliased(model), table.alias()
    with engine.begin() as connection:
        assert connection.execute(touch(table).where(table.c.id == "a")).rowcount == 1
        assert connection.execute(touch(alias).where(alias.c.id == "dead")).rowcount == 0
        assert connection.execute(touch(alias, expire_in=9).where(alias.c.id == "own")).rowcount
    assert session.execute(touch(other).where(other.id == "never")).rowcount == 1
    assert renewed(session, model) == ["a", "never", "own"]
    assert session.get_one(model, "own").ttl == 9


def test_an_option_that_keeps_stamps_keeps_none_of_a_touch(session: Session, model: Any) -> None:
    options = {"keep_last_modified": True}
    assert session.execute(touch(model).where(model.id == "a"), execution_options=options).rowcount
    statement = touch(model, at_most_every=90).where(model.id == "own")
    assert session.execute(statement, execution_options=options).rowcount == 1
    assert renewed(session, model) == ["a", "own"]


def test_more_columns_may_be_set_with_a_touch(session: Session, model: Any) -> None:
    session.execute(touch(model).where(model.id == "a").values(views=model.views + 1))
    assert session.get_one(model, "a").views == 1
    assert renewed(session, model) == ["a"]


async def test_an_async_session_touches_likewise(async_engine: AsyncEngine) -> None:
    model = web_session(3600)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    async with AsyncSession(async_engine) as session:
        session.add(model(id="a"))
        await session.commit()
        assert (await session.execute(touch(model).where(model.id == "a"))).rowcount == 1
        fresh = touch(model, at_most_every=60, expire_in=9, only_if="longer")
        assert (await session.execute(fresh.where(model.id == "a"))).rowcount == 0
        later = touch(model, at_most_every=0.001, expire_in=9000, only_if="longer")
        await session.execute(select(func.count()).select_from(model))
        assert (await session.execute(later.where(model.id == "a"))).rowcount in (0, 1)
        if async_engine.dialect.update_returning:
            row = (await session.scalars(fresh.where(model.id == "a").returning(model))).one()
            assert row.id == "a"


class Adopted(DeclarativeBase):
    """Tables that have their own columns for the policy."""


class Grant(Adopted):
    __tablename__ = "grants"
    id: Mapped[int] = mapped_column(primary_key=True)
    used: Mapped[int | None] = mapped_column(BigInteger)
    life: Mapped[int | None]
    made: Mapped[int] = mapped_column(BigInteger)


class Ticket(Adopted):
    __tablename__ = "tickets"
    id: Mapped[int] = mapped_column(primary_key=True)
    ends: Mapped[datetime | None]


class Coupon(Adopted):
    __tablename__ = "coupons"
    id: Mapped[int] = mapped_column(primary_key=True)
    made: Mapped[datetime]


enable(
    Grant,
    TTL(
        3600,
        last_modified="used",
        override="life",
        unit="s",
        max_lifetime=timedelta(days=1),
        created="made",
    ),
)
enable(Ticket, ExpireAt("ends", timezone="Europe/Berlin"))
enable(Coupon, ExpireAfter("made", 60))


@pytest.mark.slow
def test_columns_that_are_not_ours_are_renewed(engine: Engine) -> None:
    Adopted.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Grant(id=1, made=int(time.time())))
        session.flush()
        now = session.scalar(select(Grant.used)) or 0
        keep = {"keep_last_modified": True}

        def write(**values: Any) -> None:
            session.execute(update(Grant).values(**values), execution_options=keep)

        write(made=now - 3600, used=now - 100)
        assert session.execute(touch(Grant, at_most_every=120)).rowcount == 0
        assert session.execute(touch(Grant, at_most_every=60, only_if="longer")).rowcount == 1
        assert now <= (session.scalar(select(Grant.used)) or 0) < now + 60
        assert session.execute(touch(Grant, expire_in=30, only_if="longer")).rowcount == 0
        assert session.execute(touch(Grant, expire_in=30, only_if="shorter")).rowcount == 1
        assert session.scalar(select(Grant.life)) == 30
        write(made=now - 86_000, life=None, used=now - 100)  # the limit ends it in any case
        assert session.execute(touch(Grant, only_if="longer")).rowcount == 0
        write(used=None)
        assert session.execute(touch(Grant, at_most_every=60)).rowcount == 1


def test_a_date_of_expiry_is_set_by_a_touch_that_says_how_long(engine: Engine) -> None:
    Adopted.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Ticket(id=1))
        session.flush()
        assert session.execute(touch(Ticket, expire_in=600, only_if="no_ttl")).rowcount == 1
        assert session.execute(touch(Ticket, expire_in=500, only_if="longer")).rowcount == 0
        assert session.execute(touch(Ticket, expire_in=900, only_if="longer")).rowcount == 1
        assert session.execute(touch(Ticket, expire_in=0)).rowcount == 1
        assert session.get(Ticket, 1) is None


def test_a_joined_subclass_is_renewed_at_its_root(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Job(TTLMixin, Base):
        __tablename__ = "jobs"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)
        kind: Mapped[str] = mapped_column(String(9))
        __mapper_args__: Any = {"polymorphic_on": "kind", "polymorphic_identity": "job"}

    class Mail(Job):
        __tablename__ = "mails"
        id: Mapped[int] = mapped_column(ForeignKey(Job.id), primary_key=True)
        to: Mapped[str] = mapped_column(String(9))
        __mapper_args__: Any = {"polymorphic_identity": "mail"}

    class Letter(Mail):
        __mapper_args__: Any = {"polymorphic_identity": "letter"}

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        jobs = [Job(id=1), Mail(id=2, to="ann"), Mail(id=3, to="bob"), Letter(id=4, to="ann")]
        session.add_all(jobs)
        session.commit()
        for key in range(1, 5):
            age(session.connection(), "jobs", key, 100)
        session.commit()
        assert session.execute(touch(Mail, at_most_every=50).where(Mail.to == "bob")).rowcount == 1
        assert session.execute(touch(Letter, at_most_every=50)).rowcount == 1
        assert renewed(session, Job) == [3, 4]
        assert session.execute(touch(Mail, expire_in=50)).rowcount == 3
        table = Mail.__table__
        assert session.execute(touch(table, expire_in=60).where(table.c.to == "ann")).rowcount == 2
        assert [job.ttl for job in session.scalars(select(Job).order_by(Job.id))] == [
            None,
            60,
            50,
            60,
        ]


def test_what_has_nothing_to_touch_is_rejected() -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)

    class Line(Base):
        __tablename__ = "lines"
        __ttl__ = Follows("cart")
        cart: Mapped[int] = mapped_column(ForeignKey(Cart.id), primary_key=True)

    class Plain(Base):
        __tablename__ = "plain"
        id: Mapped[int] = mapped_column(primary_key=True)

    for late, without_life in ((Ticket, True), (Coupon, True), (Coupon, False)):
        message = "no write renews" if without_life else "no lifetime of its own"
        with pytest.raises(TTLError, match=message):
            touch(late) if without_life else touch(late, expire_in=60)
    with pytest.raises(TTLError, match="at_most_every"):
        touch(Ticket, expire_in=60, at_most_every=5)
    for target in (Line, Line.__table__, aliased(Line)):
        with pytest.raises(TTLConfigurationError, match="no lifetime of its own"):
            touch(target)
    for other in (Plain, Plain.__table__, Base, int):
        with pytest.raises(TTLConfigurationError, match="has no TTL"):
            touch(other)
    for wrong in ({"at_most_every": 0}, {"only_if": "GT"}):
        with pytest.raises(TTLConfigurationError, match=next(iter(wrong))):
            touch(Cart, **wrong)  # type: ignore[arg-type]
    for life in (1.5, True, 2**31):
        with pytest.raises(InvalidTTL, match=r"Cart\.ttl"):
            touch(Cart, expire_in=life)
    with pytest.raises(TTLConfigurationError, match="call expire_in"):
        touch(Cart(), expire_in=60)  # type: ignore[call-overload]
