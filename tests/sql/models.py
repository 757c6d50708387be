"""The models that the SQL tests share: made anew by each test that changes a default."""

from __future__ import annotations

from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.sqlalchemy import TTLMixin


def web_session(ttl: Any, **namespace: Any) -> Any:
    """Declare a model ``WebSession`` with this ``__ttl__`` on a base of its own."""

    class Base(DeclarativeBase):
        pass

    class WebSession(TTLMixin, Base):
        __tablename__ = "web_sessions"
        __ttl__ = ttl

        id: Mapped[str] = mapped_column(String(40), primary_key=True)
        email: Mapped[str | None] = mapped_column(String(80), unique=True)
        views: Mapped[int] = mapped_column(default=0)

    for name, value in namespace.items():
        setattr(WebSession, name, value)
    return WebSession
