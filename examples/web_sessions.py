"""Web sessions that last half an hour after the last request, and logins that a user can keep.

Run it: ``python examples/web_sessions.py``. It makes an SQLite database in memory; with
``python examples/web_sessions.py URL`` it uses a table ``example_web_sessions`` on that database.
"""

from __future__ import annotations

import secrets
import sys

from sqlalchemy import String, create_engine, func, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm import NEVER
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Sweeper


class Base(DeclarativeBase):
    """The example's declarative base."""


class WebSession(TTLMixin, Base):
    """A session of a browser: 30 minutes after the last request, unless the user stays."""

    __tablename__ = "example_web_sessions"
    __ttl__ = 1800

    id: Mapped[str] = mapped_column(String(43), primary_key=True)
    user: Mapped[str] = mapped_column(String(40))
    requests: Mapped[int] = mapped_column(default=1)


def log_in(db: Session, user: str, *, remember_me: bool = False) -> str:
    """Begin a session and return its id."""
    session = WebSession(id=secrets.token_urlsafe(32), user=user)
    if remember_me:
        session.ttl = NEVER
    db.add(session)
    db.commit()
    return session.id


def request(db: Session, session_id: str) -> str | None:
    """Serve a request: the name of the user, or None if the session is over.

    The UPDATE starts the half hour again, and only matches a session that is still live, so no
    check for expiry is needed, here or anywhere.
    """
    count = update(WebSession).where(WebSession.id == session_id)
    db.execute(count.values(requests=WebSession.requests + 1))
    db.commit()
    return db.scalar(select(WebSession.user).where(WebSession.id == session_id))


def log_out_everywhere(db: Session, user: str) -> None:
    """End all sessions of a user at once."""
    for session in db.scalars(select(WebSession).where(WebSession.user == user)):
        session.expire_in(0)
    db.commit()


def main(url: str = "sqlite://") -> None:
    """Show all of it."""
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    with Session(engine) as db:
        laptop, phone = log_in(db, "ann", remember_me=True), log_in(db, "ann")
        print("two sessions:", request(db, laptop), "and", request(db, phone))
        log_out_everywhere(db, "ann")
        print("after logging out everywhere:", request(db, laptop), "and", request(db, phone))
        left = db.scalar(select(func.count()).select_from(WebSession))
        print(f"sessions that a query finds: {left}")
    print(Sweeper(engine, Base).run_once())
    Base.metadata.drop_all(engine)
    engine.dispose()


if __name__ == "__main__":
    main(*sys.argv[1:])
