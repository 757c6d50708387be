"""A row's own ttl in a column that nobody keeps from holding anything."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import pytest
from sqlalchemy import BigInteger, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column

from ttl_odm import TTL, TTLConfigurationError
from ttl_odm.sqlalchemy import TTLMixin, expired, include_expired, live
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

HOUR = 3_600
TOO_LONG = [2_147_483_648, 3_000_000_000, 10**18]
NONE = [None, 0, -5, *TOO_LONG]
NO_NUMBER = ["x", "", b"x", 20.5, 1e300]  # which SQLite takes into any column
LIVE = [-1, 3 * HOUR, 2_147_483_647]
EXPIRED = [1, 60, 2 * HOUR - 10]


@pytest.mark.parametrize("default", [HOUR, 4 * HOUR, -1, None])
def test_a_row_is_either_live_or_expired_whatever_its_ttl(
    engine: Engine, default: int | None
) -> None:
    class Base(DeclarativeBase): ...

    class Token(TTLMixin, Base):
        __tablename__ = "tokens"
        __ttl__ = TTL(default, last_modified="issued_at", override="expires_in", unit="s")
        id: Mapped[int] = mapped_column(primary_key=True)
        issued_at: Mapped[int]
        expires_in: Mapped[int | None] = mapped_column(BigInteger)

    Base.metadata.create_all(engine)
    none = {*NONE, *(NO_NUMBER if engine.dialect.name == "sqlite" else ())}
    values = [*none, *LIVE, *EXPIRED]
    issued = int(time.time()) - 2 * HOUR  # hours before or after any boundary of the test
    lives = set(LIVE) if default == HOUR else {*LIVE, *none}
    lives |= set(EXPIRED) if default is None else set()
    with Session(engine) as session:
        raw = text("INSERT INTO tokens (id, issued_at, expires_in) VALUES (:id, :issued, :own)")
        for key, own in enumerate(values, 1):
            session.execute(raw, {"id": key, "issued": issued, "own": own})
        everything = include_expired()
        seen = select(Token.expires_in)
        assert set(session.scalars(seen)) == lives
        assert set(session.scalars(seen.where(live(Token)).options(everything))) == lives
        gone = session.scalars(seen.where(expired(Token)).options(everything)).all()
        assert set(gone) == set(values) - lives


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("default", [HOUR, 4 * HOUR, None])
@pytest.mark.parametrize("sweep", ["index", "scan"])
def test_what_is_no_ttl_has_no_effect_in_tables_from_before_the_check(
    engine: Engine, default: int | None, sweep: str
) -> None:
    class Base(DeclarativeBase): ...

    class Ticket(TTLMixin, Base):
        __tablename__ = "old_tickets"
        __ttl__ = default
        __ttl_sweep__ = sweep
        id: Mapped[int] = mapped_column(primary_key=True)

    Base.metadata.create_all(engine)
    none = [0, -5, *TOO_LONG, *NO_NUMBER]
    values = [*none, *LIVE, *EXPIRED]
    lives = set(LIVE) if default == HOUR else {*LIVE, *none}
    lives |= set(EXPIRED) if default is None else set()
    with Session(engine) as session:
        session.execute(text("PRAGMA ignore_check_constraints = ON"))
        raw = text("INSERT INTO old_tickets (id, ttl) VALUES (:id, :own)")
        for key, own in enumerate(values, 1):
            session.execute(raw, {"id": key, "own": own})
        session.execute(text("UPDATE old_tickets SET _ts = _ts - 7200000"))
        session.execute(text("PRAGMA ignore_check_constraints = OFF"))
        everything = include_expired()
        assert set(session.scalars(select(Ticket.ttl))) == lives
        gone = select(Ticket.ttl).where(expired(Ticket)).options(everything)
        assert set(session.scalars(gone)) == set(values) - lives
        for row, end in session.execute(select(Ticket, Ticket.expires_at).options(everything)):
            assert row.expires_at == end
        session.commit()
    Sweeper(engine, [Ticket]).run_once()
    with Session(engine) as session:
        left = set(session.scalars(select(Ticket.ttl).options(everything)))
    # What is not a ttl is in neither index: `ttl-odm check` finds it.
    assert left == (lives | set(none) if sweep == "index" else lives)


def test_the_column_of_the_mixin_is_never_lenient() -> None:
    class Base(DeclarativeBase): ...

    def declare() -> None:
        class Cart(TTLMixin, Base):
            __tablename__ = "carts"
            __ttl__ = TTL(HOUR, values="lenient")
            id: Mapped[int] = mapped_column(primary_key=True)

        configure_mappers()

    with pytest.raises(TTLConfigurationError, match=r"Cart\.__ttl__: values='lenient'.*override="):
        declare()


@pytest.mark.parametrize("values", ["lenient", "strict"])
def test_a_column_of_the_application_is_read_leniently_and_nothing_else(
    values: Literal["lenient", "strict"],
) -> None:
    class Base(DeclarativeBase): ...

    def declare() -> None:
        class Cart(TTLMixin, Base):
            __tablename__ = "carts"
            __ttl__ = TTL(HOUR, override="life", values=values)
            id: Mapped[int] = mapped_column(primary_key=True)
            life: Mapped[int | None]

        configure_mappers()

    if values == "lenient":
        declare()
    else:
        message = r"only TTLMixin's own column .* they have no effect\. Leave values out\."
        with pytest.raises(TTLConfigurationError, match=message):
            declare()
