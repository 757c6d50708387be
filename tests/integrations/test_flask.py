"""The Flask extension: factories, several applications, binds, configuration, commands, thread."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import datetime, timezone
from io import BytesIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask
from flask.cli import ScriptInfo
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import create_engine
from sqlalchemy.orm import Mapped, mapped_column

from tests.guard import GUARD
from tests.sql.sweeping import HOUR, add, cart, left
from ttl_odm import TTLConfigurationError
from ttl_odm.integrations.flask import TTL
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Sweeper
from ttl_odm.testing import InMemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Engine


def model_of(db: Any, name: str = "carts", bind: str | None = None) -> Any:
    """Declare a model of Flask-SQLAlchemy with TTL."""
    attributes = {
        "__tablename__": name,
        "__ttl__": HOUR,
        "__bind_key__": bind,
        "__annotations__": {"id": Mapped[int]},
        "id": mapped_column(primary_key=True, autoincrement=False),
    }
    return type(name.title(), (TTLMixin, db.Model), attributes)


@contextmanager
def flask_app(path: Path, **config: Any) -> Iterator[Flask]:
    """Make an application with a database in a file, with no extension yet."""
    app = Flask("shop")
    app.config.update(SQLALCHEMY_DATABASE_URI=f"sqlite:///{path}", **config)
    yield app
    if "ttl_odm" in app.extensions:
        app.extensions["ttl_odm"].stop()
    if "sqlalchemy" in app.extensions:
        with app.app_context():
            for engine in app.extensions["sqlalchemy"].engines.values():
                engine.dispose()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Flask]:
    with flask_app(tmp_path / "shop.sqlite3") as made:
        yield made


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path / 'plain.sqlite3'}")
    yield made
    made.dispose()


def fill(app: Flask, db: Any, model: Any, rows: int = 3) -> None:
    """Make the tables; write expired rows, and one that is live."""
    with app.app_context():
        db.create_all()
        engine = db.engines[model.__bind_key__]
        with engine.begin() as connection:
            expired = [(number, None, 2 * HOUR) for number in range(1, rows + 1)]
            add(connection, model.__tablename__, [(0, None, 0), *expired])


def rows_of(app: Flask, db: Any, model: Any) -> set[Any]:
    with app.app_context(), db.engines[model.__bind_key__].connect() as connection:
        return left(connection, model)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for another thread or process; a minute means that it is never going to happen."""
    deadline = time.monotonic() + GUARD
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def invoke(app: Flask, *words: str) -> Any:
    result = app.test_cli_runner().invoke(args=["ttl", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


# --- plan


def test_a_plan_tells_what_another_default_would_do(app: Flask) -> None:
    db = SQLAlchemy()
    model = model_of(db)
    db.init_app(app)
    TTL(app, db)
    fill(app, db, model)
    result = invoke(app, "plan", "carts", "--default-ttl", "10800")
    assert result.exit_code == 0
    assert "Carts (carts): 4 rows\ncurrent  TTL(3600)\n" in result.output
    cells = [line.split() for line in result.output.splitlines()]
    assert ["now", "3", "0", "0.0%"] in cells
    assert ["in", "1", "h", "4", "3", "75.0%"] in cells
    assert "Expired rows that are still stored and would be visible again: 3." in result.output
    assert rows_of(app, db, model) == {0, 1, 2, 3}
    alone = invoke(app, "plan", "Carts").output
    assert "planned" not in alone
    assert "All 4 rows were counted." in alone


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody"], "MODEL 'nobody': no such model; known models: Carts."),
        (["carts", "--default-ttl", "1.5"], "--default-ttl 1.5: give whole seconds from 1 to"),
    ],
)
def test_a_plan_for_nothing_is_refused(app: Flask, words: list[str], said: str) -> None:
    db = SQLAlchemy()
    model_of(db)
    db.init_app(app)
    TTL(app, db)
    result = invoke(app, "plan", *words)
    assert result.exit_code != 0
    assert said in result.output


# --- applications


def test_an_application_factory_binds_the_database_later(app: Flask) -> None:
    db, ttl = SQLAlchemy(), TTL()
    model = model_of(db)
    db.init_app(app)
    ttl.init_app(app, db)
    fill(app, db, model)
    (sweeper,) = app.extensions["ttl_odm"].sweepers().values()
    assert sweeper.run_once().deleted == 3
    assert rows_of(app, db, model) == {0}


