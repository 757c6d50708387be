"""``manage.py ttl_sweep``, ``ttl_status`` and its like: what they print, how they end; hooks."""

from __future__ import annotations

import json
import time
from io import BytesIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.django_app import project
from tests.django_app.data import fill, kill, raw
from tests.django_app.shop.models import Line, Order, Receipt, Seat, Session
from ttl_odm.django import Archive, DjangoStore, TTLIndex, keep_last_modified
from ttl_odm.django.checks import check_policies
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import Counted, Hook, Purged, Skip, Sweeper, UnreachableStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test.utils import CaptureQueriesContext

    from tests.backends import Backend


def swept(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[Any, list[Any]]:
    """Run the command, and return its exit status and what it printed."""
    capsys.readouterr()
    status: Any = 0
    try:
        call_command("ttl_sweep", "--json", *options)
    except SystemExit as end:
        status = end.code
    except CommandError as error:
        return error.returncode, [str(error)]
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def checked(
    capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, dict[tuple[str, str | None], Any]]:
    """Check, and return the exit status and the findings by their codes and tables."""
    capsys.readouterr()
    status = 0
    try:
        call_command("ttl_check", "--json", *options)
    except SystemExit as end:
        status = int(end.code or 0)
    (content,) = map(json.loads, capsys.readouterr().out.splitlines())
    return status, {(each["code"], each["target"]): each for each in content["findings"]}


def apply_reported_fix(code: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Let a deep check end with this finding, and run the statement that it offers."""
    status, findings = checked(capsys, "--deep", "--model", "shop.Session")
    finding = findings[code, "shop_session"]
    assert (status, finding["message"]) == (1, message)
    raw(finding["fix"])


@pytest.mark.slow
def test_everything_that_has_expired_is_purged(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    fill()
    live = {model: model.objects.count() for model in (Session, Seat)}
    status, (report,) = swept(capsys, "--dry-run")
    assert (status, report["due"] > 15, report["deleted"]) == (0, True, 0)
    status, (report,) = swept(capsys)
    assert (status, report["database"], report["error"]) == (0, "default", None)
    assert {model: model.all_objects.count() for model in live} == live
    status, (report,) = swept(capsys)
    assert (status, report["deleted"]) == (0, 0)


@pytest.mark.slow
def test_exit_statuses_say_what_went_wrong(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Session(pk=number, key=str(number)) for number in range(1, 1102)]
    Session.objects.bulk_create(rows)
    raw("UPDATE shop_session SET _ts = %s", [_epoch()])
    one = ("--model", "shop.Session")
    assert swept(capsys, *one, "--max-fraction", "0.5")[0] == 3
    leases = DjangoStore("default").leases
    lease = leases.acquire("ttl_odm", "somebody", 86_400)
    assert lease is not None
    assert swept(capsys, *one)[0] == 4
    leases.release(lease)
    assert swept(capsys, "--model", "shop.User")[0] == 2
    assert swept(capsys, *one, "--max-rows", "0")[0] == 2
    assert swept(capsys, *one, "--max-rows", "1")[1][0]["deleted"] == 1
    assert swept(capsys, *one, "--max-fraction", "0.5", "--force")[0] == 0
    assert not Session.all_objects.exists()
    raw("DROP TABLE shop_seat")
    try:
        status, (report,) = swept(capsys, "--model", "shop.Seat", "--model", "shop_nick")
        missing = {target["table"]: target["missing"] for target in report["targets"]}
        assert (status, missing) == (0, {"shop_seat": True, "shop_nick": False})
        raw("CREATE TABLE shop_seat (id INT PRIMARY KEY)")
        assert swept(capsys, "--model", "shop.Seat", "--model", "shop_nick")[0] == 1
        raw("DROP TABLE shop_seat")
        assert swept(capsys, "--except", "shop.Seat")[0] == 0
    finally:
        with connections["default"].schema_editor() as editor:
            editor.create_model(Seat)


def _epoch() -> Any:
    from ttl_odm.dialects import EPOCH
    from ttl_odm.django.time import clock

    connection = connections["default"]
    return clock.to_storage(connection, EPOCH.replace(year=2020))


def test_a_report_shows_no_password_of_an_error(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(_: Purged) -> None:
        raise RuntimeError("no redis://user:secret@host")

    Seat.__ttl_on_purged__ = tell
    try:
        Seat.objects.create(pk=1, row="a", number=1)
        kill(Seat, [1])
        for words in ((), ("--json",)):
            with pytest.raises(SystemExit):
                call_command("ttl_sweep", "--model", "shop.Seat", *words)
            shown = capsys.readouterr().out
            assert "redis://user:***@host" in shown
            assert "secret" not in shown
    finally:
        Seat.__ttl_on_purged__ = None


def test_the_status_says_what_is_left_and_who_sweeps(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    Session.objects.create(pk=1, key="a")
    Session.objects.create(pk=2, key="b")
    kill(Session, [1], 2 * 3600)
    call_command("ttl_status", "--model", "shop.Session", "--json")
    found = json.loads(capsys.readouterr().out)
    (target,) = found["targets"]
    counts = (target["target"], target["model"], target["rows"], target["expired"])
    assert counts == ("shop_session", "shop.Session", 2, 1)
    assert 3600 <= target["oldest_expired_age"] < 3700
    assert (found["database"], found["lease"]["holder"]) == ("default", None)
    call_command("ttl_sweep", "--model", "shop.Session")
    call_command("ttl_status", "--model", "shop.Session")
    told = capsys.readouterr().out
    assert "No sweeper holds the lease. Last sweep" in told
    *_, row = (line for line in told.splitlines() if line.startswith("shop_session"))
    assert row.split()[:6] == ["shop_session", "shop.Session", "1", "1", "0", "-"]


def test_what_can_not_be_counted_is_a_failure(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    raw("DROP TABLE shop_seat")
    try:
        with pytest.raises(SystemExit) as ended:
            call_command("ttl_status", "--model", "shop.Seat", "--model", "shop.Session")
        assert ended.value.code == 1
        told = capsys.readouterr().out
        assert "\n! shop_seat: There is no table 'shop_seat'." in told
        assert "\nshop_session  " in told
        status, findings = checked(capsys, "--model", "shop.Seat")
        assert (status, findings["missing-table", "shop_seat"]["severity"]) == (1, "error")
    finally:
        with connections["default"].schema_editor() as editor:
            editor.create_model(Seat)


def test_both_counts_are_of_one_statement(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    Session.objects.bulk_create([Session(pk=number, key=str(number)) for number in range(1, 8)])
    kill(Session, [1, 2, 3])
    keep_last_modified(Session.objects.filter(pk=7)).update(ttl=60)
    kill(Session, [7])
    store = DjangoStore("default", Session)
    with django_queries() as sent:
        assert store.count("shop_session") == Counted(4, 7)
    counting = [query["sql"] for query in sent.captured_queries if "COUNT(" in query["sql"]]
    assert len(counting) == 1


@pytest.mark.parametrize("command", ["ttl_status", "ttl_check"])
def test_no_model_is_said_to_be_none(
    backend: Backend, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    call_command(command, "--model", "shop.Session", "--except", "shop.Session")
    assert "no model with a policy" in capsys.readouterr().err


def test_a_check_names_fixes_that_can_be_typed(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    Session.objects.create(pk=1, key="a")
    kill(Session, [1], 2 * 3600)
    one = ("--model", "shop.Session", "--lease-name", "mine")
    with pytest.raises(SystemExit) as ended:
        call_command("ttl_check", *one, "--max-age", "10m")
    assert ended.value.code == 1
    assert capsys.readouterr().out.splitlines() == [
        "default:",
        "error overdue",
        "  shop_session: expired rows are waiting to be deleted, the oldest for 1 h 00 min",
        "  > python manage.py ttl_sweep --lease-name mine --model shop.Session",
        "warning never-swept",
        "  no sweep has been recorded in this database",
        "  > python manage.py ttl_sweep --every 60 --lease-name mine",
        "1 target checked: 1 error, 1 warning.",
    ]
    assert checked(capsys, *one)[0] == 0
    assert checked(capsys, *one, "--strict")[0] == 1
    call_command("ttl_sweep", *one)
    assert checked(capsys, *one, "--strict") == (0, {})
    with pytest.raises(CommandError, match="greater than 0") as refused:
        call_command("ttl_check", "--max-age", "0")
    assert refused.value.returncode == 2


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_name_that_the_encoding_lacks_is_escaped(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    name = "Küche\u2713"

    def shown(*words: str) -> str:
        output = TextIOWrapper(BytesIO(), encoding=encoding)
        monkeypatch.setattr("sys.stdout", output)
        execute_from_command_line(["manage.py", *words, "--lease-name", name])
        output.seek(0)
        return output.read()

    escaped = name.encode(encoding, "backslashreplace").decode(encoding)
    for words in (("ttl_pause",), ("ttl_status",), ("ttl_check", "--model", "shop.Session")):
        assert f"ttl_resume --lease-name '{escaped}'\n" in shown(*words)
    assert json.loads(shown("ttl_sweep", "--model", "shop.Seat", "--json"))["ended"] == "paused"


@pytest.fixture
def in_berlin(backend: Backend) -> Iterator[None]:
    """A database whose DateTimeFields are in local time."""
    connection = connections["default"]
    before = connection.settings_dict["TIME_ZONE"]
    connection.settings_dict["TIME_ZONE"] = "Europe/Berlin"
    vars(connection).pop("timezone", None)
    yield
    connection.settings_dict["TIME_ZONE"] = before
    vars(connection).pop("timezone", None)


@pytest.mark.databases("sqlite", "mariadb", "mysql")
def test_a_model_whose_rows_cannot_be_queried_leaves_the_others_to_be_checked(
    in_berlin: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Session.objects.create(pk=1, key="a")
    kill(Session, [1], 2 * 3600)
    both = ("--model", "shop.Link", "--model", "shop.Session")
    for options in (("--max-age", "1m"), ("--max-age", "1m", "--deep")):
        status, findings = checked(capsys, *both, *options)
        errors = {key for key, finding in findings.items() if finding["severity"] == "error"}
        assert (status, errors) == (1, {("ttl_odm.E001", "shop_link"), ("overdue", "shop_session")})
    with pytest.raises(SystemExit) as ended:
        call_command("ttl_status", "--json", *both)
    shown = {each["model"]: each for each in json.loads(capsys.readouterr().out)["targets"]}
    assert ended.value.code == 1
    assert "Europe/Berlin" in shown["shop.Link"]["error"]
    assert (shown["shop.Session"]["expired"], shown["shop.Session"]["error"]) == (1, None)


@pytest.mark.databases("sqlite")
def test_an_archive_that_does_not_fit_stops_sweeps_alone(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    Seat.__ttl_archive__ = Archive("shop.Nothing")
    try:
        status, (message,) = swept(capsys)
        assert (status, "give a model, or its label" in message) == (2, True)
        assert swept(capsys, "--except", "shop.Seat")[0] == 0
        status, findings = checked(capsys, "--model", "shop.Seat")
        assert (status, findings["ttl_odm.E003", "shop_seat"]["message"]) == (1, message)
        for command in ("ttl_status", "ttl_pause", "ttl_resume"):
            call_command(command)
    finally:
        del Seat.__ttl_archive__


@pytest.mark.slow
def test_a_check_finds_what_the_schema_lacks(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    one, index = ("--model", "shop.Session"), Session._meta.indexes[-1]
    assert isinstance(index, TTLIndex)
    with connections["default"].schema_editor() as editor:
        editor.remove_index(Session, index)
    status, findings = checked(capsys, *one)
    assert status == 1
    missing = findings["missing-index", "shop_session"]
    assert missing["message"].startswith(f"index {index.name} is missing")
    raw(missing["fix"])
    assert checked(capsys, *one)[0] == 0
    # What `manage.py check` says of a model is a finding, too.
    messages = {code for code, _ in checked(capsys)[1] if code.startswith("ttl_odm.")}
    assert messages == {message.id for message in check_policies()}


@pytest.mark.databases("postgres")
def test_an_index_that_was_not_finished_is_found(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    index = Session._meta.indexes[-1].name
    raw("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", [index])
    status, findings = checked(capsys, "--model", "shop.Session")
    assert status == 1
    for statement in findings["invalid-index", "shop_session"]["fix"].split("; "):
        raw(statement)
    assert checked(capsys, "--model", "shop.Session")[0] == 0


@pytest.mark.slow
def test_pause_holds_for_every_sweeper_until_resume(
    backend: Backend, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Session.objects.create(pk=1, key="a")
    kill(Session, [1])
    call_command("ttl_pause")
    assert capsys.readouterr().out == (
        "default: Paused: no sweeper begins another batch. Resume with: python manage.py "
        "ttl_resume\n"
    )
    assert swept(capsys, "--model", "shop.Session")[1][0]["ended"] == "paused"
    assert "paused" in {code for code, _ in checked(capsys)[1]}
    call_command("ttl_status", "--model", "shop.Session")
    told = capsys.readouterr().out
    assert "PAUSED: nothing is deleted until: python manage.py ttl_resume\n" in told
    call_command("ttl_resume")
    assert capsys.readouterr().out == "default: Resumed: the sweepers continue.\n"
    assert swept(capsys, "--model", "shop.Session")[1][0]["deleted"] == 1
    call_command("ttl_pause", "--database", other, "--lease-name", "mine")
    assert f"ttl_resume --database {other} --lease-name mine\n" in capsys.readouterr().out


@pytest.mark.slow
def test_every_sweeps_one_database_until_a_signal(
    backend: Backend,
    other: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    intervals: list[float] = []

    def run_forever(sweeper: Sweeper, *, interval: float) -> Any:
        intervals.append(interval)
        return sweeper.run_once() if interval > 1 else None

    monkeypatch.setattr(Sweeper, "run_forever", run_forever)
    status, (report,) = swept(capsys, "--every", "2.5")
    assert (status, report["database"], report["deleted"]) == (0, "default", 0)
    assert swept(capsys, "--every", "0.5") == (0, [])  # stopped before the first sweep ended
    assert intervals == [2.5, 0.5]
    both = ("--database", "default", "--database", other)
    assert swept(capsys, "--every", "1", *both)[0] == 2
    status, (message,) = swept(capsys, "--every", "0")
    assert (status, message) == (2, "interval = 0.0: give a number, more than 0.")


@pytest.mark.slow
def test_routers_say_which_database_has_which_models(
    backend: Backend, other: str, capsys: pytest.CaptureFixture[str], settings_router: None
) -> None:
    assert DjangoStore("default").models().count(Session) == 0
    assert DjangoStore(other).models().count(Session) == 1
    Session.objects.using(other).create(pk=1, key="a")
    kill(Session, [1], alias=other)
    status, reports = swept(capsys, "--database", "default", "--database", other)
    assert status == 0
    assert {each["database"]: each["deleted"] for each in reports} == {"default": 0, other: 1}


@pytest.mark.parametrize("command", ["ttl_sweep", "ttl_status", "ttl_check"])
def test_a_model_that_the_databases_lack_is_a_usage_error(
    backend: Backend, other: str, settings_router: None, command: str
) -> None:
    both = ("--model", "shop.Session", "--model", "shop.Seat")
    message = "shop.Session is not in the database 'default', by DATABASE_ROUTERS. Give --database"
    for models in (both, both[:2]):
        with pytest.raises(CommandError, match=message) as refused:
            call_command(command, *models)
        assert refused.value.returncode == 2
    call_command(command, *both, "--database", "default", "--database", other)
    call_command(command, "--except", "shop.Session")


class _Router:
    def allow_migrate(self, db: str, app_label: str, model_name: Any = None, **_: Any) -> Any:
        return (db == "other") if model_name == "session" and app_label == "shop" else None


@pytest.fixture
def settings_router() -> Any:
    """A router that keeps the shop's sessions in the other database."""
    from django.test import override_settings

    with override_settings(DATABASE_ROUTERS=[_Router()]):
        yield


def test_rows_that_others_protect_are_left_and_counted(backend: Backend) -> None:
    for number in range(4):
        Order.objects.create(pk=number + 1, code=str(number))
    Receipt.objects.create(order_id=2)
    kill(Order, [1, 2, 3])
    (target,) = Sweeper(connections["default"], Order).run_once().targets
    assert (target.deleted, target.skips, target.error) == (2, {Skip.RESTRICTED: 1}, None)
    assert set(Order.all_objects.values_list("pk", flat=True)) == {2, 4}


def test_displaced_rows_are_told_to_the_hooks_of_their_model(backend: Backend) -> None:
    told: list[Any] = []
    Seat.__ttl_on_purged__ = Hook(told.append, rows=True)
    try:
        Seat.objects.create(pk=1, row="a", number=1, label="old")
        kill(Seat, [1])
        Seat.objects.create(row="a", number=1)
    finally:
        Seat.__ttl_on_purged__ = None
    (purged,) = told
    assert (purged.reason, purged.keys, purged.table) == ("displaced", [(1,)], "shop_seat")
    assert purged.rows[0]["label"] == "old"
    assert purged.transaction is connections["default"]


@pytest.fixture
def away(backend: Backend) -> Iterator[dict[str, Any]]:
    """The settings of a database on a server that nobody can reach; "other" stands for it."""
    settings = {**project.database_settings(backend), "PORT": "1", "PASSWORD": "open sesame"}
    project.point_at("other", settings)
    yield settings
    project.point_at("other", {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"})


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_server_out_of_reach_fails_without_telling_the_password(
    away: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttl_odm.sweeper.batch_gate.AWAY", 0.1)  # not a minute, as for a restart
    report = Sweeper(DjangoStore("other", Session)).run_once()
    assert isinstance(report.error, UnreachableStoreError)
    assert "sesame" not in str(report)


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_sweep_waits_for_a_server_that_restarts(
    backend: Backend, away: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than any other error is tried again: three times, 0.9 seconds in all."""
    Session.objects.create(pk=1, key="a")
    kill(Session, [1])
    begun, connect = time.monotonic(), BaseDatabaseWrapper.connect

    def connect_later(connection: Any) -> None:
        if time.monotonic() - begun > 1.5:
            connection.settings_dict.update(project.database_settings(backend))
        connect(connection)

    monkeypatch.setattr(BaseDatabaseWrapper, "connect", connect_later)
    report = Sweeper(DjangoStore("other", Session)).run_once()
    report.raise_for_failures()
    assert report.deleted == 1
    assert time.monotonic() - begun > 1.5


def test_what_has_no_policy_is_no_target() -> None:
    with pytest.raises(TTLConfigurationError, match="has no policy"):
        Sweeper(connections["default"], Receipt)


# How a CHECK is switched off, and on again: of the session, or of the table.
UNCHECKED = {
    "sqlite": ("PRAGMA ignore_check_constraints = ON", "PRAGMA ignore_check_constraints = OFF"),
    "postgres": (
        "ALTER TABLE shop_session DROP CONSTRAINT {check}",
        "ALTER TABLE shop_session ADD CHECK (ttl IS NULL OR ttl = -1 OR ttl > 0)",
    ),
    "mariadb": ("SET check_constraint_checks = 0", "SET check_constraint_checks = 1"),
    "mysql": (
        "ALTER TABLE shop_session ALTER CHECK {check} NOT ENFORCED",
        "ALTER TABLE shop_session ALTER CHECK {check} ENFORCED",
    ),
}
WHILE_UNCHECKED = ("sqlite", "mariadb")


def test_rows_that_no_sweep_finds_are_found(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    Session.objects.bulk_create([Session(pk=number, key=str(number)) for number in (1, 2, 3)])
    assert checked(capsys, "--deep", "--model", "shop.Session")[0] == 0
    connection = connections["default"]
    with connection.cursor() as cursor:
        checks = connection.introspection.get_constraints(cursor, "shop_session").items()
        check, *_ = (name for name, of in checks if of["check"] and "ttl" in of["columns"])
    off, on = UNCHECKED[backend.database]
    raw(off.format(check=check))
    raw("UPDATE shop_session SET ttl = 0 WHERE id = 1")
    try:
        if backend.database in WHILE_UNCHECKED:
            raw(on)
        apply_reported_fix("invalid-ttl", "no sweep finds 1 row with an invalid ttl", capsys)
        assert checked(capsys, "--deep", "--model", "shop.Session")[0] == 0
    finally:
        if backend.database not in WHILE_UNCHECKED:
            raw(on.format(check=check))


@pytest.mark.databases("postgres")
def test_rows_without_their_instant_are_found(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    Session.objects.bulk_create([Session(pk=number, key=str(number)) for number in (1, 2)])
    raw("ALTER TABLE shop_session ALTER COLUMN _ts DROP NOT NULL")
    try:
        raw("UPDATE shop_session SET _ts = NULL WHERE id = 1")
        said = "no sweep finds 1 row without last_modified, which no query returns"
        apply_reported_fix("undated", said, capsys)
        assert Session.objects.count() == 2
    finally:
        raw("ALTER TABLE shop_session ALTER COLUMN _ts SET NOT NULL")


def test_rows_that_go_because_they_refer_to_others_are_counted(backend: Backend) -> None:
    order = Order.objects.create(code="a")
    Line.objects.create(order=order)
    raw("UPDATE shop_order SET _ts = %s", [_epoch()])
    raw("UPDATE shop_line SET _ts = %s", [_epoch()])
    report = Sweeper(DjangoStore("default", Order)).run_once()
    (target,) = report.targets
    assert (target.deleted, target.referring, report.deleted) == (1, {"shop_line": 1}, 2)
