"""Flask-Session's SQLAlchemy interface under ttl_odm: sessions end at ``expiry``, by themselves.

Run it: ``python examples/adoption/flask_sessions.py``.

Flask-Session loads a session, looks at its ``expiry`` by the clock of the web server, and deletes
what is over; the rest waits for ``flask session_cleanup`` or a lottery in each request. With the
policy an expired row isn't there for any of these.
"""

from __future__ import annotations

import warnings
from typing import Any

from flask import Flask, session
from flask_session import Session
from flask_sqlalchemy import SQLAlchemy

from ttl_odm import ExpireAt
from ttl_odm.sqlalchemy import disable, enable
from ttl_odm.sweeper import Sweeper


def make_app(url: str) -> Flask:
    """Make an application that counts the visits of a session."""
    app = Flask(__name__)
    app.config.update(SQLALCHEMY_DATABASE_URI=url, SESSION_TYPE="sqlalchemy")
    app.config["SESSION_SQLALCHEMY"] = SQLAlchemy(app)
    Session(app)

    # The adoption. Like Flask-Session, take a session without an end for one that is over.
    enable(sessions_of(app), ExpireAt("expiry", null="expired"))

    @app.get("/")
    def visits() -> str:
        session["visits"] = session.get("visits", 0) + 1
        return str(session["visits"])

    return app


def sessions_of(app: Flask) -> Any:
    """Return the class that Flask-Session has made for its table."""
    interface: Any = app.session_interface
    return interface.sql_session_model


def main() -> None:
    """Let a session expire, come back, and sweep."""
    warnings.filterwarnings("ignore", "datetime.datetime.utcnow", DeprecationWarning)
    app = make_app("sqlite://")
    browser = app.test_client()
    print("visits:", *(browser.get("/").text for _ in range(3)))
    with app.app_context():
        database = app.extensions["sqlalchemy"]
        with database.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE sessions SET expiry = '2020-01-01 00:00:00.000000'")
        print("after its end:", browser.get("/").text)
        print(Sweeper(database.engine, sessions_of(app)).run_once())
        database.engine.dispose()
    disable(sessions_of(app))


if __name__ == "__main__":
    main()
