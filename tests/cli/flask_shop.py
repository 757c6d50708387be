"""An application of Flask's with two databases in ``SHOP_FOLDER``, for ``flask ttl sweep``."""

from __future__ import annotations

import os
from pathlib import Path

from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import event
from sqlalchemy.orm import Mapped, mapped_column

from tests.cli.patient import interrupt_count
from tests.sql.sweeping import HOUR, add
from ttl_odm.integrations.flask import TTL
from ttl_odm.sqlalchemy import TTLMixin

db = SQLAlchemy()


class Cart(TTLMixin, db.Model):  # type: ignore[name-defined,misc]
    __tablename__ = "carts"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True)


class Visit(TTLMixin, db.Model):  # type: ignore[name-defined,misc]
    __tablename__ = "visits"
    __bind_key__ = "visits"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True)


def create_app() -> Flask:
    """Fill the databases, unless they exist: three carts and two visits have expired."""
    folder = Path(os.environ["SHOP_FOLDER"])
    is_new = not (folder / "carts.sqlite3").exists()
    app = Flask("shop")
    app.config.update(
        SQLALCHEMY_DATABASE_URI=f"sqlite:///{folder / 'carts.sqlite3'}",
        SQLALCHEMY_BINDS={"visits": f"sqlite:///{folder / 'visits.sqlite3'}"},
    )
    db.init_app(app)
    TTL(app, db)
    with app.app_context():
        if is_new:
            db.create_all()
        for bind, table, rows in ((None, "carts", 3), ("visits", "visits", 2)) if is_new else ():
            with db.engines[bind].begin() as connection:
                add(connection, table, [(n, None, 2 * HOUR) for n in range(rows)])
        if "INTERRUPTED" in os.environ:
            event.listen(db.engine, "before_cursor_execute", interrupt_count)
    return app
