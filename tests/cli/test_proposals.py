"""What `inspect` concludes from names, types and values; pure, without a database."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ttl_odm
from ttl_odm import TTL, ExpireAfter, ExpireAt
from ttl_odm.forecast import Measured
from ttl_odm.forecast.parser import parse_policy
from ttl_odm.forecast.text import tried
from ttl_odm.inspection import (
    Confidence,
    Field,
    Kind,
    Proposal,
    Table,
    as_source,
    declarations,
    propose,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
EPOCH = int(NOW.timestamp())


def table(name: str, *rows: dict[str, Any], **fields: Any) -> Table:
    kinds = {
        key: kind if isinstance(kind, Field) else Field(key, kind) for key, kind in fields.items()
    }
    return Table(name, list(kinds.values()), rows, len(rows))


def proposed(*args: Any, **fields: Any) -> Proposal:
    proposal = propose(table(*args, **fields), NOW).proposal
    assert proposal is not None
    return proposal


@pytest.mark.parametrize(
    "name",
    [
        *("expires_at", "expiresAt", "expires", "expiry", "expire_date", "expiration", "expireAt"),
        *("valid_until", "validTo", "not_after", "notAfter", "exp", "expires_on", "keep_until"),
        *(
            "delete_after",
            "purge_at",
            "good_until",
            "expiration_date",
            "expires_ts",
            "session_expires_at",
        ),
    ],
)
def test_a_name_for_the_end_of_a_row_is_an_expire_at(name: str) -> None:
    proposal = proposed("web_sessions", **{name: Kind.AWARE})
    assert proposal.policy == ExpireAt(name)


@pytest.mark.parametrize(
    "name",
    [
        "deleted",
        "deleted_by",
        "expired_by",
        "experience",
        "expense",
        "updated_at",
        "experiment",
        "price",
    ],
)
def test_other_names_are_none(name: str) -> None:
    assert propose(table("things", **{name: Kind.AWARE}), NOW).proposal is None


def test_the_end_of_something_else_in_the_row_is_a_remark_only() -> None:
    verdict = propose(table("users", password_expires_at=Kind.AWARE), NOW)
    assert verdict.proposal is None
    assert "may be the expiry of the password only" in verdict.remarks[0]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1000), ("us", 1_000_000)])
def test_the_unit_of_an_epoch_is_told_by_its_values(unit: Any, factor: int) -> None:
    for kind, number in ((Kind.INTEGER, int), (Kind.FLOAT, float), (Kind.FLOAT, Decimal)):
        rows = [{"expires": number((EPOCH + n) * factor)} for n in (-5, 0, 5, 10)]
        proposal = proposed("cache", *rows, expires=kind)
        assert proposal.policy == ExpireAt("expires", unit=unit)


@pytest.mark.parametrize(
    ("kind", "value", "remark"),
    [
        (Kind.INTEGER, 86_400, "not epoch times"),
        (Kind.FLOAT, float("nan"), "holds numbers, but there are no rows"),
        (Kind.SHORT_FLOAT, 1.7e9, "float of 4 bytes"),
        (Kind.TEXT, "31.12.2025", "not ISO 8601"),
        (Kind.TEXT, "2026-01-01T10:00:00+02:00", "not UTC"),
        (Kind.OTHER, b"x", "no dates"),
    ],
)
def test_values_that_can_not_be_compared_are_a_remark(kind: Kind, value: Any, remark: str) -> None:
    verdict = propose(table("cache", {"expires": value}, expires=kind), NOW)
    assert verdict.proposal is None
    assert remark in verdict.remarks[0]


def test_iso_text_in_utc_is_taken() -> None:
    rows = [{"expires": "2026-01-01T12:00:00Z"}, {"expires": "2026-01-01T12:00:01.5Z"}]
    proposal = proposed("links", *rows, expires=Kind.TEXT)
    assert proposal.policy == ExpireAt("expires", unit="iso")


def test_a_lifetime_counts_from_the_beginning_of_the_row() -> None:
    rows = [{"issued_at": EPOCH - 100, "expires_in": own} for own in (100, 101, 0, None)]
    proposal = proposed("token", *rows, issued_at=Kind.INTEGER, expires_in=Kind.INTEGER)
    expected = TTL(-1, last_modified="issued_at", override="expires_in", never=(0,), unit="s")
    assert proposal.policy == expected
    assert any("keep_last_modified" in caution for caution in proposal.cautions)


def test_an_end_wins_over_a_lifetime_and_ends_are_ranked() -> None:
    proposal = proposed(
        "access_tokens",
        created_at=Kind.AWARE,
        lifetime=Kind.INTEGER,
        token_expires_at=Kind.AWARE,
        expires_at=Kind.AWARE,
    )
    assert proposal.policy == ExpireAt("expires_at")
    assert proposal.confidence is Confidence.CLEAR
    assert "token_expires_at may be the expiry, too" in proposal.cautions[0]


@pytest.mark.parametrize(
    ("name", "field", "seconds"),
    [
        ("celery_taskmeta", "date_done", 86_400),
        ("accesstoken", "created_at", 3_600),
        ("user_sessions", "last_seen", 14 * 86_400),
        ("audit_logs", "timestamp", 90 * 86_400),
        ("jobs", "finished_at", 7 * 86_400),
        ("log", "dttm", 90 * 86_400),
    ],
)
def test_what_usually_passes_is_a_guess(name: str, field: str, seconds: int) -> None:
    proposal = proposed(name, **{field: Kind.AWARE})
    assert proposal.policy == ExpireAfter(field, seconds)
    assert proposal.confidence is Confidence.GUESS


@pytest.mark.parametrize(
    "name", ["users", "orders", "jobs", "catalog", "blogs", "clocks", "log_template"]
)
def test_what_does_not_pass_is_left_alone(name: str) -> None:
    assert propose(table(name, created_at=Kind.AWARE), NOW).proposal is None


def test_what_others_refer_to_is_not_clear_and_never_a_guess() -> None:
    fields = [Field("expires_at", Kind.AWARE)]
    proposal = propose(Table("tokens", fields, references=["refresh.token_id"]), NOW).proposal
    assert proposal is not None
    assert proposal.confidence is Confidence.LIKELY
    assert proposal.cautions[0].startswith("refresh.token_id refers to it: ")
    created = [Field("created_at", Kind.AWARE)]
    referring = [f"t{number}.x" for number in range(5)]
    verdict = propose(Table("sessions", created, references=referring), NOW)
    assert verdict.proposal is None
    assert verdict.remarks[0].endswith("but t0.x, t1.x, t2.x and 2 more refer to it")


def counted(early: int, late: int) -> Measured:
    return Measured(("rows", "planned 0", "early", "late"), [(10, 9, early, late)])


def test_values_that_may_mean_never_are_reasons_for_doubt() -> None:
    proposal = proposed("cache", expires=Field("expires", Kind.AWARE, is_nullable=False))
    assert tried(proposal, counted(0, 0)).confidence is Confidence.CLEAR
    early = tried(proposal, counted(8, 0))
    assert (early.confidence, early.expired, early.rows) == (Confidence.LIKELY, 9, 10)
    assert "negative numbers): 8; if these mean never" in early.cautions[0]
    assert "first set them to an instant far ahead" in early.cautions[0]
    late = tried(proposal, counted(0, 7))
    assert late.confidence is Confidence.LIKELY
    assert "after the year 2500, which may mean never: 7" in late.cautions[0]


def test_tables_of_django_get_the_setting() -> None:
    fields = [Field("expires", Kind.NAIVE), Field("valid_until", Kind.DATE)]
    verdict = propose(Table("shop_token", fields, django="shop.token"), NOW)
    assert verdict.proposal is not None
    assert not any("time zone" in caution for caution in verdict.proposal.cautions)
    source = declarations([verdict.proposal])
    assert "enable" not in source
    settings: dict[str, Any] = {}
    exec(source, settings)  # noqa: S102 (what a user pastes)
    assert settings["TTL_ODM_POLICIES"] == {"shop.token": ExpireAt("expires")}
    dated = propose(Table("shop_token", fields[1:], django="shop.token"), NOW)
    assert "DateTimeFields and epoch numbers" in dated.remarks[0]


def test_a_ttl_index_of_mongodb_is_clear() -> None:
    at = Field("at", Kind.AWARE, ttl_seconds=60)
    assert proposed("x", at=at).policy == ExpireAfter("at", 60)
    at = Field("at", Kind.AWARE, ttl_seconds=0)
    assert proposed("x", at=at).policy == ExpireAt("at")


def test_local_time_is_noticed() -> None:
    ahead = Field("created_at", Kind.NAIVE, highest=datetime(2026, 1, 1, 13))  # noqa: DTZ001
    proposal = proposed("sessions", created_at=ahead)
    assert any("seems to be local time" in caution for caution in proposal.cautions)


def test_a_table_of_ours_and_one_that_can_not_be_read_are_remarks() -> None:
    ours = propose(table("x", _ts=Kind.AWARE, ttl=Kind.INTEGER, expires_at=Kind.AWARE), NOW)
    assert ours.proposal is None
    assert "write __ttl__ = seconds" in ours.remarks[0]
    assert propose(Table("y", problem="no"), NOW).remarks == ("no",)


FIELDS = st.text(
    st.characters(exclude_characters=",", exclude_categories=["Cs"]), min_size=1
).filter(lambda name: bool(name.strip()))
UNITS = st.sampled_from([None, "s", "ms", "us", "iso"])
POLICIES = st.one_of(
    st.builds(ExpireAt, FIELDS, unit=UNITS, null=st.sampled_from(["never", "expired"])),
    st.builds(ExpireAfter, FIELDS, st.integers(1, 2**31 - 1), unit=UNITS),
    st.builds(
        lambda default, fields, never, unit: TTL(
            default, last_modified=fields[0], override=fields[1], never=tuple(never), unit=unit
        ),
        st.one_of(st.none(), st.just(-1), st.integers(1, 2**31 - 1)),
        st.tuples(FIELDS, st.one_of(st.none(), FIELDS)).filter(lambda two: two[0] != two[1]),
        st.lists(st.integers(-5, 5)),
        UNITS,
    ),
)


@pytest.mark.slow
@given(POLICIES)
def test_a_declaration_makes_the_very_policy(policy: Any) -> None:
    assert eval(as_source(policy), vars(ttl_odm).copy()) == policy  # noqa: S307


@pytest.mark.slow
@given(FIELDS, FIELDS)
def test_what_is_printed_is_python_whatever_the_names_are(name: str, field: str) -> None:
    at = Field(field, Kind.AWARE, ttl_seconds=5)
    source = declarations([proposed(name, at=at)])
    compile(source.replace("(...)", ""), "pasted", "exec")


@pytest.mark.parametrize(
    "name",
    ["deleted_at", "deletedAt", "deleted_time", "deletion_date", "delete_time", "trashed_on"],
)
def test_rows_that_were_marked_as_deleted_are_a_guess(name: str) -> None:
    """Also where others refer to them, and before what the table's name says."""
    fields = [Field("created_at", Kind.AWARE), Field(name, Kind.AWARE)]
    proposal = propose(Table("sessions", fields, references=["tags.run_id"]), NOW).proposal
    assert proposal is not None
    assert proposal.policy == ExpireAfter(name, 30 * 86_400)
    assert proposal.confidence is Confidence.GUESS
    assert "choose the 30d yourself" in proposal.cautions
    assert any(caution.startswith("tags.run_id refers to it") for caution in proposal.cautions)


