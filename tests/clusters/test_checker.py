"""The checker objects to what the contract forbids, and to nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.clusters.checker import Rule, Verdict, check
from tests.clusters.history import (
    SECOND,
    Failover,
    History,
    Holding,
    Kind,
    Operation,
    Outcome,
    Row,
    Tenure,
)

KEY = "k"
NOON = 43_200 * SECOND
"""Where the server's clock stands at 0 of the hosts' monotonic clock."""


def at(seconds: float) -> int:
    """The server's clock when the hosts' shows this."""
    return NOON + round(seconds * SECOND)


def row(version: str, stamped: float, ttl: int | None = None, *, shown: float | None = None) -> Row:
    moment = stamped if shown is None else shown
    return Row(KEY, version, at(stamped), ttl, at(moment))


def operation(kind: Kind, begin: float, end: float | None = None, **values: Any) -> Operation:
    """An operation that took a tenth of a second, and read the server's clock at both ends."""
    end = begin + 0.1 if end is None else end
    clocks = {"asked": at(begin), "answered": at(end)}
    base: dict[str, Any] = {"client": f"at {begin}", "server": "one", "keys": (KEY,)}
    return Operation(kind=kind, begin=begin, end=end, **{**base, **clocks, **values})


def write(
    version: str, begin: float, ttl: int | None = None, kind: Kind = Kind.INSERT, **values: Any
) -> Operation:
    """A write that was stamped when it began."""
    rows = (row(version, begin, ttl),)
    return operation(kind, begin, **{"version": version, "rows": rows, **values})


def renew(version: str, begin: float, ttl: int | None = None, **values: Any) -> Operation:
    return write(version, begin, ttl, Kind.RENEW, **values)


def delete(begin: float, **values: Any) -> Operation:
    return operation(Kind.DELETE, begin, **values)


def shows(found: Row, begin: float, **values: Any) -> Operation:
    judged = replace(found, judged=at(begin))
    return operation(Kind.READ, begin, **{"rows": (judged,), **values})


def shows_none(begin: float, **values: Any) -> Operation:
    return operation(Kind.READ, begin, **values)


def judge(*operations: Operation, default: int | None = 10, **values: Any) -> Verdict:
    return check(History(default, operations=[*operations], **values))


def broken(*operations: Operation, **values: Any) -> list[Rule]:
    """The rules that ttl_odm has broken."""
    return [finding.rule for finding in judge(*operations, **values).wrong]


def unknown(begin: float, kind: Kind = Kind.RENEW, version: str = "?") -> Operation:
    return operation(kind, begin, version=version, outcome=Outcome.UNKNOWN, answered=None)


# Lost rows


def test_a_row_that_was_inserted_and_is_found_until_it_expires_is_right() -> None:
    found = row("a", 0)
    history = (write("a", 0), shows(found, 1), shows(found, 9.9), shows_none(10), shows_none(11))
    assert broken(*history) == []


def test_a_live_row_that_is_not_found_was_lost() -> None:
    verdict = judge(write("a", 0), shows_none(5))
    (finding,) = verdict.wrong
    assert (finding.rule, finding.key) == (Rule.LOST, KEY)
    assert finding.cause == write("a", 0)
    assert str(finding).startswith("an acknowledged live row was lost: k\n")


def test_one_loss_is_found_once_however_many_reads_show_it() -> None:
    assert broken(write("a", 0), shows_none(5), shows_none(6), shows_none(7)) == [Rule.LOST]


def test_a_row_without_a_ttl_never_expires() -> None:
    assert broken(write("a", 0, -1), shows_none(10_000)) == [Rule.LOST]
    assert broken(write("a", 0), shows_none(10_000), default=-1) == [Rule.LOST]
    assert broken(write("a", 0, 1), shows_none(10_000), default=None) == [Rule.LOST]
    assert broken(write("a", 0, 1), shows_none(1)) == []


def test_a_renewal_counts_from_its_acknowledgement() -> None:
    assert broken(write("a", 0), renew("b", 9), shows_none(15)) == [Rule.LOST]
    assert broken(write("a", 0), renew("b", 9), shows_none(19)) == []


