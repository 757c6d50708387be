"""An application on a synchronous driver, and all commands on it, for `test_without_greenlet`."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from typing import Any

from sqlalchemy import MetaData, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session
from sqlalchemy.orm import sessionmaker as session_maker

from tests.cli.running import CliRunner
from ttl_odm import Stored
from ttl_odm.cli.commands import cli
from ttl_odm.events.sqlalchemy import event_tables
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.testing import assert_no_leaks, empty


class Base(DeclarativeBase):
    pass


class Login(TTLMixin, Base):
    __tablename__ = "logins"
    __ttl__ = Stored(3600)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


TOKEN = "TOKEN"
"""Stands for the token of the last preview."""


def stopping() -> Any:
    """Sweeps once: the report ends the command, as SIGTERM does."""
    engine = create_engine(os.environ["SYNCHRONOUS_URL"])
    return engine, Base, {"on_report": lambda _: os.kill(os.getpid(), signal.SIGTERM)}


def commands(url: str, file: str) -> list[list[str]]:
    """The words of each command that connects to a database."""
    place = ["--url", url]
    app = [*place, "--app", "tests.cli.synchronous:Base"]
    table = [*place, "--table", "tokens", "--policy", 'ExpireAt("expires_at")']
    return [
        ["inspect", url, "--write", file],
        ["inspect", url, "--models", "tests.cli.synchronous:Base"],
        ["plan", "tokens", "--policy", 'ExpireAt("expires_at")', *place],
        ["plan", "Login", *app],
        ["sweep", "--dry-run", *table],
        ["sweep", "--dry-run", *app],
        ["sweep", *table],
        ["sweep", *app],
        ["run", "--app", "tests.cli.synchronous:stopping"],
        ["pause", *app],
        ["resume", *app],
        ["status", *app],
        ["check", *app],
        ["check", *table],
        ["policy", "show", *app],
        ["policy", "set", "Login", "1h", *app],
        ["policy", "set", "Login", "1h", "--approve", TOKEN, *app],
        ["policy", "history", *app],
        ["install-sweep", "--print", *app],
        ["events", "list", *place],
        ["events", "consumers", *app],
        ["events", "tail", *place],
        ["events", "retry", "--all-dead", *place],
        ["events", "skip", "1", *place],
    ]


def main(url: str, file: str) -> None:
    """Use the models, then run all commands, and write the status and the output of each."""
    os.environ["SYNCHRONOUS_URL"] = url
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    outbox = MetaData()
    event_tables(outbox)
    outbox.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE tokens (id INT PRIMARY KEY, expires_at TIMESTAMP)")
        connection.exec_driver_sql("INSERT INTO tokens VALUES (1, '2020-01-01 00:00:00')")
    sessions = scoped_session(session_maker(engine))
    with assert_no_leaks(sessions), sessions() as session:
        session.add(Login(id=1))
        session.commit()
    with Session(engine) as session:
        empty(Base, session=session)
    engine.dispose()
    ran = {}
    token = ""
    for line in commands(url, file):
        words = [token if word == TOKEN else word for word in line]
        finished = CliRunner().invoke(cli, words)
        if (shown := re.search(r"--approve (\S+)", finished.output)) is not None:
            token = shown[1]
        ran[shlex.join(words)] = (finished.exit_code, finished.output, repr(finished.exception))
    json.dump(ran, sys.stdout)
