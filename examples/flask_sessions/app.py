"""A session store on the server for Flask: sessions last half an hour after the last request.

Run it: ``python examples/flask_sessions/app.py`` serves http://127.0.0.1:5000, on an SQLite file
that is removed at the end; ``python examples/flask_sessions/app.py 30`` lets sessions last 30
seconds. With ``flask --app examples/flask_sessions/app.py ttl sweep`` it has commands, too.

Nothing here asks whether a session has expired. One that has is not found, is in no list, can't be
renewed, and is deleted for good by the sweeper in the background.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
import tempfile
from copy import deepcopy
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from flask import Flask, abort, redirect, render_template, request, session, url_for
from flask.sessions import SessionInterface, SessionMixin
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import JSON, String, delete, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm.integrations.flask import TTL
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin, touch

if TYPE_CHECKING:
    from flask import Request, Response
    from werkzeug.wrappers import Response as AnyResponse

HALF_AN_HOUR = 1800
REMEMBERED = timedelta(days=30)
RENEWED = 0.1
"""Share of a lifetime after which a request renews it: most requests write nothing."""


class Base(DeclarativeBase):
    """The example's declarative base."""


db = SQLAlchemy(model_class=Base)
ttl = TTL(db=db)


class WebSession(TTLMixin, Base):
    """A session of a browser, by a hash of what its cookie says."""

    __tablename__ = "example_flask_sessions"
    __ttl__ = HALF_AN_HOUR

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    user: Mapped[str | None] = mapped_column(String(40), index=True)
    browser: Mapped[str] = mapped_column(String(200))
    data: Mapped[dict[str, Any]] = mapped_column(JSON)


class StoredSession(dict[str, Any], SessionMixin):
    """What Flask calls the session, and where it is stored.

    Attributes:
        token: What the cookie says; None before it was stored.
        before: What it was.
        is_due: Whether enough of its lifetime has passed for this request to renew it.
        is_new_login: Whether it is to get another token, as a login should.
    """

    def __init__(
        self, data: dict[str, Any], token: str | None = None, *, is_due: bool = False
    ) -> None:
        """Begin with what is stored."""
        super().__init__(data)
        self.token = token
        self.before = deepcopy(data)
        self.is_due = is_due
        self.is_new_login = False


class Store(SessionInterface):
    """Keeps sessions in a table, in transactions of its own: a view's are none of its business."""

    def open_session(self, app: Flask, request: Request) -> StoredSession:
        """Look the session up; one that has expired is a new, empty one."""
        token = request.cookies.get(self.get_cookie_name(app))
        if token:
            with Session(db.engine) as mine:
                row = mine.get(WebSession, key_of(token))
                if row is not None:
                    return StoredSession(row.data, token, is_due=is_due(row))
        return StoredSession({})

    def save_session(self, app: Flask, session: SessionMixin, response: Response) -> None:
        """Write what has changed, or renew it."""
        assert isinstance(session, StoredSession)  # noqa: S101 - open_session() made it
        if not session and session.token is None:
            return
        with Session(db.engine) as mine:
            try:
                token = save(mine, session)
                mine.commit()
            except ExpiredError:  # while the request was served
                token = None
        name, path = self.get_cookie_name(app), self.get_cookie_path(app)
        if token is None:
            response.delete_cookie(name, path=path)
        elif token != session.token:
            lasts = REMEMBERED if session.get("remember") else None  # or until the browser ends
            response.set_cookie(
                name, token, max_age=lasts, path=path, httponly=True,
                samesite="Lax", secure=request.is_secure,
            )  # fmt: skip


