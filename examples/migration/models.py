"""The application's model, before and after: with ``WITH_TTL=1`` it has a time to live."""

from __future__ import annotations

import os
from datetime import datetime

from sqlalchemy import DateTime, String, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.sqlalchemy import TTLMixin


class Base(DeclarativeBase):
    """The application's declarative base."""


if os.environ.get("WITH_TTL"):

    class Login(TTLMixin, Base):
        """A login that ends an hour after its last change."""

        __tablename__ = "logins"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True)
        user: Mapped[str] = mapped_column(String(40))
        seen_at: Mapped[datetime] = mapped_column(DateTime, server_default=func.now())

else:

    class Login(Base):  # type: ignore[no-redef]
        """A login, as the application has had it for years."""

        __tablename__ = "logins"

        id: Mapped[int] = mapped_column(primary_key=True)
        user: Mapped[str] = mapped_column(String(40))
        seen_at: Mapped[datetime] = mapped_column(DateTime, server_default=func.now())
