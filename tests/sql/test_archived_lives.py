"""What an archive keeps of a key that is used, expires, and is used again: every row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import String, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm.sqlalchemy import Archive, TTLMixin, include_expired
from ttl_odm.sweeper import HookError, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine


def shop(*, own_key: bool) -> tuple[Any, Any]:
    """Declare codes, and their archive, with a key of its own or with theirs."""

    class Base(DeclarativeBase):
        pass

    if own_key:

        class OldCode(Base):
            __tablename__ = "old_codes"
            number: Mapped[int] = mapped_column(primary_key=True)
            code: Mapped[str] = mapped_column(String(10))
            note: Mapped[str] = mapped_column(String(10))
    else:

        class OldCode(Base):  # type: ignore[no-redef]
            __tablename__ = "old_codes"
            code: Mapped[str] = mapped_column(String(10), primary_key=True)
            note: Mapped[str] = mapped_column(String(10))

    class Code(TTLMixin, Base):
        __tablename__ = "codes"
        __ttl__ = 3600
        __ttl_archive__ = Archive(OldCode)
        code: Mapped[str] = mapped_column(String(10), primary_key=True)
        note: Mapped[str] = mapped_column(String(10))

    return Code, OldCode


def used(engine: Engine, model: Any, note: str) -> None:
    """Use the key, in the place of an expired row."""
    with Session(engine) as session, session.begin():
        session.add(row := model(code="a", note=note))
        session.flush()
        row.expire_in(-1)


def notes(engine: Engine, model: Any) -> list[str]:
    with Session(engine) as session:
        return sorted(session.scalars(select(model.note).options(include_expired())))


def test_an_archive_with_a_key_of_its_own_keeps_every_row(engine: Engine) -> None:
    code, old = shop(own_key=True)
    code.metadata.create_all(engine)
    for life in ("first", "second"):
        used(engine, code, life)
        assert Sweeper(engine, code).run_once().archived == 1
    used(engine, code, "third")
    used(engine, code, "fourth")
    assert notes(engine, old) == ["first", "second", "third"]
    assert notes(engine, code) == ["fourth"]


def test_an_archive_with_the_models_key_refuses_a_second_row_and_says_what_it_needs(
    engine: Engine,
) -> None:
    code, old = shop(own_key=False)
    code.metadata.create_all(engine)
    used(engine, code, "first")
    used(engine, code, "second")
    (target,) = Sweeper(engine, code).run_once().targets
    assert (target.deleted, target.archived) == (0, 0)
    assert sum(target.skips.values()) == 1
    assert target.error is not None
    with pytest.raises(
        HookError, match=r"old_codes did not accept.*\. If .*needs a primary key of its own"
    ):
        used(engine, code, "third")
    assert notes(engine, code) == ["second"]
    assert notes(engine, old) == ["first"]
