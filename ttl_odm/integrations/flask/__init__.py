"""Flask: ``flask ttl ...``, and a background sweeper in the processes that serve requests.

A thread doesn't survive a fork, and many processes create the application without serving requests:
a server that loads it before forking, ``flask shell``, migrations, the reloader's parent. So the
thread starts with a process's first request, or when a server hook calls `AppTTL.start`. Any number
of processes may have one: one of them holds the lease, the others stand by.

- `commands`: ``flask ttl sweep | run | status | check | pause | resume | plan``;
- `policy`: ``flask ttl policy``, imported only to run it;
- `policies`: the blueprint of `ttl_odm.stored.flask`, which applications import by this name;
- `sweepers`: `AppTTL`, which knows an application's databases and has a thread for each.

`TTL` sets up an application. This package must not know any other integration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.integrations.flask.commands import commands
from ttl_odm.integrations.flask.sweepers import EXTENSION, AppTTL, FlaskSQLAlchemy

if TYPE_CHECKING:
    from flask import Flask
    from sqlalchemy import Engine

    from ttl_odm.sweeper import Store

__all__ = ["TTL", "AppTTL", "FlaskSQLAlchemy"]


class TTL:
    """The extension: ``TTL(app, db)``, or ``TTL(db=db)`` and `init_app` in a factory.

    One instance may serve any number of applications.
    """

    def __init__(
        self,
        app: Flask | None = None,
        db: FlaskSQLAlchemy | Engine | Store | None = None,
        targets: object = None,
    ) -> None:
        """Store what to sweep, and set up the application if there is one.

        Args:
            app: The application; None if you call `init_app` later.
            db: A `flask_sqlalchemy.SQLAlchemy`, all of whose binds are swept, or an Engine. None
                for the application's Flask-SQLAlchemy.
            targets: With an Engine: a declarative base, a model, or anything else that `Sweeper`
                accepts.
        """
        self._db = db
        self._targets = targets
        if app is not None:
            self.init_app(app)

    def init_app(
        self, app: Flask, db: FlaskSQLAlchemy | Engine | Store | None = None, targets: object = None
    ) -> None:
        """Set up an application: its commands, and its `AppTTL` as ``extensions["ttl_odm"]``.

        Args:
            app: The application, configured.
            db: As in the constructor; None for the constructor's.
            targets: As in the constructor; None for the constructor's.

        Raises:
            TTLConfigurationError: A setting in ``app.config`` or an argument is wrong; the message
                says how to fix it.
        """
        if EXTENSION in app.extensions:
            raise TTLConfigurationError(
                f"{app.name} already has TTL: call init_app once per application."
            )
        if targets is None:
            targets = self._targets
        app_ttl = AppTTL(app, self._db if db is None else db, targets)
        app.extensions[EXTENSION] = app_ttl
        app.cli.add_command(commands)
        if app_ttl.interval is not None:
            app.before_request(app_ttl.start)
