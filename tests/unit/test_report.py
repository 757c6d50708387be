"""What a sweep's report says, to programs and to people."""

from __future__ import annotations

import json
import pickle
from collections import Counter

import pytest

from ttl_odm.core.extension import largest
from ttl_odm.stored.scopes import deleted_by_scope, due_by_scope, summed
from ttl_odm.sweeper import Ending, FuseError, Skip, SweepError, SweepReport, TargetReport
from ttl_odm.sweeper.text import duration

CLEAN = TargetReport(
    "web_sessions",
    deleted=1_234_567,
    archived=34,
    skips={Skip.LOCKED: 2, Skip.RESTRICTED: 1},
    batches=124,
    duration=71.26,
    oldest_before=93_784.9,
    oldest_after=0.25,
)
IDLE = TargetReport("carts", duration=0.0041, oldest_before=0.0, oldest_after=0.0)
FAILED = TargetReport(
    "orders",
    deleted=500,
    batches=1,
    duration=3.5,
    oldest_before=125.0,
    error=ValueError("server said\n  no"),
)


def test_a_failed_sweep_goes_from_one_process_to_another_with_its_report() -> None:
    report = SweepReport((CLEAN, FAILED), duration=74.768, ended=Ending.MAX_ROWS)
    copied = pickle.loads(pickle.dumps(SweepError(report)))  # noqa: S301 (our own)
    assert type(copied) is SweepError
    assert str(copied) == str(SweepError(report))
    assert copied.report.targets[0] == CLEAN


def test_a_duration_has_hundredths_below_ten_seconds() -> None:
    assert [duration(each) for each in (9.99, 10, 1234.56)] == ["9.99 s", "10.0 s", "1,234.6 s"]


def test_a_report_reads_like_this() -> None:
    report = SweepReport((CLEAN, IDLE, FAILED), duration=74.768, ended=Ending.MAX_ROWS)
    assert (
        str(report)
        == """\
Swept 3 tables in 74.8 s: 1,235,067 rows deleted (34 archived), 1 FAILED.
  table           deleted  skipped  batches    time  oldest before  oldest after
  web_sessions  1,234,567        3      124  71.3 s       1 d 02 h         < 1 s
  carts                 0        0        0  0.00 s              -             -
  orders              500        0        1  3.50 s     2 min 05 s             ?
web_sessions: skipped 2 rows locked by another session, 1 row kept by a foreign key
orders FAILED: server said no
Stopped at max_rows: expired rows are left for the next sweep."""
    )


def test_every_reason_to_skip_a_row_reads_well() -> None:
    for reason in Skip:
        target = TargetReport("carts", skips={reason: 1})
        assert "carts: skipped 1 row " in str(SweepReport((target,)))


def test_rows_that_referred_to_others_are_counted_and_named() -> None:
    report = SweepReport((TargetReport("customers", referring={"orders": 2, "calls": 1}),))
    assert report.deleted == 3
    assert str(report).splitlines()[-2:] == [
        "customers: deleted 2 rows of orders as well, which referred to it",
        "customers: deleted 1 row of calls as well, which referred to it",
    ]
    assert report.to_dict()["targets"][0]["referring"] == {"orders": 2, "calls": 1}


def test_a_missing_table_is_no_failure() -> None:
    report = SweepReport((IDLE, TargetReport("orders", missing=True)))
    assert str(report).splitlines()[-1] == "orders is MISSING: the database has no such table."
    assert not report.problems
    report.raise_for_failures()


def test_a_report_of_one_row_in_one_table_is_in_the_singular() -> None:
    report = SweepReport((TargetReport("carts", deleted=1, batches=1),), duration=0.5)
    assert str(report).startswith("Swept 1 table in 0.50 s: 1 row deleted.\n")