def test_the_flask_sqlalchemy_of_the_application_is_found(app: Flask) -> None:
    db = SQLAlchemy(app)
    TTL(app)
    model_of(db)
    assert list(app.extensions["ttl_odm"].sweepers()) == [None]


def test_models_may_be_declared_after_the_extension(app: Flask) -> None:
    db = SQLAlchemy()
    db.init_app(app)
    TTL(app, db)
    assert app.extensions["ttl_odm"].sweepers() == {}
    fill(app, db, model_of(db))
    assert "3 rows deleted" in invoke(app, "sweep").output


def test_several_applications_share_one_extension(tmp_path: Path) -> None:
    db, ttl = SQLAlchemy(), TTL()
    model = model_of(db)
    with (
        flask_app(tmp_path / "one.sqlite3", TTL_MAX_ROWS=1) as one,
        flask_app(tmp_path / "two.sqlite3") as two,
    ):
        for app in (one, two):
            db.init_app(app)
            ttl.init_app(app, db)
            fill(app, db, model)
        assert "1 row deleted" in invoke(one, "sweep").output
        assert rows_of(two, db, model) == {0, 1, 2, 3}
        assert "3 rows deleted" in invoke(two, "sweep").output
        assert len(rows_of(one, db, model)) == 3


def test_a_plain_engine_comes_with_its_models(app: Flask, engine: Engine) -> None:
    model = cart()
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])
    TTL(app, engine, model)
    assert "1 row deleted" in invoke(app, "sweep").output


def test_every_bind_is_swept_under_a_lease_of_its_own(app: Flask, tmp_path: Path) -> None:
    same = f"sqlite:///{tmp_path / 'shop.sqlite3'}"
    app.config["SQLALCHEMY_BINDS"] = {"again": same, "empty": "sqlite://"}
    db = SQLAlchemy(app)
    carts, orders = model_of(db), model_of(db, "orders", "again")
    TTL(app, db)
    fill(app, db, carts)
    fill(app, db, orders)
    first, second = app.extensions["ttl_odm"].sweepers().values()
    assert [first.status().holder, second.status().holder] == [None, None]
    output = invoke(app, "sweep").output
    assert output.count("3 rows deleted") == 2
    assert output.startswith("default:")
    assert "again:" in output
    assert "empty" not in output
    assert [first.status().token, second.status().token] == [1, 1]


