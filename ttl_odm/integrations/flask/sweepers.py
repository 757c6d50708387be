"""The sweepers of one application: its databases, and a thread for each.

This module must not import Flask-SQLAlchemy, which it recognizes by its attributes.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from sqlalchemy import Engine, MetaData, SingletonThreadPool, StaticPool, create_engine

from ttl_odm.cli.application import Application, sql_targets
from ttl_odm.cli.urls import public_url
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sweeper import Store, Sweeper, SweepOptions
from ttl_odm.sweeper.options import lease_name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from flask import Flask
    from typing_extensions import TypeIs, Unpack

logger = logging.getLogger(__name__)

EXTENSION: Final = "ttl_odm"
PREFIX: Final = "TTL_"
INTERVAL_KEY: Final = "TTL_SWEEP_INTERVAL"

_OPTIONS: Final = {f"{PREFIX}{name.upper()}": name for name in SweepOptions.__optional_keys__}


class FlaskSQLAlchemy(Protocol):
    """The needed attributes of a `flask_sqlalchemy.SQLAlchemy`, by which it is recognized."""

    @property
    def engines(self) -> Mapping[str | None, Engine]:
        """The engines by their bind keys; needs an application's context."""
        ...

    @property
    def metadatas(self) -> Mapping[str | None, MetaData]:
        """The tables by the bind keys of their engines."""
        ...


class AppTTL:
    """The sweepers of one application, ``app.extensions["ttl_odm"]``.

    Attributes:
        interval: Seconds between background sweeps; None for no background sweeper.
    """

    def __init__(
        self, app: Flask, db: FlaskSQLAlchemy | Engine | Store | None, targets: object
    ) -> None:
        """Check everything that needs no database; see `TTL.init_app`."""
        self._app = app
        self._options = _options_of(app)
        db = app.extensions.get("sqlalchemy") if db is None else db
        if db is None:
            raise TTLConfigurationError(
                f"TTL found no database in {app.name}: call db.init_app(app) of Flask-SQLAlchemy "
                "first, or give an engine and its models: TTL(app, engine, Base)."
            )
        self._db: FlaskSQLAlchemy | Engine | Store = db
        self._targets = targets
        self._check()
        interval = app.config.get(INTERVAL_KEY)
        is_number = isinstance(interval, (int, float)) and not isinstance(interval, bool)
        if interval is not None and not (is_number and 0 < interval < float("inf")):
            raise TTLConfigurationError(
                f"{INTERVAL_KEY} = {interval!r}: give a number of seconds greater than 0, or None "
                "for no background sweeper."
            )
        self.interval = None if interval is None else float(interval)
        self._begun: dict[int, object] = {}
        self._running: list[tuple[Sweeper, threading.Thread]] = []

    def sweepers(self, **options: Unpack[SweepOptions]) -> dict[str | None, Sweeper]:
        """Make a sweeper for each database that has models with TTL, by its bind key.

        The bind keys are those of Flask-SQLAlchemy: None for the default.

        Args:
            options: Options of a `Sweeper`, which override those in ``app.config``.
        """
        merged: SweepOptions = {**self._options, **options}
        configured = self._options.keys() - options.keys()
        sweepers: dict[str | None, Sweeper] = {}
        for bind, engine, targets in self._databases():
            own = self._options_for(bind, merged)
            sweepers[bind] = _sweeper(engine, targets, own, configured)
        return sweepers

    @staticmethod
    def _options_for(bind: str | None, options: SweepOptions) -> SweepOptions:
        """Return a bind's options, with its own lease: several binds may share one database."""
        own = options.copy()
        if bind is not None:
            own["lease_name"] = f"{lease_name_of(options)}:{bind}"
        return own

    def applications(self) -> dict[str | None, Application]:
        """Return the same databases, by the same keys, for the command line's functions."""
        applications: dict[str | None, Application] = {}
        for bind, engine, targets in self._databases():
            options = self._options_for(bind, self._options)
            if isinstance(engine, Engine):
                listed = sql_targets(targets)
                url = public_url(engine.url.render_as_string(hide_password=True))
                applications[bind] = Application(engine, listed, options, url)
            else:
                applications[bind] = Application(engine, options=options)
        return applications

    def start(self) -> None:
        """Start sweeping in the background of this process; further calls do nothing.

        For server hooks that run before the first request, such as gunicorn's
        ``post_worker_init``. The sweeper ends with the process, after finishing its current batch
        and releasing the lease.

        Raises:
            TTLConfigurationError: ``TTL_SWEEP_INTERVAL`` is not set.
        """
        # setdefault() lets one thread win. A lock might be held by another thread during a fork.
        mark = object()
        if self._begun.setdefault(os.getpid(), mark) is not mark:
            return
        if self.interval is None:
            raise TTLConfigurationError(
                f"{INTERVAL_KEY} is not set, so no sweeper starts: set it to a number of seconds."
            )
        self._running = [
            (sweeper, self._thread(bind_name(bind), sweeper, self.interval))
            for bind, sweeper in self.sweepers().items()
        ]
        atexit.register(self.stop)
        for _, thread in self._running:
            thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Stop the background sweepers after their current batch, and wait for them.

        They don't start again in this process.

        Args:
            timeout: The most seconds to wait for each of them.
        """
        self._begun.setdefault(os.getpid(), self)
        atexit.unregister(self.stop)
        for sweeper, _ in self._running:
            sweeper.stop()
        for _, thread in self._running:
            if thread is not threading.current_thread():
                thread.join(timeout)

    def _thread(self, bind: str, sweeper: Sweeper, interval: float) -> threading.Thread:
        def run() -> None:
            try:
                last = sweeper.run_forever(interval=interval)
            except Exception:
                logger.exception("The sweeper of %s (%s) has ended", self._app.name, bind)
                return
            if sweeper.ended_at_standby(last):
                logger.warning(
                    "The sweeper of %s (%s) has ended, because its server takes no writes and "
                    'TTL_STANDBY is "exit". It starts again with the process',
                    self._app.name,
                    bind,
                )

        # A daemon: Python waits for other threads before atexit, where `stop` is called.
        return threading.Thread(target=run, name=f"ttl_odm sweeper ({bind})", daemon=True)

    def _databases(self) -> Iterator[tuple[str | None, Engine | Store, object]]:
        """Yield the databases with their targets: Flask-SQLAlchemy's binds, or the only one."""
        if not _is_flask_sqlalchemy(self._db):
            yield None, self._db, self._targets
            return
        with self._app.app_context():
            engines = dict(self._db.engines)
        for key, engine in sorted(engines.items(), key=lambda item: item[0] or ""):
            metadata = self._db.metadatas.get(key, MetaData())
            # A bind without TTL may be a database without a sweeper, or read-only.
            if any(binding_of(table) is not None for table in metadata.tables.values()):
                yield key, engine, metadata

    def _check(self) -> None:
        """Check the options now, although models may be declared later.

        Raises:
            TTLConfigurationError: An argument or a setting is wrong.
        """
        engines: list[Any] = [self._db]
        if _is_flask_sqlalchemy(self._db):
            if self._targets is not None:
                raise TTLConfigurationError(
                    "With Flask-SQLAlchemy, its own models are swept: leave targets out, or pass "
                    "an engine and targets: TTL(app, engine, Base)."
                )
            _sweeper(create_engine("sqlite://"), MetaData(), self._options, self._options)
            with self._app.app_context():
                engines = list(self._db.engines.values())
        else:
            if isinstance(self._db, Engine) and self._targets is None:
                raise TTLConfigurationError(
                    "TTL(app, engine) needs to know what to sweep: TTL(app, engine, Base)."
                )
            _sweeper(self._db, self._targets, self._options, self._options)
        if self._app.config.get(INTERVAL_KEY) is not None:
            for engine in engines:
                if isinstance(getattr(engine, "pool", None), (StaticPool, SingletonThreadPool)):
                    raise TTLConfigurationError(
                        f"{INTERVAL_KEY} is set, but {engine.url!r} is an in-memory database, "
                        "whose connection a thread can't share with requests: use a file, or "
                        "leave the key out."
                    )