def test_a_report_without_targets_says_why() -> None:
    assert str(SweepReport()) == "Swept nothing: no table has TTL switched on."


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "?"),
        (0.0, "-"),
        (0.001, "< 1 s"),
        (1.0, "1 s"),
        (59.99, "59 s"),
        (60.0, "1 min 00 s"),
        (3_599.0, "59 min 59 s"),
        (3_600.0, "1 h 00 min"),
        (86_399.0, "23 h 59 min"),
        (86_400.0, "1 d 00 h"),
        (86_400.0 * 1_500 + 7_200, "1,500 d 02 h"),
    ],
)
def test_ages_are_shown_in_two_units(seconds: float | None, shown: str) -> None:
    report = SweepReport((TargetReport("carts", oldest_before=seconds, oldest_after=1.0),))
    line = str(report).splitlines()[2]
    assert line.split("  ")[-2].strip() == shown or f"  {shown}  " in line


def test_a_report_adds_its_targets_up() -> None:
    report = SweepReport((CLEAN, IDLE, FAILED))
    assert report.deleted == 1_235_067
    assert report.archived == 34
    assert report.skipped == 3
    assert report.due is None
    assert report.failed == (FAILED,)


def test_a_clean_report_raises_nothing() -> None:
    SweepReport((CLEAN, IDLE)).raise_for_failures()
    assert not SweepReport((CLEAN, IDLE)).failed


def test_a_report_with_a_failure_raises_it_on_demand() -> None:
    report = SweepReport((CLEAN, FAILED))
    with pytest.raises(SweepError, match=r"^orders: server said no$") as raised:
        report.raise_for_failures()
    assert raised.value.report is report
    assert raised.value.__cause__ is FAILED.error


def test_an_error_without_a_message_is_shown_by_its_name() -> None:
    assert TargetReport("orders", error=KeyError()).problem == "KeyError"


@pytest.mark.parametrize(
    ("ending", "line"),
    [
        (Ending.MAX_SECONDS, "Stopped at max_seconds: expired rows are left for the next sweep."),
        (Ending.WINDOW, "Outside the window: expired rows are left until it opens."),
        (Ending.PAUSED, "Paused: expired rows are left until the sweepers are resumed."),
        (Ending.STOPPED, "Stopped on request: expired rows are left for the next sweep."),
        (Ending.LEASE_LOST, "The lease was lost: another sweeper continues from here."),
    ],
)
def test_a_sweep_that_was_ended_says_why(ending: Ending, line: str) -> None:
    assert str(SweepReport((IDLE,), ended=ending)).splitlines()[-1] == line
    assert str(SweepReport(ended=ending)).splitlines() == ["Swept nothing.", line]


def test_every_ending_reads_well() -> None:
    for ending in Ending:
        assert str(SweepReport((IDLE,), ended=ending))


@pytest.mark.parametrize(("holder", "who"), [("host:1", ": host:1"), (None, "")])
def test_a_sweep_without_the_lease_names_who_has_it(holder: str | None, who: str) -> None:
    report = SweepReport(ended=Ending.LEASE_HELD, holder=holder)
    assert str(report) == f"Swept nothing.\nAnother sweeper is at work{who}."


def test_a_sweep_that_failed_as_a_whole_says_so() -> None:
    error = ValueError("no\nlease table")
    report = SweepReport((IDLE,), ended=Ending.FAILED, error=error)
    assert str(report).splitlines()[-2:] == ["The sweep FAILED.", "no lease table"]
    assert report.problems == ("no lease table",)
    with pytest.raises(SweepError, match=r"^no lease table$") as raised:
        report.raise_for_failures()
    assert raised.value.__cause__ is error


def test_a_dry_run_reads_like_this() -> None:
    targets = (
        TargetReport("web_sessions", due=1_234, rows=56_789, oldest_before=60.0),
        TargetReport("carts", oldest_before=0.0),
    )
    report = SweepReport(targets, duration=0.25, dry_run=True)
    assert (
        str(report)
        == """\
Looked at 2 tables in 0.25 s: 1,234 rows expired.
  table         expired    rows      oldest
  web_sessions    1,234  56,789  1 min 00 s
  carts               -       -           -"""
    )


