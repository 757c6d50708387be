"""`ttl-odm status`: targets, lease, last sweep."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from tests.cli import shop
from tests.cli.running import CliRunner, command, variables
from tests.guard import GUARD
from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sweeper.batch_gate import History
from ttl_odm.sweeper.leases import LeaseState
from ttl_odm.sweeper.snapshot import Counts, Snapshot, format_snapshot
from ttl_odm.sweeper.text import aligned

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ttl_odm.testing import TTLClock


@pytest.fixture
def app(engine: Engine, ttl_clock: TTLClock) -> list[str]:
    ttl_clock.freeze()
    shop.fill(engine)
    url = engine.url.render_as_string(hide_password=False)
    return ["--app", "tests.cli.shop:Base", "--url", url]


def test_it_shows_targets_the_lease_and_the_last_sweep(engine: Engine, app: list[str]) -> None:
    seen = json.loads(CliRunner().invoke(cli, ["status", *app, "--json"]).stdout)
    targets = {each["target"]: each for each in seen["targets"]}
    assert targets["carts"]["last_rows_per_second"] is None
    assert targets["carts"]["rows_are_estimated"] is False
    assert (targets["carts"]["rows"], targets["carts"]["expired"]) == (15, 10)
    assert targets["carts"]["oldest_expired_age"] == pytest.approx(7200)
    assert targets["wishes"]["is_on"] is False
    assert seen["lease"]["last_sweep_seconds_ago"] is None

    assert CliRunner().invoke(cli, ["sweep", *app]).exit_code == 0
    assert SQLAlchemyStore(engine, shop.Base).leases.acquire("ttl_odm", "node-7", 86_400)
    finished = CliRunner().invoke(cli, ["status", *app])
    assert finished.exit_code == 0
    assert "node-7 holds the lease, which expires in" in finished.stdout
    assert "Last sweep" in finished.stdout
    rows = {line.split()[0]: line.split() for line in finished.stdout.splitlines() if line}
    *counts, rate, found = rows["carts"][1:]
    assert (counts, found) == (["Cart", "5", "5", "0", "-"], "10")
    assert re.fullmatch(r"[\d,]+/s", rate)
    assert "TTL is off" in finished.stdout


@pytest.mark.databases("sqlite")
def test_a_target_that_can_not_be_counted_is_a_failure(engine: Engine, app: list[str]) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE carts"))
    finished = CliRunner().invoke(cli, ["status", *app])
    assert finished.exit_code == 1
    assert "! carts: " in finished.stdout
    assert "15" in finished.stdout  # the others are shown


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_watching_looks_again_until_it_is_interrupted(app: list[str]) -> None:
    with subprocess.Popen(
        command("status", *app, "--watch", "0.1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables(),
    ) as process:
        assert process.stdout is not None
        heads: list[str] = []
        while len(heads) < 2:
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            heads += [line] if line.startswith("target ") else []
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=GUARD)
    assert (process.returncode, errors) == (0, "")
    assert ["change" in each for each in heads] == [False, True]


def test_two_looks_tell_how_fast_the_expired_rows_grow_or_shrink() -> None:
    before = Snapshot(None, None, [Counts("carts", "Cart", rows=200, expired=90)], at=10.0)
    now = [
        Counts("carts", "Cart", rows=200_000, is_estimated=True, expired=40),
        Counts("wishes", "Wish", problem="gone"),
    ]
    screen = format_snapshot(Snapshot(None, None, now, at=12.0), str, None, before)
    rows = {line.split()[0]: line.split() for line in screen.splitlines() if line}
    assert rows["carts"][2:6] == ["~200,000", "~199,960", "40", "-25/s"]
    assert rows["wishes"][2:6] == ["?", "?", "?", "-"]


def test_the_last_three_sweeps_are_shown() -> None:
    lease = LeaseState(history=History({"carts": [11, 12, 13, 1_400]}).dumps())
    screen = format_snapshot(Snapshot(None, lease, [Counts("carts", "Cart")], at=1.0), str, None)
    assert screen.splitlines()[-1].endswith(" 12 13 1,400")
    assert " 11 " not in screen


def test_a_table_that_is_too_wide_is_told_row_by_row() -> None:
    rows = [("name", "rows"), ("a", "1"), ("long", "20")]
    assert aligned(rows, None) == "name  rows\na        1\nlong    20"
    assert aligned(rows, 8) == "name  a\nrows  1\n\nname  long\nrows  20"