# --- configuration


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("TTL_SWEEP_INTERVAL", "60", "TTL_SWEEP_INTERVAL = '60': give a number of seconds"),
        ("TTL_SWEEP_INTERVAL", 0, "TTL_SWEEP_INTERVAL = 0: give a number of seconds"),
        ("TTL_SWEEP_INTERVAL", True, "TTL_SWEEP_INTERVAL = True: give a number of seconds"),
        ("TTL_SWEEP_INTERVAL", float("nan"), "TTL_SWEEP_INTERVAL = nan: give a number of seconds"),
        ("TTL_MAX_ROWS", "5", "TTL_MAX_ROWS = '5': give a number of rows"),
        ("TTL_LEASE", "yes", "TTL_LEASE = 'yes': pass True, False"),
        ("TTL_LEASE_DURATION", -1, "TTL_LEASE_DURATION = -1: give a number"),
        ("TTL_WINDOW", "night", "TTL_WINDOW = 'night': give hours of the day"),
        ("TTL_MAX_FRACTON", 0.5, "TTL_MAX_FRACTON = 0.5: unknown key; .*TTL_MAX_FRACTION"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_to_write(
    app: Flask, key: str, value: Any, words: str
) -> None:
    SQLAlchemy(app)
    app.config[key] = value
    with pytest.raises(TTLConfigurationError, match=f"^{words}"):
        TTL(app)


def test_every_option_of_a_sweeper_has_its_key(app: Flask) -> None:
    heard: list[Any] = []
    app.config.update(
        TTL_ON_PURGED=heard.append, TTL_LEASE_NAME="shop", TTL_NICE=0.0, TTL_BATCH_SIZE=2
    )
    db = SQLAlchemy(app)
    model = model_of(db)
    TTL(app)
    fill(app, db, model)
    assert "3 rows deleted" in invoke(app, "sweep").output
    assert [(purged.table, purged.count) for purged in heard] == [("carts", 2), ("carts", 1)]
    other = Sweeper(db_engine(app), model, lease_name="shop")
    assert other.status().token == 1


def db_engine(app: Flask) -> Engine:
    with app.app_context():
        engine: Engine = app.extensions["sqlalchemy"].engine
        return engine


def test_an_application_without_a_database_says_what_is_missing(app: Flask) -> None:
    with pytest.raises(
        TTLConfigurationError, match=r"^TTL found no database in shop: .* db.init_app\(app\)"
    ):
        TTL(app)


def test_an_engine_without_models_says_what_is_missing(app: Flask, engine: Engine) -> None:
    with pytest.raises(TTLConfigurationError, match=r"TTL\(app, engine, Base\)"):
        TTL(app, engine)


def test_targets_beside_flask_sqlalchemy_are_refused(app: Flask) -> None:
    db = SQLAlchemy(app)
    with pytest.raises(TTLConfigurationError, match="leave targets out"):
        TTL(app, db, model_of(db))


def test_one_application_has_one_extension(app: Flask) -> None:
    db = SQLAlchemy(app)
    TTL(app, db)
    with pytest.raises(TTLConfigurationError, match=r"^shop already has TTL"):
        TTL(app, db)


def test_a_database_in_memory_has_no_sweeper_in_the_background(app: Flask) -> None:
    app.config.update(SQLALCHEMY_DATABASE_URI="sqlite://", TTL_SWEEP_INTERVAL=60)
    db = SQLAlchemy(app)
    with pytest.raises(TTLConfigurationError, match=r"TTL_SWEEP_INTERVAL is set, but .* a file"):
        TTL(app, db)


# --- commands


def far_from_midnight() -> str:
    """Name a time zone in which it is day."""
    return "UTC" if 6 < datetime.now(timezone.utc).hour < 18 else "Etc/GMT+12"


def test_a_dry_run_counts_and_max_rows_limits(app: Flask) -> None:
    app.config.update(TTL_WINDOW="00:00-00:01", TTL_TIMEZONE=far_from_midnight())
    db = SQLAlchemy(app)
    model = model_of(db)
    TTL(app)
    fill(app, db, model)
    assert "3 rows expired" in invoke(app, "sweep", "--dry-run").output
    assert "Outside the window" in invoke(app, "sweep").output
    app.extensions["ttl_odm"]._options.clear()
    assert "2 rows deleted" in invoke(app, "sweep", "--max-rows", "2").output
    assert len(rows_of(app, db, model)) == 2


def test_a_failure_shows_in_the_exit_status_and_force_overrules_the_fuse(app: Flask) -> None:
    app.config["TTL_MAX_FRACTION"] = 0.5
    db = SQLAlchemy(app)
    model = model_of(db)
    TTL(app)
    fill(app, db, model, rows=1001)
    blown = invoke(app, "sweep")
    assert blown.exit_code == 3
    assert "carts FAILED" in blown.output
    assert len(rows_of(app, db, model)) == 1002
    assert invoke(app, "sweep", "--force").exit_code == 0
    assert rows_of(app, db, model) == {0}


def test_status_says_what_that_of_ttl_odm_does(app: Flask, tmp_path: Path) -> None:
    db = SQLAlchemy(app)
    fill(app, db, model_of(db))
    TTL(app)
    (sweeper,) = app.extensions["ttl_odm"].sweepers().values()
    assert invoke(app, "status").output.splitlines() == [
        f"sqlite:///{tmp_path / 'shop.sqlite3'}",
        "No sweeper holds the lease. No sweep has been recorded.",
        "",
        "target  model  rows  live  expired      oldest  rate  last sweeps found",
        "carts   Carts     4     1        3  1 h 00 min     -                  -",
    ]
    sweeper.pause()
    assert "PAUSED: nothing is deleted until: flask ttl resume\n" in invoke(app, "status").output
    sweeper.resume()
    seen = []
    on_progress: Any = lambda _: seen.append(invoke(app, "status", "--json").output)  # noqa: E731
    (other,) = app.extensions["ttl_odm"].sweepers(on_progress=on_progress).values()
    other.run_once()
    found = json.loads(seen[0])
    assert f":{os.getpid()}:" in found["lease"]["holder"]
    assert found["targets"][0]["rows"] == 1


def test_a_name_that_the_encoding_lacks_is_escaped(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = SQLAlchemy(app)
    fill(app, db, model_of(db, "Küche\u2713"))
    TTL(app)
    output = TextIOWrapper(BytesIO(), encoding="latin-1")
    monkeypatch.setattr("sys.stdout", output)
    app.cli.main(["ttl", "status"], standalone_mode=False, obj=ScriptInfo(create_app=lambda: app))
    output.seek(0)
    assert "\nKüche\\u2713  " in output.read()


def test_what_can_not_be_counted_is_a_failure(app: Flask) -> None:
    db = SQLAlchemy(app)
    model_of(db)
    TTL(app)
    result = invoke(app, "status")
    assert result.exit_code == 1
    assert "! carts: There is no table 'carts'." in result.output


@pytest.mark.slow
def test_a_check_names_fixes_that_can_be_typed(app: Flask) -> None:
    db = SQLAlchemy(app)
    model = model_of(db)
    TTL(app)
    fill(app, db, model)
    result = invoke(app, "check", "--max-age", "10m")
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "error overdue",
        "  carts: expired rows are waiting to be deleted, the oldest for 1 h 00 min",
        "  > flask ttl sweep --model Carts",
        "warning never-swept",
        "  no sweep has been recorded in this database",
        "  > flask ttl run",
        "1 target checked: 1 error, 1 warning.",
    ]
    assert invoke(app, "sweep", "--model", "Carts").exit_code == 0
    result = invoke(app, "check", "--strict", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["findings"] == []
    invoke(app, "pause")
    assert invoke(app, "check", "--strict").exit_code == 1


def test_a_check_compares_replicas(app: Flask, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.sqlite3'}"
    app.config["SQLALCHEMY_BINDS"] = {"other": other}
    db = SQLAlchemy(app)
    model_of(db)
    model_of(db, "pages", "other")
    TTL(app, db)
    with app.app_context():
        db.create_all()
    found = invoke(app, "check", "--replica", other)
    assert found.exit_code == 2
    assert "by --model" in found.output
    found = invoke(app, "check", "--replica", other, "--model", "pages", "--json")
    codes = [finding["code"] for finding in json.loads(found.output)["findings"]]
    assert (found.exit_code, codes) == (0, ["never-swept"])
    found = invoke(app, "check", "--replica", "mongodb://127.0.0.1:1/shop", "--model", "pages")
    assert found.exit_code == 2
    assert "isn't of the database's kind" in found.output


def test_github_shows_what_a_check_finds(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    db = SQLAlchemy(app)
    model_of(db)
    TTL(app)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    output = invoke(app, "check").output
    assert output.startswith("::error title=ttl-odm%3A missing-table in carts::")


def test_pause_holds_for_every_sweeper_until_resume(app: Flask) -> None:
    db = SQLAlchemy(app)
    model = model_of(db)
    TTL(app)
    fill(app, db, model)
    said = "Paused: no sweeper begins another batch. Resume with: flask ttl resume\n"
    assert invoke(app, "pause").output == said
    assert "Paused: expired rows are left" in invoke(app, "sweep").output
    assert rows_of(app, db, model) == {0, 1, 2, 3}
    assert invoke(app, "resume").output == "Resumed: the sweepers continue.\n"
    assert "3 rows deleted" in invoke(app, "sweep").output


@pytest.mark.slow
def test_each_bind_speaks_for_itself_and_models_are_selected_in_all(
    app: Flask, tmp_path: Path
) -> None:
    app.config["SQLALCHEMY_BINDS"] = {"again": f"sqlite:///{tmp_path / 'again.sqlite3'}"}
    db = SQLAlchemy(app)
    carts, orders = model_of(db), model_of(db, "orders", "again")
    TTL(app, db)
    fill(app, db, carts)
    fill(app, db, orders)
    for command in ("status", "check", "pause", "resume"):
        output = invoke(app, command).output
        assert output.startswith("default:\n")
        assert "\nagain:\n" in output
    selected = invoke(app, "sweep", "--model", "orders").output
    assert "again" not in selected
    assert rows_of(app, db, orders) == {0}
    assert rows_of(app, db, carts) == {0, 1, 2, 3}
    assert "Orders (orders): 1 row" in invoke(app, "plan", "Orders").output
    refused = invoke(app, "sweep", "--model", "nobody")
    assert refused.exit_code == 2
    assert "no such model; known models: Carts, Orders." in refused.output


def test_a_store_of_ones_own_is_swept_checked_and_shown(app: Flask) -> None:
    store = InMemoryStore()
    store.create("carts", 10)
    store.put("carts", 1, age=20)
    TTL(app, store)
    assert "carts       -     1     0        1" in invoke(app, "status").output
    assert invoke(app, "check").exit_code == 0
    assert "1 row deleted" in invoke(app, "sweep").output


def test_commands_without_a_model_say_what_to_do(app: Flask) -> None:
    SQLAlchemy(app)
    TTL(app)
    result = invoke(app, "sweep")
    assert result.exit_code == 1
    assert "declare __ttl__" in result.output


def test_a_database_that_does_not_answer_is_one_line(app: Flask, tmp_path: Path) -> None:
    app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{tmp_path / 'nowhere' / 'shop.sqlite3'}"
    db = SQLAlchemy(app)
    model_of(db)
    TTL(app)
    for command in ("status", "sweep"):
        result = invoke(app, command)
        assert result.exit_code == 1
        assert "unable to open database file" in result.output


SHOP = """
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import Mapped, mapped_column
from ttl_odm.integrations.flask import TTL
from ttl_odm.sqlalchemy import TTLMixin

app = Flask("shop")
app.config.from_prefixed_env()
db = SQLAlchemy(app)
class Cart(TTLMixin, db.Model):
    __tablename__ = "carts"
    __ttl__ = 3600
    id: Mapped[int] = mapped_column(primary_key=True)
TTL(app, db)
"""


@pytest.mark.slow
def test_run_sweeps_until_sigterm_and_gives_the_lease_back(app: Flask, tmp_path: Path) -> None:
    db = SQLAlchemy(app)
    model = model_of(db)
    TTL(app)
    fill(app, db, model)
    (tmp_path / "shop.py").write_text(SHOP)
    environment = {
        **os.environ,
        "FLASK_SQLALCHEMY_DATABASE_URI": app.config["SQLALCHEMY_DATABASE_URI"],
    }
    command = [sys.executable, "-m", "flask", "--app", "shop", "ttl", "run", "--interval", "0.1"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: rows_of(app, db, model) == {0})
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=GUARD)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "3 rows deleted" in output
    assert "No sweeper holds the lease." in invoke(app, "status").output


# --- the thread


def sweeping_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("ttl_odm sweeper")]


@pytest.fixture
def background(tmp_path: Path) -> Iterator[tuple[Flask, Any, Any]]:
    with flask_app(tmp_path / "shop.sqlite3", TTL_SWEEP_INTERVAL=0.05) as app:
        db = SQLAlchemy(app)
        model = model_of(db)
        TTL(app)
        fill(app, db, model)
        app.add_url_rule("/", view_func=lambda: "shop")
        yield app, db, model


def test_the_first_request_starts_the_sweeper_and_stop_ends_it(
    background: tuple[Flask, Any, Any],
) -> None:
    app, db, model = background
    assert sweeping_threads() == []  # as in a server that loads it before it forks
    for _ in range(2):
        assert app.test_client().get("/").text == "shop"
    assert len(sweeping_threads()) == 1
    wait_until(lambda: rows_of(app, db, model) == {0})
    app.extensions["ttl_odm"].stop()
    assert sweeping_threads() == []
    assert "No sweeper holds the lease." in invoke(app, "status").output
    app.test_client().get("/")
    assert sweeping_threads() == []


def test_requests_at_once_start_one_sweeper(background: tuple[Flask, Any, Any]) -> None:
    app, _, _ = background
    gate = threading.Barrier(8)

    def ask() -> None:
        gate.wait()
        app.test_client().get("/")

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len(sweeping_threads()) == 1


def test_nothing_runs_in_the_background_unless_asked_for(app: Flask) -> None:
    db = SQLAlchemy(app)
    model = model_of(db)
    TTL(app)
    fill(app, db, model)
    app.add_url_rule("/", view_func=lambda: "shop")
    app.test_client().get("/")
    assert sweeping_threads() == []
    with pytest.raises(TTLConfigurationError, match="TTL_SWEEP_INTERVAL is not set"):
        app.extensions["ttl_odm"].start()


def test_a_sweeper_that_ends_by_an_error_is_logged(
    background: tuple[Flask, Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    app, _, _ = background

    def broken(_: object) -> None:
        raise ZeroDivisionError

    made = app.extensions["ttl_odm"]
    made._options["on_report"] = broken
    made.start()
    wait_until(lambda: "The sweeper of shop (default) has ended" in caplog.text)
    assert "ZeroDivisionError" in caplog.text
