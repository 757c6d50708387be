"""A flush locks rows in the order in which SQLAlchemy writes them, however near their end is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.locks import is_locked_by_others, wait_until_blocked
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.objects import ends

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Engine

pytestmark = [pytest.mark.databases("postgres", "mariadb", "mysql"), pytest.mark.every_server]

HOUR = 3_600
KEYS = range(1, 6)


class Base(DeclarativeBase):
    pass


class Code(TTLMixin, Base):
    __tablename__ = "codes"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    uses: Mapped[int] = mapped_column(default=0)


def change(session: Session, codes: Sequence[Code]) -> None:
    for code in codes:
        code.uses += 1
    session.flush()


def remove(session: Session, codes: Sequence[Code]) -> None:
    for code in codes:
        session.delete(code)
    session.flush()


def save(session: Session, codes: Sequence[Code]) -> None:
    with session.no_autoflush:
        for code in codes:
            code.uses += 1
        session.bulk_save_objects(codes)


@pytest.mark.parametrize("near", [[5], [2, 4], [4, 5], [1, 2, 3, 4, 5]])
@pytest.mark.parametrize("write", [change, remove, save])
def test_a_row_near_its_end_is_not_locked_before_the_rows_written_first(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Session, Sequence[Code]], None],
    near: list[int],
) -> None:
    # So long that no row expires during the test.
    monkeypatch.setattr(ends, "MARGIN", HOUR // 2)
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all([Code(id=key) for key in KEYS])
    with engine.begin() as connection:
        for key in near:
            age(connection, "codes", key, 3 * HOUR // 4)
    first, last = near[0], near[-1]
    if first == last:
        first = 1
    with Session(engine) as session, engine.connect() as holder:
        codes: list[Any] = [session.get_one(Code, key) for key in KEYS]
        holder.execute(text("UPDATE codes SET uses = 7 WHERE id = :id"), {"id": first})
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(write, session, codes)
            wait_until_blocked(engine)
            is_early = [key for key in KEYS if key > first and is_locked(engine, key)]
            holder.rollback()
            waiting.result()
        assert is_early == []


def is_locked(engine: Engine, key: int) -> bool:
    return is_locked_by_others(engine, "codes", key)
