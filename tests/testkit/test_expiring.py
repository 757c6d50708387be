"""`TTLClock.expiring` on SQLAlchemy: rows with so long to live, by every kind of policy."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import BigInteger, DateTime, Integer, String, Table, insert, select
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column

from tests.sql.models import web_session
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLError
from ttl_odm.sqlalchemy import TTLMixin, enable, time_left
from ttl_odm.testing import TTLClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
AT = datetime(2030, 3, 31, 0, 30, 0, 123_000, tzinfo=timezone.utc)


@pytest.fixture
def clock() -> Iterator[TTLClock]:
    with TTLClock() as clock:
        yield clock


@pytest.fixture
def model(engine: Engine) -> Any:
    made = web_session(3600)
    made.metadata.create_all(engine)
    return made


def ids(session: Session, model: Any, **options: Any) -> set[str]:
    return set(session.scalars(select(model.id), execution_options=options))


def test_a_row_can_be_written_so_that_it_has_so_long_to_live(
    engine: Engine, model: Any, clock: TTLClock
) -> None:
    with Session(engine) as session:
        clock.freeze(AT)
        for key, seconds in (("gone", -300), ("over", 0), ("short", 10), ("longer", HOUR * 2)):
            with clock.expiring(model, seconds):
                session.add(model(id=key))
                session.flush()
        own = model(id="own", ttl=7)
        with clock.expiring(own, -1):
            session.add(own)
            session.flush()
        assert clock.frozen_at == AT
        assert ids(session, model) == {"short", "longer"}
        told = dict(
            session.execute(
                select(model.id, model.expires_at), execution_options={"include_expired": True}
            ).all()
        )
        ends = {"gone": -300, "over": 0, "short": 10, "longer": 7200, "own": -1}
        assert told == {key: AT + SECOND * end for key, end in ends.items()}


def test_policies_over_other_columns_have_a_lifetime_too(engine: Engine, clock: TTLClock) -> None:
    class Base(DeclarativeBase):
        pass

    def declare(name: str, policy: Any, **columns: Any) -> Any:
        key = mapped_column(String(40), primary_key=True)
        namespace = {"__tablename__": name.lower(), "__ttl__": policy, "id": key, **columns}
        return type(name, (TTLMixin, Base), namespace)

    token = declare(
        "Token",
        TTL(900, last_modified="issued", override="life", never=(0,), unit="s"),
        issued=mapped_column(BigInteger),
        life=mapped_column(Integer),
    )
    kinds = declare(
        "Document",
        TTL({"cart": 60}, by="kind", other=600, last_modified="at", override=None),
        at=mapped_column(DateTime()),
        kind=mapped_column(String(20)),
    )
    owned = Table(
        "owned",
        Base.metadata,
        *(column._copy() for column in token.__table__.c),
    )
    enable(owned, TTL(120, last_modified="issued", override="life", unit="s"))
    Base.metadata.create_all(engine)
    clock.freeze(AT.replace(microsecond=0))
    rows = [token(id="a"), token(id="b", life=5), kinds(id="c", kind="cart"), kinds(id="d")]
    with Session(engine) as session:
        for row in rows:
            with clock.expiring(row, 10):
                session.add(row)
                session.flush()
        with clock.expiring(owned, 10):
            session.execute(insert(owned).values(id="e"))
        session.commit()
        found = (token, kinds, owned.c)
        assert {time_left(row) for row in rows} == {10 * SECOND}
        for move, seen in ((9, 1), (0.999, 1), (0.001, 0)):
            clock.advance(move)
            counts = [len(session.scalars(select(each.id)).all()) for each in found]
            assert counts == [2 * seen, 2 * seen, seen]
    never = token(id="never", life=0)
    with pytest.raises(TTLError, match="never expires"):
        clock.expiring(never, 1)


def test_what_is_not_counted_from_its_writing_has_a_field_to_set(
    engine: Engine, clock: TTLClock
) -> None:
    class Base(DeclarativeBase):
        pass

    class Grant(TTLMixin, Base):
        __tablename__ = "grants"
        __ttl__ = ExpireAt("until")
        id = mapped_column(String(40), primary_key=True)
        until = mapped_column(DateTime())

    class Visit(TTLMixin, Base):
        __tablename__ = "visits"
        __ttl__ = ExpireAfter("begun", 3600)
        id = mapped_column(String(40), primary_key=True)
        begun = mapped_column(DateTime())

    Base.metadata.create_all(engine)
    for cls, name in ((Grant, "until"), (Visit, "begun")):
        with pytest.raises(TTLError, match=f"its field '{name}' determines"):
            clock.expiring(cls, 10)
    clock.freeze(AT.replace(microsecond=0))
    now = AT.replace(microsecond=0, tzinfo=None)
    with Session(engine) as session:
        session.add_all([Grant(id="a", until=now + 10 * SECOND), Grant(id="b", until=now)])
        session.add_all(
            [Visit(id="a", begun=now - HOUR + 10 * SECOND), Visit(id="b", begun=now - HOUR)]
        )
        session.flush()
        assert ids(session, Grant) == ids(session, Visit) == {"a"}
        row = session.get(Grant, "a")
        row.expire_in(20)
        session.commit()
        clock.freeze(row.expires_at)
        assert ids(session, Grant) == set()
