"""`ttl-odm sweep`, `run`, `pause` and `resume`, and where they find what to work on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import func, select, text

from tests.cli import shop
from tests.cli.running import (
    CliRunner,
    as_json,
    command,
    complaints,
    on_a_terminal,
    run,
    variables,
)
from tests.guard import GUARD
from tests.sql.sweeping import HOUR, add
from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy import include_expired
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result
    from sqlalchemy import Engine

    from tests.backends import Backend

sqlite = pytest.mark.databases("sqlite")


@pytest.fixture
def url(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> str:
    """A filled database; its URL is also in the environment."""
    for variable in [each for each in os.environ if each.startswith("TTL_ODM_")]:
        monkeypatch.delenv(variable)
    shop.fill(engine)
    found = engine.url.render_as_string(hide_password=False)
    monkeypatch.setenv("SHOP_URL", found)
    return found


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def swept(*arguments: str) -> dict[str, Any]:
    """The report of a sweep that ends well."""
    finished = call("sweep", *arguments, "--json")
    assert finished.exit_code == 0, finished.output
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def stored(engine: Engine, model: Any = shop.WebSession) -> int:
    with engine.connect() as connection:
        counted = select(func.count()).select_from(model).options(include_expired())
        return int(connection.execute(counted).scalar_one())


@pytest.mark.slow
def test_it_deletes_what_has_expired_and_prints_the_report(engine: Engine, url: str) -> None:
    finished = run("sweep", "--app", "tests.cli.shop:Base", "--url", url)
    assert (finished.returncode, complaints(finished)) == (0, "")
    assert "20 rows deleted" in finished.stdout
    assert re.search(r"^  carts +10 ", finished.stdout, re.MULTILINE)
    assert [stored(engine, each) for each in (shop.WebSession, shop.Cart, shop.Wish)] == [5, 5, 15]


@sqlite
def test_a_dry_run_counts_and_deletes_nothing_whoever_has_the_lease(
    engine: Engine, url: str
) -> None:
    assert SQLAlchemyStore(engine, shop.Base).leases.acquire("ttl_odm", "somebody", 86_400)
    report = swept("--app", "tests.cli.shop:Base", "--url", url, "--dry-run")
    assert (report["dry_run"], report["due"], report["deleted"]) == (True, 20, 0)
    assert stored(engine) == 15


@sqlite
@pytest.mark.parametrize(
    ("arguments", "tables"),
    [
        (["--model", "Cart"], ["carts"]),
        (["--model", "web_sessions"], ["web_sessions"]),
        (["--except", "Cart", "--except", "Wish"], ["web_sessions"]),
    ],
)
def test_models_are_chosen_by_their_name_or_their_tables(
    url: str, arguments: list[str], tables: list[str]
) -> None:
    report = swept("--app", "tests.cli.shop:Base", "--url", url, *arguments)
    assert [each["table"] for each in report["targets"]] == tables


@sqlite
def test_the_exit_status_tells_what_happened(engine: Engine, url: str) -> None:
    app = ["sweep", "--app", "tests.cli.shop:Base", "--url", url]
    with engine.begin() as connection:
        rows = [{"n": key} for key in range(2000)]
        connection.execute(
            text("INSERT INTO carts (id, _ts) VALUES (-:n - 1, 0)"),
            rows,
        )
    leases = SQLAlchemyStore(engine, shop.Base).leases
    held = leases.acquire("ttl_odm", "somebody", 86_400)
    assert held is not None
    finished = call(*app)
    assert (finished.exit_code, "somebody" in finished.stdout) == (4, True)
    leases.release(held)

    finished = call(*app, "--max-fraction", "0.5")
    assert finished.exit_code == 3
    assert "carts FAILED: 2,010 rows have expired" in finished.stdout
    assert stored(engine) == 5
    assert call(*app, "--max-fraction", "0.5", "--force").exit_code == 0

    with engine.begin() as connection:
        connection.execute(text("DROP TABLE carts"))
    finished = call(*app)
    assert finished.exit_code == 0
    assert "carts is MISSING: the database has no such table." in finished.stdout

    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE carts (id INT PRIMARY KEY)"))
    finished = call(*app)
    assert finished.exit_code == 1
    assert "carts FAILED" in finished.stdout


def test_pausing_stops_every_sweeper_until_it_is_resumed(engine: Engine, url: str) -> None:
    app = ["--app", "tests.cli.shop:Base", "--url", url]
    paused = call("pause", *app)
    assert (paused.exit_code, "Paused" in paused.stdout) == (0, True)
    finished = call("sweep", *app)
    assert (finished.exit_code, "Paused" in finished.stdout) == (0, True)
    assert stored(engine) == 15
    assert json.loads(call("resume", *app, "--json").stdout)["paused"] is False
    assert swept(*app)["deleted"] == 20


@pytest.mark.slow
@sqlite
def test_a_signal_lets_a_sweep_finish_its_batch(engine: Engine, url: str) -> None:
    app = ["--app", "tests.cli.shop:Base", "--url", url, "--model", "Cart"]
    slow = ["--batch-size", "2", "--max-rows-per-second", "2", "--json"]
    with started("sweep", *app, *slow) as process:
        while stored(engine, shop.Cart) == 15:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=GUARD)
    report = json.loads(said)
    assert process.returncode == 0
    assert report["ended"] == "stopped"
    assert 0 < report["deleted"] < 10
    assert stored(engine, shop.Cart) == 15 - report["deleted"]


@pytest.mark.slow
@sqlite
def test_run_sweeps_until_it_is_told_to_end(engine: Engine, url: str) -> None:
    app = ["--app", "tests.cli.shop:Base", "--url", url]
    with started("run", *app, "--interval", "0.1", "--json") as process:
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=GUARD)
    assert (process.returncode, first["deleted"], second["deleted"]) == (0, 20, 0)
    assert "INFO Swept 2 tables" in log
    assert log.splitlines()[-1].endswith("INFO Stopped by a signal; the lease is free.")
    assert "Traceback" not in log
    assert stored(engine) == 5
    assert SQLAlchemyStore(engine, shop.Base).leases.read("ttl_odm").holder is None


@pytest.mark.slow
def test_run_logs_a_lost_database_in_one_line_and_its_own_stop() -> None:
    nobody = "postgresql+psycopg://127.0.0.1:1/shop"
    with started("run", "--app", "tests.cli.shop:Base", "--url", nobody) as process:
        assert process.stderr is not None
        lost = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=GUARD)
    assert " WARNING The database doesn't answer (Acquire); retrying: " in lost
    # Without a connection there is no lease to give back.
    assert [line.split(" ", 2)[2] for line in log.splitlines()][-1] == (
        "INFO Stopped by a signal; the lease is free."
    )


@pytest.mark.slow
@sqlite
def test_a_run_that_has_waited_for_the_lease_is_done_after_a_signal(
    engine: Engine, url: str
) -> None:
    swept("--app", "tests.cli.shop:Base", "--url", url)  # makes the table of the lease
    assert SQLAlchemyStore(engine, shop.Base).leases.acquire("ttl_odm", "another", HOUR) is not None
    with started("run", "--app", "tests.cli.shop:Base", "--url", url, "--json") as process:
        assert process.stdout is not None
        report = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=GUARD)
    assert (report["ended"], process.returncode) == ("lease_held", 0)


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_run_ends_at_a_standby_if_it_is_to_exit_there(engine: Engine, url: str) -> None:
    app = ["--app", "tests.cli.shop:Base", "--url"]
    swept(*app, url)  # makes the table of the lease
    read_only = engine.url.update_query_dict({"options": "-c default_transaction_read_only=on"})
    standby = read_only.render_as_string(hide_password=False)
    finished = run("run", *app, standby, "--standby", "exit")
    assert finished.returncode == 5
    assert finished.stderr.splitlines()[-1].endswith("INFO Ended at a standby, as configured.")


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables(),
    )


@pytest.mark.slow
@sqlite
@pytest.mark.parametrize(("reply", "left"), [("n\n", 15), ("y\n", 5)])
def test_on_a_terminal_it_counts_asks_and_shows_a_bar(
    engine: Engine, url: str, reply: str, left: int
) -> None:
    status, screen = on_a_terminal(
        command("sweep", "--app", "tests.cli.shop:Base", "--url", url), reply
    )
    assert status == 0, screen
    assert "Delete 20 rows? [y/N]: " in screen
    assert "20 rows expired" in screen
    assert ("10/10" in screen) is (left == 5)
    assert ("Nothing was deleted" in screen) is (left == 15)
    assert stored(engine) == left


@pytest.mark.slow
@sqlite
def test_the_question_respects_the_limit_of_the_application(engine: Engine, url: str) -> None:
    status, screen = on_a_terminal(command("sweep", "--app", "tests.cli.shop:pair"), "n\n")
    assert (status, "Delete 4 rows? [y/N]: " in screen) == (0, True), screen


@pytest.mark.slow
@sqlite
def test_on_a_terminal_it_asks_for_no_rows_that_the_fuse_keeps(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        add(connection, "carts", [(key, None, 26 * HOUR) for key in range(100, 1200)])
    app = ["--app", "tests.cli.shop:Base", "--url", url, "--max-fraction", "0.1"]
    status, screen = on_a_terminal(command("sweep", *app), "y\n")
    assert status == 3, screen
    assert "carts FAILED: 1,110 rows have expired, more than max_fraction=0.1" in screen
    assert "Delete 10 rows? [y/N]: " in screen  # the sessions
    status, screen = on_a_terminal(command("sweep", *app), "y\n")
    assert status == 3, screen
    assert "Delete" not in screen
    assert screen.count("carts FAILED") == 1


@pytest.mark.slow
@sqlite
def test_on_a_terminal_the_fuse_knows_what_the_last_sweeps_found(engine: Engine, url: str) -> None:
    app = ["--app", "tests.cli.shop:Base", "--url", url]
    for _ in range(3):
        swept(*app)
    with engine.begin() as connection:
        add(connection, "carts", [(key, None, 26 * HOUR) for key in range(100, 1200)])
    status, screen = on_a_terminal(command("sweep", *app, "--max-jump", "2"), "y\n")
    assert status == 3, screen
    assert "carts FAILED: 1,100 rows have expired, more than max_jump=2 times 10 rows" in screen
    assert "Delete" not in screen


@sqlite
def test_a_dry_run_says_how_many_rows_there_are_where_none_has_expired(url: str) -> None:
    app = ["--app", "tests.cli.shop:Base", "--url", url]
    assert swept(*app, "--model", "Cart")["deleted"] == 10
    shown = call("sweep", *app, "--dry-run").stdout
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("  carts"))
    assert row == ["carts", "0", "5", "-"]


@sqlite
def test_pyproject_has_defaults_that_the_environment_and_options_overrule(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project" / "deep"
    folder.mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text(
        '[tool.ttl_odm]\napp = "tests.cli.shop:Base"\nurl = "$SHOP_URL"\n'
        '[tool.ttl_odm.sweep]\nmax_rows = 3\nmodels = ["Cart"]\n'
    )
    monkeypatch.chdir(folder)
    assert swept()["deleted"] == 3
    monkeypatch.setenv("TTL_ODM_SWEEP_MAX_ROWS", "2")
    assert swept()["deleted"] == 2
    assert swept("--max-rows", "1")["deleted"] == 1
    monkeypatch.delenv("SHOP_URL")
    finished = call("sweep")
    assert finished.exit_code == 2
    assert "the environment variable SHOP_URL is not set" in finished.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[tool.ttl_odm]\nap = 1\n", "has an unknown key 'ap'; did you mean 'app'?"),
        ("[tool.ttl_odm.swep]\nmax_rows = 1\n", "has an unknown key 'swep'"),
        ("[tool.ttl_odm.sweep]\nmax_row = 1\n", "did you mean 'max_rows'?"),
        ("[tool", "can't be read"),
        ("[tool.ttl_odm.sweep]\nmax_rows = 'x'\n", "'x' is not a valid integer"),
        ("[tool.ttl_odm.sweep]\nmax_rows = [1]\n", "max_rows = [1]: give a number"),
        ("[tool.ttl_odm.sweep]\nmax_seconds = 2020-01-01\n", "give a number"),
        ("[tool.ttl_odm.sweep]\nmax_rows = true\n", "max_rows = True: give a number"),
        ("[tool.ttl_odm.sweep]\nmax_rows = 1.5\n", "max_rows = 1.5: give a whole number"),
        ("[tool.ttl_odm.plan]\nhtml = 1\n", "html = 1: give a string"),
        ("[tool.ttl_odm.check]\nmax_age = true\n", "max_age = True: give a number"),
        ("[tool.ttl_odm.sweep]\nforce = 1\n", "force = 1: give true or false"),
        ("[tool.ttl_odm.sweep]\nmodels = 'Cart'\n", "models = 'Cart': give a list of names"),
    ],
)
def test_mistakes_in_pyproject_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, said: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(content)
    monkeypatch.chdir(tmp_path)
    finished = call("sweep")
    assert finished.exit_code == 2
    assert said in " ".join(finished.stderr.split())


def test_a_variable_of_a_command_that_no_option_has_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TTL_ODM_SWEEP_SERVICE_HOST", "10.0.0.1")  # Kubernetes sets such ones
    monkeypatch.setenv("TTL_ODM_SWEEP_MODEL", "Cart")
    finished = call("sweep")
    assert finished.exit_code == 2
    said = "has an unknown key 'TTL_ODM_SWEEP_MODEL'; did you mean 'TTL_ODM_SWEEP_MODELS'?"
    assert said in " ".join(finished.stderr.split())


@sqlite
def test_an_app_may_be_a_function_with_options_of_its_own(url: str) -> None:
    assert swept("--app", "tests.cli.shop:pair")["deleted"] == 4
    assert swept("--app", "tests.cli.shop:pair", "--max-rows", "1")["deleted"] == 1
    assert swept("--app", "tests.cli.shop:managed")["deleted"] == 15


@sqlite
def test_a_callback_of_the_app_is_called_beside_those_of_the_command(url: str) -> None:
    shop.told.clear()
    swept("--app", "tests.cli.shop:listening")
    assert {each.table for each in shop.told} == {"web_sessions", "carts"}


def test_a_store_of_ones_own_is_swept_checked_and_shown() -> None:
    app = ["--app", "tests.cli.shop:stored"]
    assert swept(*app)["deleted"] == 1
    (target,) = json.loads(call("status", *app, "--json").stdout)["targets"]
    assert (target["target"], target["expired"]) == ("carts", 1)
    assert call("check", *app).exit_code == 0
    finished = call("sweep", *app, "--model", "carts")
    assert finished.exit_code == 2
    assert "can't be used with a custom store" in finished.stderr


def test_asynchronous_engines_are_swept(
    async_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert async_backend.async_url is not None
    if async_backend.sync_url:
        # Made by the synchronous driver: a test that waits can't run the command's own loop.
        from sqlalchemy import create_engine

        engine = create_engine(async_backend.sync_url)
        shop.fill(engine)
        engine.dispose()
    monkeypatch.setenv("SHOP_URL", async_backend.async_url)
    finished = call("sweep", "--app", "tests.cli.shop:managed_async", "--json")
    report = json.loads(finished.stdout)
    assert (finished.exit_code, report["deleted"]) == (0, 20 if async_backend.sync_url else 0)
    missing = {target["missing"] for target in report["targets"]}
    assert missing == {not async_backend.sync_url}


@pytest.mark.slow
def test_documents_of_a_union_doc_are_swept(mongodb: Any) -> None:
    url, database = mongodb
    database["papers"].insert_one({"_id": 1, "_ts": datetime(2020, 1, 1, tzinfo=timezone.utc)})
    finished = call("sweep", "--app", "tests.cli.documents:PAPERS", "--url", url, "--json")
    assert finished.exit_code == 0, finished.output
    (target,) = json.loads(finished.stdout)["targets"]
    assert (target["table"], target["deleted"]) == ("papers", 1)


def test_a_list_that_lacks_a_class_is_told(mongodb: Any) -> None:
    url, _ = mongodb
    finished = call("sweep", "--app", "tests.cli.documents:Slip", "--url", url)
    assert finished.exit_code == 2, finished.output
    assert "or a view reads a class, that the list lacks" in finished.stderr.replace("\n", " ")


@pytest.mark.slow
def test_documents_are_swept_paused_and_shown(mongodb: Any) -> None:
    url, database = mongodb
    born = datetime.now(timezone.utc) - timedelta(hours=2)
    database["events"].insert_many([{"_id": key, "_ts": born} for key in range(7)])
    app = ["--app", "tests.cli.documents:MODELS", "--url", url]
    assert call("pause", *app).exit_code == 0
    seen = json.loads(call("status", *app, "--json").stdout)
    assert seen["lease"]["paused"] is True
    (target,) = seen["targets"]
    assert (target["model"], target["rows"], target["expired"]) == ("Event", 7, 7)
    assert call("resume", *app).exit_code == 0
    assert as_json(run("sweep", *app, "--json"))["deleted"] == 7
    assert database["events"].count_documents({}) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "Specify what to work on: give --app module:Base"),
        (["--app", "tests.cli.shop:Base"], 2, "doesn't say where the database is"),
        (["--app", "tests.cli.shop:Base", "--url", ""], 2, "the database URL is empty. If it"),
        (
            ["--app", "tests.cli.shop:EMPTY", "--url", "sqlite://"],
            2,
            "no model with a TTL: declare __ttl__ on one or enable() it. Usually the models",
        ),
        (["--app", "tests.cli.shop:nothing"], 2, "nothing() must return an engine"),
        (
            ["--app", "tests.cli.shop:pair", "--url", "sqlite://"],
            2,
            "which chooses the database itself",
        ),
        (["--app", "tests.cli.shop:failing"], 2, "calling it failed with KeyError: 'SHOP_URL'"),
        (["--app", "tests.cli.shop:wrong_option"], 2, "A sweeper has no option 'max_row'"),
        (["--app", "tests.cli.shop:Base", "--url", "sqlite://", "--max-rows", "0"], 2, "max_rows"),
        (
            ["--app", "tests.cli.shop:Base", "--url", "sqlite://", "--dry-run", "--window", "9-5"],
            2,
            "window = '9-5'",
        ),
        (
            ["--app", "tests.cli.shop:Base", "--url", "sqlite://", "--dry-run", "--timezone", "X"],
            2,
            "timezone = 'X'",
        ),
        (["--app", "tests.cli.shop:Base", "--url", "postgresql://u:secret"], 2, "//u:***' is no"),
        (
            ["--app", "tests.cli.shop:Base", "--url", "sqlite://", "--model", "Crat"],
            2,
            "known models: Wish, WebSession, Cart; did you mean 'Cart'?",
        ),
        (
            ["--app", "tests.cli.shop:WebSession", "--url", "sqlite://", "--except", "WebSession"],
            2,
            "leave nothing to work on",
        ),
        (
            ["--app", "tests.cli.shop:Base", "--url", "postgresql://u:secret@127.0.0.1:1/d"],
            1,
            "Error: ",
        ),
        (
            ["--app", "tests.cli.shop:Base", "--url", "mongodb://u:secret@127.0.0.1:1/d"],
            2,
            "give a list of document classes",
        ),
    ],
)
def test_mistakes_are_told_in_a_line(arguments: list[str], status: int, said: str) -> None:
    finished = call("sweep", *arguments)
    assert finished.exit_code == status, finished.output
    assert said in finished.stderr
    assert "secret" not in finished.output
    assert "Traceback" not in finished.output
