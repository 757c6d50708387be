"""Primary keys that a query returns in another form than they were given."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, Numeric, String, TypeDecorator, Uuid, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine


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
        id: Mapped[Any] = mapped_column(type_, primary_key=True)
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
        (DateTime(), [datetime(2026, 6, n, 1, 2, 3, (3 - n) * 200_000) for n in (1, 2, 3)]),  # noqa: DTZ001
        (DateTime(timezone=True), [datetime(2026, 6, n, tzinfo=timezone.utc) for n in (1, 2, 3)]),
    ],
    ids=["lower case", "rounded", "UUIDs in upper case", "UUIDs", "microseconds", "aware"],
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
