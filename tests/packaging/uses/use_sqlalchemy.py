"""A row that expires, is not seen any more, and is swept."""

from sqlalchemy import create_engine, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Sweeper


class Base(DeclarativeBase):
    pass


class WebSession(TTLMixin, Base):
    __tablename__ = "web_sessions"
    __ttl__ = 3600
    id: Mapped[str] = mapped_column(primary_key=True)


engine = create_engine("sqlite:///rows.sqlite3")
Base.metadata.create_all(engine)
with Session(engine) as session:
    session.add_all([WebSession(id="live"), WebSession(id="expired")])
    session.commit()
    session.execute(text("UPDATE web_sessions SET _ts = _ts - 3600000 WHERE id = 'expired'"))
    session.commit()
    assert session.scalars(select(WebSession.id)).all() == ["live"]
assert Sweeper(engine, Base).run_once().deleted == 1
engine.dispose()
