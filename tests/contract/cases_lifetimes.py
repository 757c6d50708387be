"""When a row expires, by whose clock, and what a change of the default or of its ttl does."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import time_machine

from tests.contract.case import COSMOS, OURS, Rule, case
from tests.contract.subject import HOUR, SECOND
from ttl_odm.core import MAX_TTL

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.subject import Subject

TRUTH_TABLE = Rule(
    "The truth table",
    "The default of the container and the own ttl of the row decide together. `None` as default: "
    "TTL is off; `-1`: on, but never by default.",
)
BOUNDARY = Rule(
    "The instant of expiry",
    "A row is expired when `_ts` + its effective ttl <= now. One predicate serves reads, writes "
    "and the sweeper.",
)
CLOCK = Rule(
    "Whose clock",
    "Now is the database's clock. No answer depends on the clock of the application's host.",
)
DEFAULTS = Rule(
    "Changes of the default",
    "A change of the default acts at once on every row that inherits it, with no backfill, in both "
    "directions. A row that was not purged yet comes back when the default is raised.",
)
COPIES = Rule(
    "What is stored",
    "The default is never copied into the row. An own ttl that is written while TTL is off is kept "
    "and counts once TTL is on.",
)
INHERITING = Rule("Removing a ttl", "Setting `ttl` to None means: inherit again.")

FAR = 50 * 365 * 86_400
"""Seconds: for ever, as far as a test can tell."""


def sees(subject: Subject, container: str, *expected: int) -> None:
    """Hold every way to read against the keys that should be there."""
    for way, found in subject.readings(container).items():
        wanted = len(expected) if isinstance(found, int) else set(expected)
        assert found == wanted, f"{way}: {found}, not {wanted}"


def soon(subject: Subject) -> datetime:
    """An instant to stop the clock at, which all databases can keep."""
    return subject.now().replace(microsecond=125_000) + SECOND


def lives(subject: Subject, default: int | None, seconds: int | None, **own: int) -> None:
    """Hold rows of one ttl against the seconds that they should live (None: for ever)."""
    subject.set_policy("carts", default)
    now = soon(subject)
    end = timedelta(seconds=seconds or 100)
    ages = {1: end - subject.tick, 2: end, 3: end + subject.tick, 4: timedelta(seconds=FAR)}
    for key, age in ages.items():
        subject.put_at("carts", key, now - age, **own)
    living = [1] if seconds is not None else [1, 2, 3, 4]
    with subject.stopped(now):
        sees(subject, "carts", *living)
        assert subject.update_all("carts", views=1) == len(living)
        assert subject.delete_all("carts") == len(living)


@case(TRUTH_TABLE, COSMOS)
def default_off_and_no_own_ttl_never_expires(s: Subject) -> None:
    lives(s, None, None)


@case(TRUTH_TABLE, COSMOS)
def default_off_and_own_ttl_minus_1_never_expires(s: Subject) -> None:
    lives(s, None, None, ttl=-1)


@case(TRUTH_TABLE, COSMOS)
def default_off_and_own_ttl_m_never_expires(s: Subject) -> None:
    lives(s, None, None, ttl=50)


@case(TRUTH_TABLE, COSMOS)
def default_minus_1_and_no_own_ttl_never_expires(s: Subject) -> None:
    lives(s, -1, None)


@case(TRUTH_TABLE, COSMOS)
def default_minus_1_and_own_ttl_minus_1_never_expires(s: Subject) -> None:
    lives(s, -1, None, ttl=-1)


@case(TRUTH_TABLE, COSMOS)
def default_minus_1_and_own_ttl_m_expires_after_m(s: Subject) -> None:
    lives(s, -1, 50, ttl=50)


@case(TRUTH_TABLE, COSMOS)
def default_n_and_no_own_ttl_expires_after_n(s: Subject) -> None:
    lives(s, 100, 100)


@case(TRUTH_TABLE, COSMOS)
def default_n_and_own_ttl_minus_1_never_expires(s: Subject) -> None:
    lives(s, 100, None, ttl=-1)


@case(TRUTH_TABLE, COSMOS)
def default_n_and_a_shorter_own_ttl_m_expires_after_m(s: Subject) -> None:
    lives(s, 100, 50, ttl=50)


@case(TRUTH_TABLE, COSMOS)
def default_n_and_an_equal_own_ttl_expires_after_n(s: Subject) -> None:
    lives(s, 100, 100, ttl=100)


@case(TRUTH_TABLE, COSMOS)
def default_n_and_a_longer_own_ttl_m_expires_after_m(s: Subject) -> None:
    lives(s, 100, 200, ttl=200)


def around_the_end(s: Subject, **own: int) -> Callable[[], object]:
    """Store one row a tick before its end (1) and one at it (2); return how to stop the clock."""
    now = soon(s)
    end = timedelta(seconds=own.get("ttl", HOUR))
    s.put_at("carts", 1, now - end + s.tick, **own)
    s.put_at("carts", 2, now - end, **own)
    return lambda: s.stopped(now)


@case(BOUNDARY, COSMOS)
def equality_is_expired_and_a_tick_earlier_is_live(s: Subject) -> None:
    with around_the_end(s)():  # type: ignore[attr-defined]
        sees(s, "carts", 1)
    s.clear()
    with around_the_end(s, ttl=7)():  # type: ignore[attr-defined]
        sees(s, "carts", 1)


@case(BOUNDARY, COSMOS)
def at_that_instant_an_update_matches_what_reads_see(s: Subject) -> None:
    with around_the_end(s)():  # type: ignore[attr-defined]
        assert s.update_all("carts", views=5) == 1
        sees(s, "carts", 1)


@case(BOUNDARY, COSMOS)
def at_that_instant_a_delete_matches_what_reads_see(s: Subject) -> None:
    with around_the_end(s)():  # type: ignore[attr-defined]
        assert s.delete_all("carts") == 1
        sees(s, "carts")


@case(BOUNDARY, OURS)
def a_last_modification_in_the_future_is_counted_from_like_any_other(s: Subject) -> None:
    s.put("carts", 1, age=-60, ttl=30)
    s.put("carts", 2, age=-60)
    sees(s, "carts", 1, 2)
    assert s.sweep("carts") == 0


@case(BOUNDARY, OURS)
def the_longest_ttl_of_all_is_summed_without_overflow(s: Subject) -> None:
    s.put("carts", 1, ttl=MAX_TTL)
    s.put("carts", 2, age=MAX_TTL, ttl=MAX_TTL)
    s.put("carts", 3, age=MAX_TTL - 60, ttl=MAX_TTL)
    sees(s, "carts", 1, 3)
    s.set_policy("carts", MAX_TTL)
    s.put("carts", 4, age=MAX_TTL - 60)
    s.put("carts", 5, age=MAX_TTL)
    sees(s, "carts", 1, 3, 4)


@case(BOUNDARY, OURS)
def a_row_tells_the_instant_at_which_it_expires(s: Subject) -> None:
    for key, own in ((1, None), (2, 7200), (3, -1)):
        s.put("carts", key, age=60, ttl=own)
        stored = s.stored("carts", key)
        assert stored is not None
        ends = {1: stored["at"] + HOUR * SECOND, 2: stored["at"] + 7200 * SECOND, 3: None}
        with s.loaded("carts", key) as row:
            assert row.expires_at == ends[key]


@case(CLOCK, COSMOS, of=[("ten years ahead", 3650), ("ten years behind", -3650)])
def a_host_whose_clock_is_wrong_changes_no_answer(s: Subject, days: int) -> None:
    s.put("carts", 1, age=60)
    s.put("carts", 2, age=HOUR + 60)
    with time_machine.travel(s.now() + timedelta(days=days)):
        sees(s, "carts", 1)
        assert s.update_all("carts", views=1) == 1
        s.insert("carts", 2, name="new")
        s.insert("carts", 3)
    for key in (1, 2, 3):
        assert abs(s.age_of("carts", key)) < 60 * SECOND
    sees(s, "carts", 1, 2, 3)


def with_three_rows(s: Subject) -> None:
    """100 seconds old: one inherits (1), one has 50 seconds of its own (2), one -1 (3)."""
    for key, own in ((1, None), (2, 50), (3, -1)):
        s.put("carts", key, age=100, ttl=own)


@case(DEFAULTS, COSMOS)
def lowering_the_default_hides_inheriting_rows_at_once(s: Subject) -> None:
    with_three_rows(s)
    s.set_policy("carts", 3600)
    sees(s, "carts", 1, 3)
    s.set_policy("carts", 60)
    sees(s, "carts", 3)


@case(DEFAULTS, COSMOS)
def raising_the_default_brings_back_what_was_not_purged(s: Subject) -> None:
    with_three_rows(s)
    s.set_policy("carts", 60)
    sees(s, "carts", 3)
    s.set_policy("carts", 200)
    sees(s, "carts", 1, 3)
    assert s.sweep("carts") == 1
    sees(s, "carts", 1, 3)


@case(DEFAULTS, COSMOS)
def switching_ttl_off_stops_all_expiry_also_by_own_ttls(s: Subject) -> None:
    with_three_rows(s)
    s.set_policy("carts", 60)
    s.set_policy("carts", None)
    sees(s, "carts", 1, 2, 3)
    assert s.sweep("carts") == 0


@case(DEFAULTS, COSMOS)
def minus_1_is_not_off_own_ttls_still_count(s: Subject) -> None:
    with_three_rows(s)
    s.set_policy("carts", -1)
    sees(s, "carts", 1, 3)


@case(DEFAULTS, COSMOS)
def switching_ttl_on_counts_from_the_last_modification(s: Subject) -> None:
    s.set_policy("carts", None)
    s.insert("carts", 1)
    s.insert("carts", 2)
    s.age("carts", 1, 100)
    sees(s, "carts", 1, 2)
    s.set_policy("carts", 60)
    sees(s, "carts", 2)


@case(DEFAULTS, OURS)
def a_change_of_the_default_leaves_every_row_as_it_is_stored(s: Subject) -> None:
    with_three_rows(s)
    before = [s.stored("carts", key) for key in (1, 2, 3)]
    for default in (60, None, -1, 7200):
        s.set_policy("carts", default)
        sees(s, "carts", *({60: [3], None: [1, 2, 3]}.get(default, [1, 3])))
    assert [s.stored("carts", key) for key in (1, 2, 3)] == before


@case(COPIES, COSMOS)
def the_default_is_never_copied_into_a_row(s: Subject) -> None:
    s.insert("carts", 1)
    s.insert("carts", 2, ttl=60)
    for write in s.writes("carts").values():
        write(1)
    found = [s.stored("carts", key) for key in (1, 2)]
    assert [row and row["ttl"] for row in found] == [None, 60]


@case(COPIES, COSMOS)
def an_own_ttl_written_while_ttl_is_off_is_kept_and_counts_later(s: Subject) -> None:
    s.set_policy("carts", None)
    s.insert("carts", 1, ttl=50)
    s.insert("carts", 2)
    with s.loaded("carts", 2) as row:
        row.write(ttl=50)
    for key in (1, 2):
        s.age("carts", key, 100)
        stored = s.stored("carts", key)
        assert stored is not None
        assert stored["ttl"] == 50
    sees(s, "carts", 1, 2)
    s.set_policy("carts", -1)
    sees(s, "carts")


@case(COPIES, COSMOS)
def the_last_modification_is_stamped_while_ttl_is_off(s: Subject) -> None:
    s.set_policy("carts", None)
    s.put("carts", 1, age=100)
    s.update_all("carts", views=1)
    assert s.age_of("carts", 1) < 60 * SECOND


@case(INHERITING, COSMOS)
def without_its_ttl_a_row_has_the_default_again(s: Subject) -> None:
    s.put("carts", 1, age=60, ttl=7200)
    with s.loaded("carts", 1) as row:
        row.write(ttl=None)
    stored = s.stored("carts", 1)
    assert stored is not None
    assert stored["ttl"] is None
    s.age("carts", 1, HOUR + 60)
    sees(s, "carts")


@case(INHERITING, COSMOS)
def a_row_that_never_expired_expires_once_minus_1_is_removed(s: Subject) -> None:
    s.put("carts", 1, age=FAR, ttl=-1)
    with s.loaded("carts", 1) as row:
        row.help("inherit_ttl")
    stored = s.stored("carts", 1)
    assert stored is not None
    assert stored["ttl"] is None
    sees(s, "carts", 1)  # it was written just now
    s.age("carts", 1, HOUR + 60)
    sees(s, "carts")


@case(INHERITING, COSMOS)
def minus_1_keeps_a_row_from_inheriting_and_from_expiring(s: Subject) -> None:
    s.put("carts", 1, age=60)
    with s.loaded("carts", 1) as row:
        row.help("persist")
    s.age("carts", 1, FAR)
    sees(s, "carts", 1)