def test_a_row_that_a_write_misses_while_it_is_live_was_lost() -> None:
    missed = operation(Kind.RENEW, 5, version="b", outcome=Outcome.MISSED)
    assert broken(write("a", 0), missed) == [Rule.LOST]
    assert broken(write("a", 0, 1), missed) == []


def test_a_row_that_another_client_may_have_deleted_meanwhile_is_no_loss() -> None:
    assert broken(write("a", 0), delete(4, end=6), shows_none(5)) == []
    assert broken(write("a", 0, end=2), delete(1, end=3), shows_none(5)) == []


def test_a_renewal_to_a_shorter_life_may_have_been_the_last() -> None:
    history = (write("a", 0), renew("b", 1, 60, end=3), renew("c", 2, 1, end=3))
    assert broken(*history, shows_none(20)) == []
    assert broken(*history[:2], shows_none(20)) == [Rule.LOST]


def test_a_write_of_unknown_outcome_explains_any_later_absence() -> None:
    assert broken(write("a", 0), unknown(1, Kind.DELETE), shows_none(5)) == []
    assert broken(write("a", 0), unknown(1), shows_none(5)) == []
    assert broken(write("a", 0), shows_none(5), unknown(6, Kind.DELETE)) == [Rule.LOST]


def test_a_write_that_failed_explains_nothing() -> None:
    failed = operation(Kind.DELETE, 1, outcome=Outcome.FAILED)
    assert broken(write("a", 0), failed, shows_none(5)) == [Rule.LOST]


def test_an_answer_whose_instant_is_unknown_is_not_judged() -> None:
    assert broken(write("a", 0), shows_none(5, answered=None)) == []


def test_an_earlier_write_that_shows_again_means_that_the_later_one_was_lost() -> None:
    first = row("a", 0)
    assert broken(write("a", 0), renew("b", 1), shows(first, 2)) == [Rule.LOST]
    assert broken(write("a", 0), renew("b", 1, end=3), shows(first, 2)) == []


def test_a_stamp_that_was_set_back_means_that_a_touch_was_lost() -> None:
    touched = operation(Kind.TOUCH, 5, rows=(row("a", 5),))
    assert broken(write("a", 0), touched, shows(row("a", 0), 6)) == [Rule.LOST]
    assert broken(write("a", 0), touched, shows(row("a", 5), 6)) == []
    lost = operation(Kind.TOUCH, 5, outcome=Outcome.UNKNOWN)
    assert broken(write("a", 0), lost, shows(row("a", 5.1), 6)) == []
    assert broken(write("a", 0), lost, shows(row("a", 0), 6)) == []


def test_a_live_row_that_a_sweeper_purged_was_lost() -> None:
    purge = operation(Kind.PURGE, 5, server="", answered=at(5))
    assert broken(write("a", 0), purge) == [Rule.LOST]
    assert broken(write("a", 0, 5), purge) == []
    assert broken(write("a", 0), renew("b", 4), purge) == [Rule.LOST]


def test_a_row_that_was_purged_and_inserted_again_at_the_same_time_is_right() -> None:
    purge = operation(Kind.PURGE, 5, end=7, answered=at(5))
    assert broken(write("a", 0, 1), purge, write("b", 6), shows(row("b", 6), 8)) == []


# Rows that come back


def test_a_deleted_row_that_shows_again_came_back() -> None:
    assert broken(write("a", 0), delete(1), shows(row("a", 0), 2)) == [Rule.REVIVED]
    assert broken(write("a", 0), delete(1, end=3), shows(row("a", 0), 2)) == []
    assert broken(write("a", 0), delete(1, outcome=Outcome.UNKNOWN), shows(row("a", 0), 2)) == []


def test_a_row_inserted_after_a_deletion_is_another() -> None:
    assert broken(write("a", 0), delete(1), write("b", 2), shows(row("b", 2), 3)) == []


