"""What writes do: to the last modification, to expired rows, and to their keys."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from tests.contract.case import AZURE, COSMOS, OURS, Rule, case
from tests.contract.cases_lifetimes import sees
from tests.contract.subject import HOUR, SECOND

if TYPE_CHECKING:
    from tests.contract.subject import Subject, TableSubject

RESETS = Rule(
    "Writes start the lifetime again",
    "Every write through the gate resets `_ts`, also one that changes only `ttl`.",
)
GONE = Rule(
    "Expired rows don't exist",
    "From the instant of expiry the row does not exist for any operation, and no write brings it "
    "back to life.",
)
KEYS = Rule(
    "Keys of expired rows",
    "The keys of an expired row are free, and a write that takes one replaces it. A live row is "
    "never displaced.",
)
SWEEPING = Rule(
    "Sweeping",
    "The sweeper deletes only rows that are expired at the moment of its DELETE.",
)

HALF = HOUR // 2
OLD = HOUR + 60
MINUTE = 60 * SECOND
THIRDS = 1.236
"""A number of which a column may keep two digits behind the point."""
LONG_AGO = datetime(2000, 1, 1, tzinfo=timezone.utc)
NO_TABLES = {"Beanie": "a document is in one collection, which nothing refers to by constraint"}
NO_MAP = {"Django": "Django keeps no rows in memory to serve again"}


@case(RESETS, COSMOS)
def every_way_to_write_a_row_resets_its_last_modification(s: Subject) -> None:
    s.put("carts", 1)
    for way, write in s.writes("carts").items():
        s.age("carts", 1, HALF)
        write(1)
        assert s.age_of("carts", 1) < MINUTE, way


@case(RESETS, COSMOS)
def a_write_of_all_rows_by_one_statement_resets_them(s: Subject) -> None:
    for key in (1, 2, 3):
        s.put("carts", key, age=HALF)
    assert s.update_all("carts", views=1) == 3
    for key in (1, 2, 3):
        assert s.age_of("carts", key) < MINUTE


@case(RESETS, COSMOS)
def a_write_of_the_ttl_alone_resets(s: Subject) -> None:
    s.put("carts", 1, age=HALF)
    with s.loaded("carts", 1) as row:
        row.write(ttl=HOUR)
    assert s.age_of("carts", 1) < MINUTE


@case(RESETS, COSMOS)
def an_upsert_that_meets_a_live_row_resets_it(s: Subject) -> None:
    s.put("carts", 1)
    for number, (way, upsert) in enumerate(s.upserts("carts").items()):
        s.age("carts", 1, HALF)
        upsert(1, views=number + 4)
        stored = s.stored("carts", 1)
        assert stored is not None
        assert (stored["views"], stored["name"]) == (number + 4, "n1"), way
        assert s.age_of("carts", 1) < MINUTE, way


@case(RESETS, COSMOS)
def a_row_lives_a_whole_ttl_more_after_each_write(s: Subject) -> None:
    s.put("carts", 1)
    for views in (4, 5, 6):
        s.age("carts", 1, HOUR - 60)
        with s.loaded("carts", 1) as row:
            row.write(views=views)
            assert row.expires_at is not None
            assert abs(row.expires_at - s.now() - HOUR * SECOND) < MINUTE


@case(RESETS, OURS)
def touch_resets_and_changes_nothing_else(s: Subject) -> None:
    s.put("carts", 1, age=HALF, ttl=7200, views=3)
    with s.loaded("carts", 1) as row:
        row.touch()
    stored = s.stored("carts", 1)
    assert stored is not None
    assert (stored["ttl"], stored["views"], stored["name"]) == (7200, 3, "n1")
    assert s.age_of("carts", 1) < MINUTE


@case(RESETS, OURS)
def a_touch_without_loading_renews_live_rows_and_counts_them(s: Subject) -> None:
    for key, age in ((1, HALF), (2, OLD), (3, HALF)):
        s.put("carts", key, age=age, ttl=None if key < 3 else 7200, views=3)
    before = s.stored("carts", 2)
    assert s.touch("carts", 1) == 1
    assert (s.touch("carts", 2), s.touch("carts", 9)) == (0, 0)
    assert s.age_of("carts", 1) < MINUTE < s.age_of("carts", 3)
    assert s.touch("carts") == 2
    assert s.age_of("carts", 3) < MINUTE
    stored = s.stored("carts", 3)
    assert stored is not None
    assert (stored["ttl"], stored["views"], stored["name"]) == (7200, 3, "n3")
    assert s.stored("carts", 2) == before


@case(RESETS, OURS)
def a_touch_without_loading_leaves_rows_alone_that_were_written_recently(s: Subject) -> None:
    for key, age in ((1, 30), (2, 90), (3, OLD)):
        s.put("carts", key, age=age)
    assert s.touch("carts", at_most_every=60) == 1
    assert s.age_of("carts", 2) < 30 * SECOND <= s.age_of("carts", 1)
    assert s.touch("carts", 2, at_most_every=60) == 0


@case(RESETS, OURS)
def a_touch_without_loading_may_give_rows_a_life_of_their_own(s: Subject) -> None:
    for key, ttl in ((1, None), (2, -1), (3, 7200)):
        s.put("carts", key, age=HALF, ttl=ttl)
    assert s.touch("carts", 1, expire_in=60) == 1
    assert s.age_of("carts", 1) < MINUTE
    assert s.touch("carts", expire_in=100, only_if="longer") == 1
    assert s.touch("carts", expire_in=1000, only_if="shorter") == 2
    ttls = [stored["ttl"] for key in (1, 2, 3) if (stored := s.stored("carts", key)) is not None]
    assert ttls == [100, 1000, 1000]
    assert s.touch("carts", 1, expire_in=0) == 1
    assert s.keys_with_expired("carts") == {1, 2, 3}
    assert s.touch("carts", 1) == 0


@case(RESETS, OURS)
def a_row_that_is_renewed_and_read_at_once_comes_back_if_it_lives(s: Subject) -> None:
    for key, age in ((1, HALF), (2, OLD), (3, 30)):
        s.put("carts", key, age=age)
    assert [s.touched("carts", key, at_most_every=60) for key in (1, 2, 3, 4)] == [1, None, 3, None]
    assert s.age_of("carts", 1) < MINUTE
    assert s.age_of("carts", 3) >= 30 * SECOND
    assert s.touched("carts", 3, only_if="no_ttl") == 3
    assert s.age_of("carts", 3) >= 30 * SECOND


@case(RESETS, OURS)
def keep_last_modified_writes_without_resetting(s: Subject) -> None:
    s.put("carts", 1, age=HALF)
    first = before = s.stored("carts", 1)
    assert before is not None
    for way, write in s.keeping_writes("carts").items():
        write(1)
        after = s.stored("carts", 1)
        assert after is not None
        assert after["at"] == before["at"], way
        assert after["views"] != before["views"], way
        before = after
    assert before is not first


@case(RESETS, OURS, not_on={"Django": "save() always writes", "Beanie": "save() always writes"})
def a_flush_without_a_net_change_writes_and_resets_nothing(s: Subject) -> None:
    s.put("carts", 1, age=HALF)
    before = s.stored("carts", 1)
    with s.loaded("carts", 1) as row:
        row.write_nothing()
    assert s.stored("carts", 1) == before


@case(RESETS, OURS)
def what_a_program_assigns_to_the_last_modification_is_overruled(s: Subject) -> None:
    s.put("carts", 1, age=HALF)
    with s.loaded("carts", 1) as row:
        row.write(last_modified=LONG_AGO, views=2)
    assert s.age_of("carts", 1) < MINUTE


@case(RESETS, OURS, not_on=NO_TABLES)
def a_write_to_the_table_of_a_subclass_alone_resets_the_row(s: TableSubject) -> None:
    s.insert_gift(1)
    for way, write in s.gift_writes().items():
        s.age("orders", 1, HALF)
        write(1)
        assert s.age_of("orders", 1) < MINUTE, way


@case(GONE, COSMOS)
def no_way_to_read_returns_or_counts_it(s: Subject) -> None:
    s.put("carts", 1, age=60)
    s.put("carts", 2, age=OLD)
    s.put("carts", 3, age=60, ttl=50)
    sees(s, "carts", 1)
    assert s.keys("carts") == {1, 2, 3}


@case(GONE, COSMOS)
def it_is_neither_joined_nor_loaded_as_a_related_row(s: Subject) -> None:
    s.put("carts", 1, age=60)
    s.put("carts", 2, age=OLD)
    s.put_line(1, cart=1)
    s.put_line(2, cart=2)
    living, dead = s.reached(1), s.reached(2)
    assert set(living.values()) == {1}, living
    assert set(dead.values()) == {None}, dead


@case(GONE, COSMOS)
def no_way_to_write_changes_it(s: Subject) -> None:
    s.put("carts", 1, age=OLD)
    before = s.stored("carts", 1)
    for way, write in {**s.writes("carts"), **s.keeping_writes("carts")}.items():
        with suppress(*s.gone):
            write(1)
        assert s.stored("carts", 1) == before, way


@case(GONE, COSMOS)
def an_update_of_all_rows_matches_and_counts_live_ones_only(s: Subject) -> None:
    for key, age in ((1, 60), (2, OLD), (3, OLD)):
        s.put("carts", key, age=age)
    before = s.stored("carts", 2)
    assert s.update_all("carts", views=9) == 1
    assert s.stored("carts", 2) == before


@case(GONE, COSMOS)
def a_delete_of_all_rows_matches_and_counts_live_ones_only(s: Subject) -> None:
    for key, age in ((1, 60), (2, OLD), (3, OLD)):
        s.put("carts", key, age=age)
    assert s.delete_all("carts") == 1
    assert s.keys("carts") == {2, 3}


@case(GONE, COSMOS)
def an_object_whose_row_has_expired_can_not_be_written(s: Subject) -> None:
    s.put("carts", 1, age=60)
    with s.loaded("carts", 1) as row:
        s.age("carts", 1, OLD)
        before = s.stored("carts", 1)
        with pytest.raises(s.gone):
            row.write(views=1)
    assert s.stored("carts", 1) == before


@case(GONE, COSMOS)
def an_object_whose_row_has_expired_can_not_be_touched(s: Subject) -> None:
    s.put("carts", 1, age=60)
    with s.loaded("carts", 1) as row:
        s.age("carts", 1, OLD)
        before = s.stored("carts", 1)
        with pytest.raises(s.gone):
            row.touch()
    assert s.stored("carts", 1) == before


@case(GONE, COSMOS)
def an_object_whose_row_has_expired_can_not_be_given_a_longer_ttl(s: Subject) -> None:
    s.put("carts", 1, age=60)
    with s.loaded("carts", 1) as row:
        s.age("carts", 1, OLD)
        before = s.stored("carts", 1)
        with pytest.raises(s.gone):
            row.help("persist")
    assert s.stored("carts", 1) == before


@case(GONE, COSMOS)
def an_object_whose_row_has_expired_deletes_nothing(s: Subject) -> None:
    s.put("carts", 1, age=60)
    with s.loaded("carts", 1) as row:
        s.age("carts", 1, OLD)
        with suppress(*s.gone):
            assert row.delete() == 0  # Django tells so
    assert s.keys("carts") == {1}


@case(GONE, COSMOS)
def an_object_whose_row_has_expired_can_not_be_refreshed(s: Subject) -> None:
    s.put("carts", 1, age=60)
    with s.loaded("carts", 1) as row:
        s.age("carts", 1, OLD)
        with pytest.raises((*s.gone, *s.missing)):
            row.refresh()


@case(GONE, OURS, not_on=NO_MAP)
def what_is_in_memory_or_cached_is_not_served_after_its_end(s: Subject) -> None:
    s.put(s.remembering, 1, age=100)
    s.put(s.remembering, 2, age=10)
    with s.loaded(s.remembering, 1) as old, s.loaded(s.remembering, 2) as young:
        assert old.is_still_served()
        assert young.is_still_served()
        s.set_policy(s.remembering, 60)
        assert not old.is_still_served()
        assert young.is_still_served()


@case(GONE, OURS)
def an_option_shows_it_and_revives_nothing(s: Subject) -> None:
    s.put("carts", 1, age=60)
    s.put("carts", 2, age=OLD)
    assert s.keys_with_expired("carts") == {1, 2}
    sees(s, "carts", 1)


@case(KEYS, AZURE)
def every_way_to_insert_takes_the_primary_key_of_an_expired_row(s: Subject) -> None:
    for way in s.inserts("carts"):
        s.clear()
        s.put("carts", 1, age=OLD, ttl=50, views=8)
        s.inserts("carts")[way](1, name="new")
        stored = s.stored("carts", 1)
        assert stored is not None
        # Nothing of the old row survives.
        assert (stored["name"], stored["ttl"], stored["views"]) == ("new", None, 0), way
        sees(s, "carts", 1)


@case(KEYS, OURS)
def every_way_to_insert_takes_a_unique_value_of_an_expired_row(s: Subject) -> None:
    for way in s.inserts("carts"):
        s.clear()
        s.put("carts", 1, age=OLD, name="taken")
        s.inserts("carts")[way](2, name="taken")
        assert s.keys("carts") == {2}, way


@case(KEYS, OURS)
def one_insert_takes_the_keys_of_two_expired_rows(s: Subject) -> None:
    s.put("carts", 1, age=OLD)
    s.put("carts", 2, age=OLD, name="taken")
    s.insert("carts", 1, name="taken")
    assert s.keys("carts") == {1}
    sees(s, "carts", 1)


@case(KEYS, OURS)
def no_way_to_insert_displaces_a_live_row_by_its_primary_key(s: Subject) -> None:
    s.put("carts", 1, age=60, views=8)
    before = s.stored("carts", 1)
    for way, insert in s.inserts("carts").items():
        with pytest.raises(s.duplicate):
            insert(1, name="new")
        assert s.stored("carts", 1) == before, way


@case(KEYS, OURS)
def no_way_to_insert_displaces_a_live_row_by_a_unique_value(s: Subject) -> None:
    s.put("carts", 1, age=60, name="taken")
    before = s.stored("carts", 1)
    for way, insert in s.inserts("carts").items():
        with pytest.raises(s.duplicate):
            insert(2, name="taken")
        assert s.keys("carts") == {1}, way
        assert s.stored("carts", 1) == before, way


@case(KEYS, OURS)
def an_insert_that_meets_a_live_and_an_expired_row_changes_neither(s: Subject) -> None:
    s.put("carts", 1, age=OLD)
    s.put("carts", 2, age=60, name="taken")
    with pytest.raises(s.duplicate):
        s.insert("carts", 1, name="taken")
    stored = s.stored("carts", 2)
    assert stored is not None
    assert stored["name"] == "taken"
    sees(s, "carts", 2)


@case(KEYS, OURS)
def an_update_takes_a_unique_value_of_an_expired_row(s: Subject) -> None:
    s.put("carts", 1, age=OLD, name="taken")
    s.put("carts", 2, age=60)
    with s.loaded("carts", 2) as row:
        row.write(name="taken")
    assert s.keys("carts") == {2}
    s.clear()
    s.put("carts", 1, age=OLD, name="taken")
    s.put("carts", 2, age=60)
    assert s.update_all("carts", name="taken") == 1
    assert s.keys("carts") == {2}


@case(KEYS, OURS)
def a_unique_value_is_free_as_the_database_stores_it(s: Subject) -> None:
    for way in s.inserts("prices"):
        s.clear()
        s.put("prices", 1, age=OLD, amount=THIRDS)
        s.inserts("prices")[way](2, amount=THIRDS)
        assert s.keys("prices") == {2}, way
    s.clear()
    s.put("prices", 1, age=OLD, amount=THIRDS)
    s.put("prices", 2, age=60)
    with s.loaded("prices", 2) as row:
        row.write(amount=THIRDS)
    assert s.keys("prices") == {2}


@case(KEYS, OURS)
def a_row_that_has_to_be_unique_again_takes_the_value_of_an_expired_row(s: Subject) -> None:
    for hidden_one_by_one in (True, False):
        s.clear()
        s.put("prices", 1, age=OLD, code="taken", hidden=None)
        s.put("prices", 2, age=60, code="taken", hidden=1)
        if hidden_one_by_one:
            with s.loaded("prices", 2) as row:
                row.write(hidden=None)
        else:
            assert s.update_all("prices", hidden=None) == 1
        assert s.keys("prices") == {2}


@case(KEYS, OURS)
def an_update_never_takes_a_unique_value_of_a_live_row(s: Subject) -> None:
    s.put("carts", 1, age=60, name="taken")
    s.put("carts", 2, age=60)
    with s.loaded("carts", 2) as row, pytest.raises(s.duplicate):
        row.write(name="taken")
    found = [s.stored("carts", key) for key in (1, 2)]
    assert [row and row["name"] for row in found] == ["taken", "n2"]


@case(KEYS, OURS)
def an_upsert_that_meets_an_expired_row_inserts(s: Subject) -> None:
    for way in s.upserts("carts"):
        s.clear()
        s.put("carts", 1, age=OLD, ttl=50, views=8)
        s.upserts("carts")[way](1, name="new")
        stored = s.stored("carts", 1)
        assert stored is not None
        assert (stored["name"], stored["ttl"]) == ("new", None), way
        assert stored.get("views", 0) == 0, way
        assert s.age_of("carts", 1) < MINUTE, way
        sees(s, "carts", 1)


@case(KEYS, OURS)
def a_displaced_row_is_archived_and_told_to_the_hook(s: Subject) -> None:
    s.put("seats", 1, age=OLD)
    s.put("seats", 2, age=OLD, name="taken")
    s.insert("seats", 1, name="taken")
    assert s.keys("seats") == {1}
    assert s.archived() == {1, 2}
    told = s.told()
    assert {reason for reason, _ in told} == {"displaced"}
    assert set().union(*(keys for _, keys in told)) == {1, 2}


@case(KEYS, OURS)
def an_archive_keeps_every_life_of_a_key(s: Subject) -> None:
    for life in range(1, 3):
        s.put("seats", 1, age=OLD)
        assert s.sweep("seats") == 1
        assert s.archived_lives(1) == life
    s.put("seats", 1, age=OLD)
    s.insert("seats", 1, name="new")
    sees(s, "seats", 1)
    assert s.archived_lives(1) == 3
    assert s.archived() == {1}


@case(KEYS, OURS, not_on=NO_TABLES)
def a_live_row_that_refers_to_an_expired_one_keeps_its_key(s: TableSubject) -> None:
    s.put("carts", 1, age=OLD)
    s.put_line(1, cart=1)
    with pytest.raises(s.restricted, match=r"(?i)refer|protect|foreign key"):
        s.insert("carts", 1, name="new")
    stored = s.stored("carts", 1)
    assert stored is not None
    assert stored["name"] == "n1"


@case(SWEEPING, COSMOS)
def a_sweep_deletes_what_has_expired_and_nothing_else(s: Subject) -> None:
    for key, (age, own) in enumerate(
        [(60, None), (OLD, None), (60, 50), (60, 7200), (OLD, 7200), (OLD, -1), (3 * HOUR, 7200)]
    ):
        s.put("carts", key, age=age, ttl=own)
    assert s.sweep("carts") == 3
    assert s.keys("carts") == {0, 3, 4, 5}
    sees(s, "carts", 0, 3, 4, 5)
    assert s.sweep("carts") == 0


@case(SWEEPING, COSMOS)
def a_sweep_deletes_nothing_while_ttl_is_off(s: Subject) -> None:
    s.put("carts", 1, age=OLD)
    s.put("carts", 2, age=OLD, ttl=50)
    s.set_policy("carts", None)
    assert s.sweep("carts") == 0
    assert s.keys("carts") == {1, 2}


@case(SWEEPING, OURS)
def a_row_that_is_renewed_between_look_and_delete_stays(s: Subject) -> None:
    s.put("carts", 1, age=OLD)
    s.put("carts", 2, age=OLD)
    with s.before_delete(lambda: s.age("carts", 1, 0)):
        assert s.sweep("carts") == 1
    assert s.keys("carts") == {1}


@case(SWEEPING, OURS)
def a_row_that_is_purged_is_archived_and_told_to_the_hook(s: Subject) -> None:
    s.put("seats", 1, age=OLD)
    s.put("seats", 2, age=60)
    assert s.sweep("seats") == 1
    assert s.keys("seats") == {2}
    assert s.archived() == {1}
    assert [keys for _, keys in s.told()] == [{1}]
    assert {reason for reason, _ in s.told()} != {"displaced"}
