"""The extension, with which an application is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.integrations.flask.commands import commands
from ttl_odm.integrations.flask.sweepers import EXTENSION, AppTTL

if TYPE_CHECKING:
    from flask import Flask
    from sqlalchemy import Engine

    from ttl_odm.integrations.flask.sweepers import FlaskSQLAlchemy
    from ttl_odm.sweeper import Store


class TTL:
    """The extension: ``TTL(app, db)``, or ``TTL(db=db)`` and `init_app` in a factory.

    One instance may serve any number of applications.
    """

    def __init__(
        self,
        app: Flask | None = None,
        db: FlaskSQLAlchemy | Engine | Store | None = None,
        targets: Any = None,
    ) -> None:
        """Remember what to sweep, and set the application up if there is one already.

        Args:
            app: The application; None if `init_app` is going to be called.
            db: A `flask_sqlalchemy.SQLAlchemy`, all of whose binds are swept, or an Engine. None
                for the Flask-SQLAlchemy that the application has.
            targets: With an Engine: a declarative base, a model, or whatever else `Sweeper` takes.
        """
        self._db = db
        self._targets = targets
        if app is not None:
            self.init_app(app)

    def init_app(
        self, app: Flask, db: FlaskSQLAlchemy | Engine | Store | None = None, targets: Any = None
    ) -> None:
        """Set an application up: its commands, and its `AppTTL` as ``extensions["ttl_odm"]``.

        Args:
            app: The application, configured.
            db: As in the constructor; None for what that was given.
            targets: As in the constructor; None for what that was given.

        Raises:
            TTLConfigurationError: Something in ``app.config`` or the arguments can't work; the
                message says what to give instead.
        """
        if EXTENSION in app.extensions:
            raise TTLConfigurationError(
                f"{app.name} has TTL already: call init_app once for each application."
            )
        if targets is None:
            targets = self._targets
        app_ttl = AppTTL(app, self._db if db is None else db, targets)
        app.extensions[EXTENSION] = app_ttl
        app.cli.add_command(commands)
        if app_ttl.interval is not None:
            app.before_request(app_ttl.start)