def _is_flask_sqlalchemy(db: object) -> TypeIs[FlaskSQLAlchemy]:
    return hasattr(type(db), "engines") and hasattr(db, "metadatas")


def _sweeper(
    engine: Engine | Store, targets: object, options: SweepOptions, configured: Collection[str]
) -> Sweeper:
    """Make a sweeper; name a wrong option from ``app.config`` by its key there."""
    try:
        return Sweeper(engine, targets, **options)
    except TTLConfigurationError as error:
        message = str(error)
        for key, name in _OPTIONS.items():
            if name in configured and message.startswith((f"{name} ", f"{name}:")):
                raise TTLConfigurationError(key + message.removeprefix(name)) from error
        raise


def _options_of(app: Flask) -> SweepOptions:
    values = {key: value for key, value in app.config.items() if key.startswith(PREFIX)}
    values.pop(INTERVAL_KEY, None)
    unknown = sorted(values.keys() - _OPTIONS.keys())
    if unknown:
        # An unknown key is a typing error: a missing fuse would be noticed too late.
        known = ", ".join(sorted([INTERVAL_KEY, *_OPTIONS]))
        raise TTLConfigurationError(
            f"{unknown[0]} = {values[unknown[0]]!r}: unknown key; the keys that begin with "
            f"{PREFIX} are: {known}."
        )
    return cast("SweepOptions", {_OPTIONS[key]: value for key, value in values.items()})


def bind_name(bind: str | None) -> str:
    """Return a bind's name for people; Flask-SQLAlchemy's default has no key."""
    return "default" if bind is None else bind
