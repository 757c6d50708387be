"""A table whose default ttl is a setting of the application: an extension of one's own.

The extension is the folder `setting` beside this file. Reads, writes, sweeps, `touch` and the
command line treat the table as any other with a ttl.

Run it: python examples/own_extension/messages.py [URL of an empty database]
"""

from __future__ import annotations

import sys
from time import sleep

from setting import FromSetting
from setting.sqlalchemy import settings
from sqlalchemy import String, create_engine, insert, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Sweeper


class Base(DeclarativeBase):
    """The base of the models."""


settings.to_metadata(Base.metadata)


class Message(TTLMixin, Base):
    """A message, which is kept for as long as the setting says."""

    __tablename__ = "messages"
    __ttl__ = FromSetting("keep_messages_for")

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(String(200))


def main(url: str) -> None:
    """Write a message, and set how long messages are kept."""
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    with Session(engine) as db:
        db.add(Message(text="hello"))
        db.commit()
        print("no setting:", db.scalar(select(Message.text)))

        db.execute(insert(settings).values(name="keep_messages_for", value=86_400))
        db.commit()
        print("kept for a day:", db.scalar(select(Message.text)))

        sleep(1)
        db.execute(update(settings).values(value=1))
        db.commit()
        print("kept for a second:", db.scalar(select(Message.text)))
    print(Sweeper(engine, Base).run_once())
    Base.metadata.drop_all(engine)
    engine.dispose()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["sqlite://"])