def test_a_report_is_plain_values_for_machines() -> None:
    fuse = FuseError("too many", target="orders", due=2_000, allowed=1_000)
    orders = TargetReport("orders", due=2_000, rows=3_000, error=fuse)
    report = SweepReport(
        (CLEAN, orders), duration=1.5, ended=Ending.PAUSED, waited={"rest": 0.5}, holder="them"
    )
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain.pop("targets") == [
        {
            "table": "web_sessions",
            "deleted": 1_234_567,
            "archived": 34,
            "skipped": {"locked": 2, "restricted": 1},
            "batches": 124,
            "duration": 71.26,
            "oldest_before": 93_784.9,
            "oldest_after": 0.25,
            "due": None,
            "rows": None,
            "error": None,
            "missing": False,
            "referring": {},
            "left": [],
            "notes": [],
            "workers": 1,
            "partitions": None,
        },
        {
            "table": "orders",
            "deleted": 0,
            "archived": 0,
            "skipped": {},
            "batches": 0,
            "duration": 0.0,
            "oldest_before": None,
            "oldest_after": None,
            "due": 2_000,
            "rows": 3_000,
            "error": {"type": "FuseError", "message": "too many"},
            "missing": False,
            "referring": {},
            "left": [],
            "notes": [],
            "workers": 1,
            "partitions": None,
        },
    ]
    assert plain == {
        "ended": "paused",
        "dry_run": False,
        "deleted": 1_234_567,
        "archived": 34,
        "skipped": 3,
        "due": 2_000,
        "duration": 1.5,
        "waited": {"rest": 0.5},
        "holder": "them",
        "error": None,
    }


def test_names_that_others_chose_reach_no_terminal_as_they_are() -> None:
    nasty = "a\x1b[2J\nb\x9b\u202e\u200b\u2028\U000e0041\ud800é\xa0名"
    shown = "a\\x1b[2J\\x0ab\\x9b\\u202e\\u200b\\u2028\\U000e0041\\ud800é\xa0名"
    targets = (
        TargetReport(nasty, skips={Skip.LOCKED: 1}, referring={nasty: 1}),
        TargetReport(nasty, error=ValueError("\x1b[2J")),
        TargetReport(nasty, missing=True),
    )
    report = SweepReport(targets, ended=Ending.LEASE_HELD, holder=nasty)
    assert not set(str(report)) & {"\x1b", "\x9b", "\u202e", "\u200b", "\u2028", "\ud800"}
    assert (
        str(report).count(shown) == 9
    )  # three rows, four remarks of which one has two, the holder
    assert report.problems == (f"{shown}: \\x1b[2J",)
    assert report.to_dict()["holder"] == nasty


def test_the_largest_scopes_are_named_and_all_others_summed() -> None:
    by_scope = largest({"b": 5, "a": 5, "c": 9, "d": 1, "": 70, "e": 0}, total=30, most=3)
    assert by_scope == {"c": 9, "a": 5, "b": 5, "": 11}
    assert list(by_scope) == ["c", "a", "b", ""]
    assert largest({"a": 5}, total=5) == {"a": 5}
    assert largest({}, total=5) == {}
    facts = {**due_by_scope({"x\n": 2}), **deleted_by_scope(by_scope)}
    target = TargetReport("carts", deleted=30, facts=facts)
    text = str(SweepReport((target,)))
    assert "carts: deleted by scope: c 9, a 5, b 5, all others 11" in text
    assert "carts: expired by scope: x\\x0a 2" in text
    plain = json.loads(json.dumps(target.to_dict()))
    assert plain["deleted_by_scope"] == by_scope
    assert not {"deleted_by_scope", "due_by_scope"} & set(CLEAN.to_dict())


def test_a_sweep_over_a_million_scopes_counts_a_few_thousand() -> None:
    counted = summed({}, {str(number): 2 for number in range(9_000)})
    counted = summed(counted, {str(number): 1 for number in range(5_000, 20_000)})
    assert len(counted) == 5_000
    assert Counter(counted).most_common(1) == [("5000", 3)]