def test_a_row_that_was_acknowledged_as_gone_and_shows_again_came_back() -> None:
    history = (write("a", 0, 5), shows_none(6), shows(row("a", 0, 5), 7, rows=(row("a", 0, 5),)))
    assert broken(*history) == [Rule.REVIVED]


def test_a_write_that_came_after_the_absence_explains_the_row() -> None:
    assert broken(write("a", 0, 5), shows_none(6), write("b", 7), shows(row("b", 7), 8)) == []
    late = write("a", 0, end=3)
    assert broken(late, shows_none(1), shows(row("a", 0), 4)) == []


def test_a_write_of_unknown_outcome_may_show_late() -> None:
    lost = unknown(0, Kind.INSERT, "a")
    assert broken(lost, shows_none(1), shows(row("a", 2), 3)) == []


def test_an_insert_that_is_refused_for_a_deleted_row_met_one_that_came_back() -> None:
    refused = operation(Kind.INSERT, 5, version="b", outcome=Outcome.REFUSED)
    assert broken(write("a", 0), delete(1), refused) == [Rule.REVIVED]
    assert broken(write("a", 0), refused) == []
    assert broken(refused) == [Rule.PHANTOM]


# Expired rows that count


def test_a_row_is_not_shown_from_its_last_instant_on() -> None:
    found = row("a", 0)
    assert broken(write("a", 0), shows(found, 10)) == [Rule.SHOWN]
    assert broken(write("a", 0), shows(found, 10 - 1 / SECOND)) == []


def test_the_clock_that_counts_is_that_of_the_server_that_answers() -> None:
    found = row("a", 0)
    behind = replace(found, judged=at(9))
    assert broken(write("a", 0), shows(found, 12, rows=(behind,), fresh=False)) == []
    assert broken(write("a", 0), shows(found, 12, fresh=False)) == [Rule.SHOWN]


def test_an_insert_that_is_refused_for_an_expired_row_counted_it_as_live() -> None:
    refused = operation(Kind.INSERT, 10, version="b", outcome=Outcome.REFUSED)
    assert broken(write("a", 0), refused) == [Rule.SHOWN]
    waited = replace(refused, begin=9.0, asked=at(9))
    assert broken(write("a", 0), waited) == []


@pytest.mark.parametrize("kind", [Kind.RENEW, Kind.TOUCH, Kind.UPDATE, Kind.DELETE])
def test_an_expired_row_can_not_be_changed(kind: Kind) -> None:
    rows = () if kind is Kind.DELETE else (row("b", 10),)
    late = operation(kind, 10, version="b", rows=rows)
    assert broken(write("a", 0), late) == [Rule.CHANGED]
    in_time = replace(late, begin=9.0, asked=at(9))
    assert broken(write("a", 0), in_time) == []


def test_a_renewal_that_another_one_made_possible_is_right() -> None:
    assert broken(write("a", 0), renew("b", 9, end=12), renew("c", 11)) == []
    assert broken(write("a", 0), unknown(9), renew("c", 11)) == []


# Keys


def test_an_insert_over_a_live_row_makes_two_rows_of_one_key() -> None:
    assert broken(write("a", 0), write("b", 5)) == [Rule.TWICE]
    assert broken(write("a", 0), write("b", 10)) == []
    assert broken(write("a", 0), delete(1, end=6), write("b", 5)) == []


def test_an_answer_with_two_rows_of_one_key_is_wrong_on_any_server() -> None:
    rows = (row("a", 0, shown=5), row("b", 1, shown=5))
    history = (write("a", 0), write("b", 1, outcome=Outcome.UNKNOWN))
    assert broken(*history, shows_none(5, rows=rows, fresh=False)) == [Rule.TWICE]


def test_what_a_failed_write_would_have_left_must_not_show() -> None:
    failed = write("a", 0, outcome=Outcome.FAILED)
    assert broken(failed, shows(row("a", 0), 1)) == [Rule.PHANTOM]
    assert broken(unknown(0, Kind.INSERT, "a"), shows(row("a", 0), 1)) == []


