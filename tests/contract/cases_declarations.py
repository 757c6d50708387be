"""Policies over fields that exist, what can't be declared, and MongoDB's own forms."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.case import COSMOS, COSMOS_MONGO, MONGODB, OURS, Rule, case, named, sql
from tests.contract.cases_lifetimes import FAR, sees, soon
from tests.contract.subject import HOUR, SECOND
from ttl_odm import TTL, ExpireAfter, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.core import MAX_TTL

if TYPE_CHECKING:
    from tests.contract.subject import DocumentSubject, Subject

ADOPTED = Rule(
    "`TTL` over fields that exist",
    "`TTL(n, last_modified=..., override=..., never=(...))`: the same contract over an "
    "application's own fields.",
)
AFTER = Rule(
    "`ExpireAfter`: a date and a number of seconds",
    "The field holds a date, which writes don't reset. A NULL, missing or other value never "
    "expires; an array of dates expires by its earliest.",
)
AT = Rule(
    "`ExpireAt`: the instant itself",
    "The field holds the instant of expiry (`expireAfterSeconds: 0`). NULL never expires, unless "
    '`null="expired"`.',
)
ERRORS = Rule(
    "What can't be declared",
    "A policy that can't work is an error that names the field, when the model is declared.",
)
INDEXES = Rule(
    "TTL indexes",
    "Where MongoDB deletes by itself, `ensure_indexes` makes TTL indexes and keeps them in step.",
)

ONE_DATE = sql("a column holds one date")
NO_INDEX = sql("tables have no TTL indexes: a sweeper deletes")


@case(ADOPTED, OURS)
def the_default_counts_from_the_named_field(s: Subject) -> None:
    now = soon(s)
    s.put_at("grants", 1, now - HOUR * SECOND + s.tick)
    s.put_at("grants", 2, now - HOUR * SECOND)
    with s.stopped(now):
        sees(s, "grants", 1)


@case(ADOPTED, OURS)
def the_named_override_counts(s: Subject) -> None:
    for key, (age, own) in enumerate([(60, 50), (10, 50), (2 * HOUR, 3 * HOUR), (FAR, -1)]):
        s.put("grants", key, age=age, ttl=own)
    sees(s, "grants", 1, 2, 3)


@case(ADOPTED, OURS)
def a_value_that_is_declared_as_never_means_never(s: Subject) -> None:
    s.put("grants", 1, age=FAR, ttl=0)
    s.put("grants", 2, age=2 * HOUR, ttl=-7)
    sees(s, "grants", 1)
    assert s.sweep("grants") == 1


@case(ADOPTED, OURS)
def a_null_last_modification_never_expires(s: Subject) -> None:
    s.put_at("grants", 1, None)
    s.put_at("grants", 2, None, ttl=1)
    sees(s, "grants", 1, 2)
    assert s.sweep("grants") == 0


@case(ADOPTED, OURS)
def every_way_to_write_resets_the_named_field(s: Subject) -> None:
    s.put("grants", 1)
    for way, write in s.writes("grants").items():
        s.age("grants", 1, HOUR // 2)
        write(1)
        assert s.age_of("grants", 1) < 60 * SECOND, way


@case(ADOPTED, OURS)
def an_insert_stamps_the_named_field_and_takes_expired_keys(s: Subject) -> None:
    s.put("grants", 1, age=2 * HOUR)
    s.insert("grants", 1, name="new")
    assert s.age_of("grants", 1) < 60 * SECOND
    sees(s, "grants", 1)


@case(ADOPTED, OURS, not_on={"Django": "a model of one's own has no helpers: those are TTLModel's"})
def a_row_tells_its_end_by_the_named_fields(s: Subject) -> None:
    s.put("grants", 1, age=60, ttl=900)
    stored = s.stored("grants", 1)
    assert stored is not None
    with s.loaded("grants", 1) as row:
        assert row.expires_at == stored["at"] + 900 * SECOND
        row.write(lifetime=0)
        assert row.expires_at is None


@case(ADOPTED, OURS)
def a_change_of_its_default_acts_at_once(s: Subject) -> None:
    s.put("grants", 1, age=100)
    fields = {"last_modified": "issued", "override": "lifetime", "never": (0,)}
    for default, expected in ((60, []), (200, [1]), (-1, [1]), (50, []), (None, [1])):
        s.set_policy("grants", TTL(default, **fields))  # type: ignore[arg-type]
        sees(s, "grants", *expected)


@case(AFTER, MONGODB)
def a_row_expires_its_seconds_after_its_date(s: Subject) -> None:
    now = soon(s)
    s.put_at("visits", 1, now - HOUR * SECOND + s.tick)
    s.put_at("visits", 2, now - HOUR * SECOND)
    with s.stopped(now):
        sees(s, "visits", 1)
    s.age("visits", 2, HOUR + 10)
    assert s.sweep("visits") >= 1
    assert 2 not in s.keys("visits")


@case(AFTER, OURS)
def writes_do_not_reset_its_date(s: Subject) -> None:
    s.put("visits", 1, age=HOUR // 2)
    before = s.stored("visits", 1)
    for way, write in s.writes("visits").items():
        write(1)
        after = s.stored("visits", 1)
        assert before is not None
        assert after is not None
        assert after["at"] == before["at"], way
        assert after["views"] != before["views"], way
        assert "_ts" not in after, way
        before = after


@case(AFTER, MONGODB)
def without_a_date_a_row_never_expires(s: Subject) -> None:
    s.put_at("visits", 1, None)
    sees(s, "visits", 1)
    assert s.sweep("visits") == 0


@case(AFTER, MONGODB, not_on=sql("a row has all columns of its table"))
def where_the_field_is_missing_a_row_never_expires(s: DocumentSubject) -> None:
    s.put_document("visits", {"_id": 1, "name": "n1"})
    sees(s, "visits", 1)
    assert s.sweep("visits") == 0


@case(
    AFTER,
    MONGODB,
    of=named({'"2000-01-01"': "2000-01-01", "0": 0, "True": True, "[]": [], "{}": {}}),
    not_on=sql("a date column holds dates only"),
)
def a_value_that_is_not_a_date_never_expires(s: DocumentSubject, value: Any) -> None:
    s.put_document("visits", {"_id": 1, "name": "n1", "made": value})
    sees(s, "visits", 1)
    assert s.sweep("visits") == 0


@case(AFTER, MONGODB, not_on=ONE_DATE)
def an_array_of_dates_expires_by_its_earliest(s: DocumentSubject) -> None:
    young, old = s.now() - 60 * SECOND, s.now() - (HOUR + 60) * SECOND
    for key, made in enumerate([[young], [young, old], [old, young], [old]]):
        s.put_document("visits", {"_id": key, "name": f"n{key}", "made": made})
    sees(s, "visits", 0)
    assert s.sweep("visits") == 3


@case(AFTER, MONGODB, not_on=ONE_DATE)
def what_is_not_a_date_in_an_array_is_ignored(s: DocumentSubject) -> None:
    young, old = s.now() - 60 * SECOND, s.now() - (HOUR + 60) * SECOND
    for key, made in enumerate([["x", young, None], ["x", old, 5], ["x", None]]):
        s.put_document("visits", {"_id": key, "name": f"n{key}", "made": made})
    sees(s, "visits", 0, 2)


@case(AFTER, OURS)
def the_key_of_an_expired_row_is_free_here_too(s: Subject) -> None:
    s.put("visits", 1, age=HOUR + 60, views=8)
    s.insert("visits", 1, name="new", made=s.now())
    stored = s.stored("visits", 1)
    assert stored is not None
    assert (stored["name"], stored["views"]) == ("new", 0)
    sees(s, "visits", 1)


@case(AT, MONGODB)
def a_row_expires_at_the_instant_that_it_holds(s: Subject) -> None:
    now = soon(s)
    s.put_at("vouchers", 1, now + s.tick)
    s.put_at("vouchers", 2, now)
    s.put_at("vouchers", 3, now - s.tick)
    with s.stopped(now):
        sees(s, "vouchers", 1)


@case(AT, MONGODB)
def a_later_instant_prolongs_and_an_earlier_one_ends(s: Subject) -> None:
    s.put("vouchers", 1, age=-60)
    s.put("vouchers", 2, age=-60)
    with s.loaded("vouchers", 1) as row:
        row.write(ends=s.now() + HOUR * SECOND)
    with s.loaded("vouchers", 2) as row:
        row.write(ends=s.now() - SECOND)
    sees(s, "vouchers", 1)
    with pytest.raises(AssertionError), s.loaded("vouchers", 2):
        pass
    assert s.sweep("vouchers") == 1


@case(AT, MONGODB)
def null_never_expires(s: Subject) -> None:
    s.put_at("vouchers", 1, None)
    sees(s, "vouchers", 1)
    assert s.sweep("vouchers") == 0


@case(AT, OURS)
def null_is_expired_where_that_is_declared(s: Subject) -> None:
    s.put_at("coupons", 1, None)
    s.put("coupons", 2, age=-60)
    sees(s, "coupons", 2)
    assert s.sweep("coupons") == 1


@case(AT, OURS)
def an_epoch_integer_is_an_instant_in_its_unit(s: Subject) -> None:
    for key, age in ((1, -60), (2, 60)):
        s.put("tickets", key, age=age)
    s.put_at("tickets", 3, None)
    sees(s, "tickets", 1, 3)
    assert s.sweep("tickets") == 1


@case(ERRORS, MONGODB, of=[("a tuple", ("at", "id")), ("a string with a comma", "at,id")])
def a_compound_field_is_refused(s: Subject, field: Any) -> None:
    for policy in (ExpireAt, lambda name: ExpireAfter(name, 60)):
        with pytest.raises(TTLConfigurationError, match=r"at.*id"):
            policy(field)
    with pytest.raises(TTLConfigurationError, match=r"at.*id"):
        s.declare(TTL(60, last_modified=field))


@case(
    ERRORS,
    OURS,
    not_on={"Beanie": "documents need not have a field: they never expire, and `check` finds them"},
)
def a_field_that_is_missing_is_refused_by_name(s: Subject) -> None:
    for policy in (ExpireAt("gone"), ExpireAfter("gone", 60), TTL(60, last_modified="gone")):
        with pytest.raises(TTLConfigurationError, match="gone"):
            s.declare(policy)


@case(
    ERRORS,
    MONGODB,
    of=named({"-1": -1, "1.5": 1.5, "2147483648": MAX_TTL + 1, '"60"': "60", "True": True}),
)
def seconds_of_expire_after_are_refused(s: Subject, seconds: Any) -> None:
    with pytest.raises(InvalidTTL):
        s.declare(ExpireAfter("at", seconds))


@case(ERRORS, OURS, of=named({"0": 0, "timedelta(0)": timedelta(0), "None": None}))
def no_seconds_of_expire_after_are_refused_with_the_way_to_say_never(
    s: Subject, seconds: Any
) -> None:
    with pytest.raises(InvalidTTL, match="never expire, declare no policy"):
        s.declare(ExpireAfter("at", seconds))


@case(ERRORS, MONGODB, of=[1, MAX_TTL])
def seconds_of_expire_after_are_taken(s: Subject, seconds: int) -> None:
    s.declare(ExpireAfter("at", seconds))


@case(ERRORS, OURS, not_on=sql("there are no time-series tables"))
def an_own_ttl_in_a_time_series_is_refused(s: DocumentSubject) -> None:
    with pytest.raises(TTLConfigurationError, match="ExpireAfter"):
        s.declare_series(60)


@case(INDEXES, COSMOS_MONGO, not_on=NO_INDEX)
def a_default_is_the_expire_after_seconds_of_an_index_on_ts(s: DocumentSubject) -> None:
    assert HOUR in s.make_indexes().values()


@case(INDEXES, OURS, not_on=NO_INDEX)
def an_own_ttl_has_an_index_of_its_own_that_expires_at_the_instant(s: DocumentSubject) -> None:
    assert sorted(s.make_indexes().values()) == [0, HOUR]


@case(INDEXES, MONGODB, not_on=NO_INDEX)
def another_default_changes_the_index_in_place(s: DocumentSubject) -> None:
    before = s.make_indexes()
    s.set_policy("natives", 60)
    after = s.make_indexes()
    assert before.keys() == after.keys()
    assert sorted(after.values()) == [0, 60]


@case(INDEXES, COSMOS, not_on=NO_INDEX)
def minus_1_keeps_the_indexes_so_that_own_ttls_count(s: DocumentSubject) -> None:
    s.set_policy("natives", -1)
    assert sorted(s.make_indexes().values()) == [0, MAX_TTL]


@case(INDEXES, COSMOS, not_on=NO_INDEX)
def switching_ttl_off_removes_them(s: DocumentSubject) -> None:
    assert s.make_indexes()
    s.set_policy("natives", None)
    assert s.make_indexes() == {}