def test_a_time_of_deletion_in_milliseconds_is_one_too() -> None:
    rows = [{"deleted_time": 1000 * (EPOCH - n)} for n in range(3)]
    proposal = proposed("runs", *rows, {}, start_time=Kind.INTEGER, deleted_time=Kind.INTEGER)
    assert proposal.policy == ExpireAfter("deleted_time", 30 * 86_400, unit="ms")


@pytest.mark.parametrize("name", ["delete_at", "delete_after", "purge_time", "purge_at"])
def test_a_deletion_that_is_to_come_is_an_end(name: str) -> None:
    assert proposed("things", **{name: Kind.AWARE}).policy == ExpireAt(name)


@pytest.mark.parametrize("began", ["acquired_at", "locked_at", "leased_at", "claimed_on"])
@pytest.mark.parametrize("own", ["ttl_seconds", "ttl", "lease_duration", "lease_duration_seconds"])
def test_a_lease_counts_from_when_it_was_taken(began: str, own: str) -> None:
    rows = [{"created_at": EPOCH, began: 1000 * EPOCH, own: 30}]
    fields = {"created_at": Kind.INTEGER, began: Kind.INTEGER, own: Kind.INTEGER}
    proposal = proposed("locks", *rows, **fields)
    assert proposal.policy == TTL(-1, last_modified=began, override=own, unit="ms")


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        *(("ttl_ms", "milliseconds"), ("ttlMillis", "millis"), ("lifetime_minutes", "minutes")),
        *(("ttl_hours", "hours"), ("expires_in_days", "days")),
    ],
)
def test_a_lifetime_that_is_not_in_seconds_is_a_remark(name: str, unit: str) -> None:
    verdict = propose(table("locks", locked_at=Kind.AWARE, **{name: Kind.INTEGER}), NOW)
    assert verdict.proposal is None
    assert f"the name {name} suggests a lifetime in {unit}, but policies read" in verdict.remarks[0]


