"""Models with unique values besides their keys: one column, two, one of a subclass's table."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from tests.leaks.data import DAY


def theatre(mixin: type, base: Any) -> dict[str, Any]:
    """Seats with numbers, in stages without a ttl, and vouchers of several tenants."""

    class Stage(base):
        __tablename__ = "stages"

        id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
        size: Mapped[int]

    class Seat(mixin, base, ttl=DAY):
        __tablename__ = "seats"
        __table_args__ = (UniqueConstraint("stage_id", "place"),)

        id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
        number: Mapped[int] = mapped_column(unique=True)
        stage_id: Mapped[int]
        place: Mapped[int]
        holder: Mapped[str] = mapped_column(String(40))

    class Pass(mixin, base, ttl=DAY):
        __tablename__ = "passes"

        id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
        kind: Mapped[str] = mapped_column(String(40))
        holder: Mapped[str] = mapped_column(String(40), unique=True)
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "pass"}

    class Voucher(Pass):
        __tablename__ = "vouchers"

        id: Mapped[int] = mapped_column(
            ForeignKey("passes.id"), primary_key=True, autoincrement=False
        )
        code: Mapped[int] = mapped_column(unique=True)
        tenant: Mapped[int]
        used: Mapped[int] = mapped_column(default=0)
        __mapper_args__ = {"polymorphic_identity": "voucher"}

    return {"Stage": Stage, "Seat": Seat, "Pass": Pass, "Voucher": Voucher}