def test_the_keys_of_a_list_are_judged_one_by_one() -> None:
    other = Row("other", "o", at(0), None, at(5))
    inserted = write("o", 0, keys=("other",), rows=(other,))
    listed = operation(Kind.READ, 5, keys=(KEY, "other"), rows=(other,))
    verdict = judge(inserted, write("a", 0), listed)
    assert [(finding.rule, finding.key) for finding in verdict.wrong] == [(Rule.LOST, KEY)]


# Replicas and failovers


def test_a_replica_may_lag_and_is_counted() -> None:
    history = (write("a", 0), renew("b", 1), shows(row("a", 0), 2, fresh=False))
    verdict = judge(*history, shows_none(3, fresh=False), shows_none(12, fresh=False))
    assert (verdict.wrong, verdict.behind) == ([], 1)


def failover(begin: float, end: float, loses: float = 60.0) -> Failover:
    return Failover(begin=begin, end=end, old="one", new="two", loses=loses)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param((write("a", 0), shows_none(5)), id="insert"),
        pytest.param((write("a", 0), renew("b", 1), shows(row("a", 0), 5)), id="renewal"),
        pytest.param((write("a", 0), delete(1), shows(row("a", 0), 5)), id="deletion"),
        pytest.param((write("a", -4.5), renew("b", 1), shows_none(5)), id="expiry"),
    ],
)
def test_a_write_is_lost_by_the_engine_only_where_it_replicates_asynchronously(
    history: tuple[Operation, ...],
) -> None:
    asynchronous, synchronous = failover(2, 3), failover(2, 3, loses=0)
    lost = judge(*history, failovers=[asynchronous], default=6)
    assert lost.wrong == []
    assert [finding.failover for finding in lost.by_engine] == [asynchronous]
    assert "lost by the engine in" in str(lost.by_engine[0])
    assert judge(*history, failovers=[synchronous], default=6).wrong
    assert judge(*history, failovers=[synchronous], default=6).by_engine == []


def test_a_failover_explains_nothing_that_happened_after_it_or_long_before() -> None:
    after = (write("a", 4), shows_none(5))
    assert broken(*after, failovers=[failover(2, 3)]) == [Rule.LOST]
    before = (write("a", 0), shows_none(5))
    assert broken(*before, failovers=[failover(2, 3, loses=1)]) == [Rule.LOST]
    unaffected = (write("a", 0), shows_none(1), shows_none(5))
    assert broken(*unaffected, failovers=[failover(2, 3)]) == [Rule.LOST]


def test_a_row_that_the_engine_brought_back_must_not_come_and_go() -> None:
    history = (write("a", 0), renew("b", 1), shows_none(5), shows(row("a", 0), 5.5))
    verdict = judge(*history, failovers=[failover(2, 3)], default=5)
    assert [finding.rule for finding in verdict.by_engine] == [Rule.LOST]
    assert {finding.rule for finding in verdict.wrong} == {Rule.SHOWN, Rule.REVIVED}


def test_two_failovers_may_lose_a_write_together() -> None:
    both = [failover(2, 3, loses=1.95), failover(4, 5, loses=3)]
    verdict = judge(write("a", 0), renew("b", 1.2), shows_none(6), failovers=both)
    assert verdict.wrong == []
    assert [finding.rule for finding in verdict.by_engine] == [Rule.LOST]


def test_an_outage_ends_with_the_first_write_that_the_new_primary_acknowledges() -> None:
    operations = [
        write("a", 0),
        write("b", 2.05, keys=("b",)),
        write("c", 2.5, keys=("c",), server="two", outcome=Outcome.FAILED),
        write("d", 3.4, keys=("d",), server="two"),
        write("e", 3.6, keys=("e",), server="two"),
    ]
    never = Failover(begin=9, end=9.5, old="two", new="three")
    history = History(10, operations=operations, failovers=[failover(2, 3), never])
    assert history.outages() == [pytest.approx(1.5)]


# Leases