def test_a_lifetime_whose_values_are_milliseconds_is_a_remark() -> None:
    rows = [{"locked_at": EPOCH, "ttl": 3_600_000}]
    verdict = propose(table("locks", *rows, locked_at=Kind.INTEGER, ttl=Kind.INTEGER), NOW)
    assert verdict.proposal is None
    assert "1 of 1 rows that were read seem to hold milliseconds in ttl" in verdict.remarks[0]


def test_a_ttl_that_holds_instants_is_an_end() -> None:
    """As DynamoDB's is."""
    proposal = proposed("cache", *[{"ttl": EPOCH + n} for n in range(3)], ttl=Kind.INTEGER)
    assert proposal.policy == ExpireAt("ttl", unit="s")
    assert proposal.confidence is Confidence.LIKELY


def test_a_name_that_contradicts_the_values_is_a_reason_for_doubt() -> None:
    proposal = proposed("cache", {"expires_s": EPOCH * 1000}, expires_s=Kind.INTEGER)
    assert proposal.policy == ExpireAt("expires_s", unit="ms")
    assert proposal.confidence is Confidence.LIKELY
    assert proposal.cautions[0] == (
        "the name expires_s suggests epoch seconds, but its values are epoch milliseconds"
    )
    agreeing = proposed("cache", {"expires_ms": EPOCH * 1000}, expires_ms=Kind.INTEGER)
    assert agreeing.confidence is Confidence.CLEAR


