"""Primary keys that a query returns in another form than they were given."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    CHAR,
    DateTime,
    Enum,
    Numeric,
    String,
    TypeDecorator,
    Uuid,
    func,
    select,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.orm.exc import StaleDataError

from tests.clocks import age, stop_clock
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine

INSTANT = datetime(2026, 6, 15, tzinfo=timezone.utc)


class Lower(TypeDecorator[str]):
    """An address, which is stored in lower case."""

    impl = String(40)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: object) -> str | None:  # noqa: ARG002
        return None if value is None else value.lower()


def account(type_: Any) -> Any:
    """Declare a class with a key of this type."""

    class Base(DeclarativeBase):
        pass

    class Account(TTLMixin, Base):
        __tablename__ = "accounts"
        __ttl__ = 3600
        id: Mapped[Any] = mapped_column(type_, primary_key=True, autoincrement=False)
        visits: Mapped[int] = mapped_column(default=0)
        version: Mapped[int] = mapped_column()
        __mapper_args__ = {"version_id_col": version}

    return Account


def uuids(form: Any) -> list[str]:
    return [form(uuid.UUID(int=n << 100)) for n in range(10, 13)]


@pytest.mark.parametrize(
    ("type_", "keys"),
    [
        (Lower, ["A@x.org", "B@x.org", "c@x.org"]),
        (Numeric(10, 2), [Decimal("1.236"), Decimal("2.5"), 3]),
        (Uuid(as_uuid=False), uuids(lambda key: str(key).upper())),
        (Uuid(as_uuid=False), uuids(str)),
        (
            Enum("a", "b", "c", name="kinds").with_variant(mysql.ENUM("a", "B", "c"), "mysql"),
            ["a", "b", "c"],
        ),
        (DateTime(), [datetime(2026, 6, n, 1, 2, 3, (3 - n) * 200_000) for n in (1, 2, 3)]),  # noqa: DTZ001
        (DateTime(timezone=True), [datetime(2026, 6, n, tzinfo=timezone.utc) for n in (1, 2, 3)]),
        (CHAR(4), ["a", "bcd", "cdef"]),
    ],
    ids=[
        "lower case",
        "rounded",
        "UUIDs in upper case",
        "UUIDs",
        "ENUM",
        "microseconds",
        "aware",
        "padded",
    ],
)
def test_many_new_objects(engine: Engine, type_: Any, keys: list[Any]) -> None:
    model = account(type_)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        objects = [model(id=key) for key in keys]
        session.add_all(objects)
        session.flush()
        assert all(row.last_modified is not None and not row.is_expired for row in objects[2:])
        session.commit()
        assert session.scalar(select(func.count()).select_from(model)) == 3


def test_objects_near_their_end(engine: Engine) -> None:
    model = account(Lower)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        stop_clock(session.connection(), INSTANT)
        objects = [model(id=key, ttl=4) for key in ("A", "b", "C")]
        for row in objects:  # one by one, and so with their stamps
            session.add(row)
            session.flush()
        for row in objects:
            row.visits = 1
        session.flush()
        assert session.scalars(select(model.visits)).all() == [1, 1, 1]


def test_an_object_whose_row_another_has_written(engine: Engine) -> None:
    model = account(Lower)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        row = model(id="A")
        session.add(row)
        session.flush()
        session.execute(text("UPDATE accounts SET version = 7"))
        row.visits = 1
        with pytest.raises(StaleDataError) as caught:
            session.flush()
        assert not isinstance(caught.value, ExpiredError)


def test_objects_that_have_expired_are_named(engine: Engine) -> None:
    model = account(Lower)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        rows = [model(id=key) for key in ("A", "B")]
        session.add_all(rows)
        session.flush()
        rows[0].visits = rows[1].visits = 1
        age(session.connection(), "accounts", "b", 4000)
        with pytest.raises(ExpiredError, match="Account 'B'"):
            session.flush()