def key_of(token: str) -> str:
    """Return a session's key: whoever reads the table can't log in with it."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_due(row: WebSession) -> bool:
    """Return whether a session has used up enough of its lifetime to be renewed."""
    if row.expires_at is None or row.time_left is None:
        return False
    return row.time_left < (1 - RENEWED) * (row.expires_at - row.last_modified)


def save(mine: Session, session: StoredSession) -> str | None:
    """Store a session; return what its cookie is to say, None when it is over."""
    data = dict(session)
    if session.token and session and data == session.before and not session.is_new_login:
        if not session.is_due:
            return session.token
        renewal = touch(WebSession).where(WebSession.id == key_of(session.token))
        return session.token if mine.execute(renewal).rowcount else None
    row = mine.get(WebSession, key_of(session.token)) if session.token else None
    if session.token and row is None:
        return None  # it has expired, or was ended from elsewhere: nothing brings it back
    if row is not None and (session.is_new_login or not session):
        mine.delete(row)
        row = None
    if not session:
        return None
    if row is None:
        token = secrets.token_urlsafe(32)
        lifetime = REMEMBERED if session.get("remember") else None
        browser = request.user_agent.string[:200]
        user = session.get("user")
        mine.add(WebSession(id=key_of(token), user=user, browser=browser, data=data, ttl=lifetime))
        return token
    row.data = data  # renews it, as any write does
    return session.token


def create_app(database: str = "sqlite:///sessions.sqlite3", **config: Any) -> Flask:
    """Make the application.

    Args:
        database: SQLAlchemy's URL; a relative file is one in Flask's instance folder.
        config: What else ``app.config`` has to say.
    """
    app = Flask(__name__)
    app.session_interface = Store()
    app.config.update(SQLALCHEMY_DATABASE_URI=database, TTL_SWEEP_INTERVAL=60)
    app.config.update(config)
    db.init_app(app)
    ttl.init_app(app)
    with app.app_context():
        db.create_all()
    app.add_url_rule("/", view_func=home)
    app.add_url_rule("/login", view_func=log_in, methods=["POST"])
    app.add_url_rule("/logout", view_func=log_out, methods=["POST"])
    app.add_url_rule("/logout/everywhere", view_func=log_out_everywhere, methods=["POST"])
    app.add_url_rule("/sessions/<key>/end", view_func=end, methods=["POST"])
    app.add_template_filter(in_words)
    return app


def home() -> str:
    """Show who is logged in, and where else."""
    if "user" not in session:
        return render_template("login.html", lifetime=lifetime())
    session["visits"] = session.get("visits", 0) + 1
    newest_first = WebSession.last_modified.desc()
    mine = select(WebSession).where(WebSession.user == session["user"]).order_by(newest_first)
    here = key_of(session_object().token)
    return render_template("home.html", sessions=db.session.scalars(mine).all(), here=here)


def session_object() -> Any:
    """Return what `flask.session` stands for."""
    return session._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001


def log_in() -> AnyResponse:
    """Begin a session for whoever one says to be."""
    name = request.form.get("user", "").strip()[:40]
    if not name:
        abort(400, "Say who you are.")
    session.clear()
    session["user"] = name
    if "remember" in request.form:
        session["remember"] = True
    session_object().is_new_login = True
    return redirect(url_for("home"))


def log_out() -> AnyResponse:
    """End this session."""
    session.clear()
    return redirect(url_for("home"))


def log_out_everywhere() -> AnyResponse:
    """End all sessions of the user."""
    db.session.execute(delete(WebSession).where(WebSession.user == session.get("user")))
    db.session.commit()
    return redirect(url_for("home"))


def end(key: str) -> AnyResponse:
    """End one of the user's sessions."""
    db.session.execute(
        delete(WebSession).where(WebSession.id == key, WebSession.user == session.get("user"))
    )
    db.session.commit()
    return redirect(url_for("home"))


def lifetime() -> timedelta:
    """Return how long a session lasts that nobody wants to be remembered."""
    seconds = WebSession.__ttl__
    assert isinstance(seconds, int)  # noqa: S101 - a ttl may be declared in other ways, too
    return timedelta(seconds=seconds)


def in_words(time_left: timedelta | None) -> str:
    """Say how long something still lasts."""
    if time_left is None:
        return "until you log out"
    seconds = max(0, round(time_left.total_seconds()))
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{round(seconds / unit)} {name}"
    return f"{seconds} s"


def main(seconds: str | None = None) -> None:
    """Serve it."""
    if seconds is not None:
        WebSession.__ttl__ = int(seconds)  # acts at once, on sessions that are stored as well
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(f"sqlite:///{folder}/sessions.sqlite3", TTL_SWEEP_INTERVAL=10)
        try:
            app.run()
        finally:
            app.extensions["ttl_odm"].stop()  # before the file goes


if __name__ == "__main__":
    main(*sys.argv[1:])