def tenure(action: Holding, begin: float, token: int, **values: Any) -> Tenure:
    end = values.pop("end", begin + 0.1)
    clocks = {"asked": at(begin), "answered": at(end), "duration": 10.0}
    base: dict[str, Any] = {"client": f"sweeper {token}", **clocks, **values}
    return Tenure(action=action, begin=begin, end=end, token=token, **base)


def acquired(begin: float, token: int, **values: Any) -> Tenure:
    return tenure(Holding.ACQUIRED, begin, token, **values)


def broken_leases(*tenures: Tenure) -> list[Rule]:
    return broken(tenures=[*tenures])


def test_a_lease_may_be_taken_when_it_was_released_or_has_ended() -> None:
    assert broken_leases(acquired(0, 1), acquired(10, 2), acquired(20, 3)) == []
    released = tenure(Holding.RELEASED, 1, 1)
    assert broken_leases(acquired(0, 1), released, acquired(1.5, 2)) == []


def test_a_lease_must_not_be_taken_from_a_holder() -> None:
    assert broken_leases(acquired(0, 1), acquired(5, 2)) == [Rule.TWO_HOLDERS]
    renewed = tenure(Holding.RENEWED, 8, 1)
    assert broken_leases(acquired(0, 1), renewed, acquired(12, 2)) == [Rule.TWO_HOLDERS]
    assert broken_leases(acquired(0, 1), renewed, acquired(18, 2)) == []


def test_a_lease_that_was_taken_over_can_not_be_renewed() -> None:
    late = tenure(Holding.RENEWED, 12, 1)
    assert broken_leases(acquired(0, 1), acquired(10, 2), late) == [Rule.TWO_HOLDERS]


def test_a_batch_may_end_after_another_sweeper_took_over_but_not_begin_much_later() -> None:
    history = (acquired(0, 1), acquired(10, 2))
    assert broken_leases(*history, tenure(Holding.WORKED, 9, 1, end=15.0)) == []
    assert broken_leases(*history, tenure(Holding.WORKED, 20, 1)) == []
    assert broken_leases(*history, tenure(Holding.WORKED, 20.2, 1)) == [Rule.TWO_HOLDERS]
    assert broken_leases(*history, tenure(Holding.WORKED, 20.2, 2)) == []


def test_a_token_must_be_larger_than_all_before() -> None:
    released = tenure(Holding.RELEASED, 1, 7)
    assert broken_leases(acquired(0, 7), released, acquired(2, 7)) == [Rule.TOKEN]
    assert broken_leases(acquired(0, 7), released, acquired(2, 6)) == [Rule.TOKEN]
    assert broken_leases(acquired(0, 7), released, acquired(2, 8)) == []


def test_two_leases_that_were_asked_for_at_once_may_have_been_granted_in_either_order() -> None:
    assert broken_leases(acquired(0, 2, end=3), acquired(1, 1, end=2)) == []


def test_an_asynchronous_failover_may_lose_a_lease() -> None:
    tenures = [acquired(0, 2), acquired(4, 2, client="other")]
    verdict = judge(tenures=tenures, failovers=[failover(2, 3)])
    assert verdict.wrong == []
    assert {finding.rule for finding in verdict.by_engine} == {Rule.TOKEN}
    verdict = judge(tenures=[acquired(0, 2), acquired(4, 3)], failovers=[failover(2, 3)])
    assert [finding.rule for finding in verdict.by_engine] == [Rule.TWO_HOLDERS]


def test_a_sweeper_must_not_end_with_an_error() -> None:
    broke = tenure(Holding.BROKE, 5, 0, error="OperationalError: lost", client="sweeper")
    verdict = judge(tenures=[acquired(0, 1), broke])
    assert [(finding.rule, finding.key) for finding in verdict.wrong] == [(Rule.BROKE, "sweeper")]


def test_counts_are_of_what_is_wrong() -> None:
    verdict = judge(write("a", 0), shows_none(5), write("b", 20), shows(row("b", 20), 30))
    assert verdict.counts() == {Rule.LOST: 1, Rule.SHOWN: 1}
