"""What a sweep's report says, to programs and to people."""

from __future__ import annotations

import pytest

from ttl_odm.sweeper import SweepError, SweepReport, TargetReport

CLEAN = TargetReport(
    "web_sessions",
    deleted=1_234_567,
    skipped=3,
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


def test_a_report_reads_like_this() -> None:
    report = SweepReport((CLEAN, IDLE, FAILED), duration=74.768, limited=True)
    assert (
        str(report)
        == """\
Swept 3 tables in 74.8 s: 1,235,067 rows deleted, 1 FAILED.
  table           deleted  skipped  batches    time  oldest before  oldest after
  web_sessions  1,234,567        3      124  71.3 s       1 d 02 h         < 1 s
  carts                 0        0        0  0.00 s              -             -
  orders              500        0        1  3.50 s     2 min 05 s             ?
orders FAILED: server said no
Stopped at max_rows: expired rows are left for the next sweep."""
    )


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
    assert report.skipped == 3
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