def test_values_that_a_declared_policy_misreads_are_remarks() -> None:
    fields = [Field("ends", Kind.INTEGER)]
    rows = [{"ends": EPOCH * 1000}]
    seen = Table("t", fields, rows, 1, has_policy=True, policy=ExpireAt("ends", unit="s"))
    assert propose(seen, NOW).remarks[0] == "has a policy already"
    assert "hold epoch milliseconds in ends" in propose(seen, NOW).remarks[1]
    ours = table("x", {"ttl": 3_600_000}, _ts=Kind.AWARE, ttl=Kind.INTEGER)
    assert "seem to hold milliseconds in ttl" in propose(ours, NOW).remarks[1]


@given(POLICIES)
def test_a_declaration_with_durations_makes_the_very_policy(policy: Any) -> None:
    assert parse_policy(as_source(policy, durations=True)) == policy


def test_durations_are_written_for_people() -> None:
    assert as_source(ExpireAfter("at", 90 * 86_400), durations=True) == 'ExpireAfter("at", "90d")'
    assert as_source(ExpireAfter("at", 5_400), durations=True) == 'ExpireAfter("at", "90m")'
    kinds = as_source(TTL({"a": 3_600, "b": None}, by="kind", other=-1), durations=True)
    assert kinds == "TTL({'a': '1h', 'b': None}, by=\"kind\", other=-1)"
