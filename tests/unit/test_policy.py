"""What ``__ttl__`` can declare, and how a slip in it is told."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError
from datetime import timedelta, timezone
from typing import Any

import pytest

from ttl_odm import (
    TTL,
    ExpireAfter,
    ExpireAt,
    ExpiredError,
    InvalidTTL,
    TTLConfigurationError,
    TTLError,
)
from ttl_odm.core import MAX_TTL, Policy, as_policy
from ttl_odm.core.policy import instant_field

POLICIES: list[Policy] = [
    TTL(),
    TTL(3600, last_modified="issued_at", override="expires_in", never=(0, 999_999)),
    TTL(-1, override=None, values="lenient", timezone="Europe/Paris", unit="ms"),
    TTL({"cart": 3600, 7: None}, by="resource", other=-1, unit="iso"),
    TTL(1800, max_lifetime=86_400, created="created_at"),
    ExpireAfter("created_at", 3600),
    ExpireAfter("created_at", 1, timezone="local", unit="s"),
    ExpireAt("expires_at"),
    ExpireAt("expires_at", null="expired", timezone="America/New_York", unit="us"),
]

every_policy = pytest.mark.parametrize("policy", POLICIES, ids=repr)


def declare(policy_type: type[Policy], **fields: Any) -> Policy:
    """Make a policy out of fields of any type, since wrong types are the point."""
    required: dict[type, dict[str, Any]]
    required = {TTL: {}, ExpireAfter: {"field": "at", "seconds": 1}, ExpireAt: {"field": "at"}}
    return policy_type(**{**required[policy_type], **fields})


def test_the_bare_ttl_is_the_cosmos_contract_switched_off() -> None:
    policy = TTL()

    assert policy.default is None
    assert (policy.last_modified, policy.override) == ("_ts", "ttl")
    assert policy.never == ()
    assert policy.values is None
    assert (policy.timezone, policy.unit) == ("UTC", None)


@pytest.mark.parametrize("default", [3600, 3600.0, timedelta(hours=1)])
def test_a_default_is_stored_as_plain_seconds(default: float | timedelta) -> None:
    policy = TTL(default)

    assert policy.default == 3600
    assert type(policy.default) is int
    assert policy == TTL(3600)
    assert hash(policy) == hash(TTL(3600))


@pytest.mark.parametrize("default", [0, -2, 1.5, "3600", True, float("nan"), MAX_TTL + 1])
def test_an_invalid_default_raises_when_the_policy_is_made(default: Any) -> None:
    with pytest.raises(InvalidTTL, match=r"TTL\.default = "):
        TTL(default)


def test_every_policy_has_a_field_with_the_instant_of_a_row() -> None:
    policies = TTL(60, last_modified="updated"), ExpireAfter("created", 60), ExpireAt("end")
    assert [instant_field(policy) for policy in policies] == ["updated", "created", "end"]


def test_a_default_may_be_a_function() -> None:
    told: list[Any] = [60, -1, 0]
    policy = TTL(lambda: told.pop(0))

    assert not policy.is_fixed
    assert (policy.default, policy.default_of("cart")) == (60, -1)
    with pytest.raises(InvalidTTL, match=r"TTL\.default\(\) = 0 is not a ttl"):
        _ = policy.default


def test_equal_functions_make_equal_policies() -> None:
    def life() -> int:
        return 60

    assert TTL(life) == TTL(life)
    assert hash(TTL(life)) == hash(TTL(life))
    assert TTL(life) != TTL(60)


def test_kinds_of_rows_may_have_defaults_of_their_own() -> None:
    policy = TTL({"cart": 60.0, "order": None, "draft": lambda: 120}, by="resource", other=30)

    assert (policy.by, policy.default) == ("resource", 30)
    assert policy.defaults == {"cart": 60, "order": None, "draft": 120}
    assert [policy.default_of(kind) for kind in ("order", "draft", "wish", None)] == [
        *(None, 120, 30, 30)
    ]
    assert not policy.is_fixed
    assert TTL({"cart": 60}, by="resource").is_fixed
    assert TTL({"cart": 60}, by="resource").default is None


def test_the_order_of_the_kinds_makes_no_difference() -> None:
    assert TTL({"a": 1, "b": 2}, by="kind") == TTL({"b": 2, "a": 1}, by="kind")


def test_the_shape_of_a_policy_is_what_no_change_of_its_defaults_changes() -> None:
    def declared(cart: Any, other: Any) -> TTL:
        return TTL({"cart": cart}, by="resource", other=other, last_modified="at", unit="s")

    assert declared(60, lambda: 30).shape == declared(-1, None).shape
    assert declared(60, 30).shape.defaults == {"cart": None}
    assert TTL(60).shape == TTL(lambda: 30).shape == TTL()
    assert declared(60, 30).shape != TTL({"wish": 60}, by="resource", last_modified="at").shape


def test_one_default_for_all_rows_takes_the_place_of_those_of_kinds() -> None:
    assert TTL({"cart": 60}, by="resource", unit="s").with_default(30) == TTL(30, unit="s")


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        (lambda: TTL({"cart": 60}), r"TTL\.default = \{'cart': 60\}: add by="),
        (lambda: TTL(60, by="resource"), r"TTL\(by='resource'\)\.default = 60: give a mapping"),
        (lambda: TTL(60, other=30), r"TTL\.other = 30: give a mapping"),
        (lambda: TTL({None: 60}, by="resource"), r"a kind of TTL = None: .*other="),
        (lambda: TTL({"a": 60}, by="ttl"), r"TTL\.by = 'ttl': name a separate field"),
        (lambda: TTL({"a": 60}, by="_ts"), r"TTL\.by = '_ts': name a separate field"),
        (lambda: TTL({"a": 60}, by="x,y"), r"TTL\.by = 'x,y': name one field"),
    ],
)
def test_slips_in_the_defaults_of_kinds_are_named(declaration: Any, message: str) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        declaration()


def test_an_invalid_default_of_a_kind_is_named_with_the_kind() -> None:
    with pytest.raises(InvalidTTL, match=r"TTL\['cart'\] = 0 is not a ttl"):
        TTL({"cart": 0}, by="resource")
    with pytest.raises(InvalidTTL, match=r"TTL\.other = 0 is not a ttl"):
        TTL({"cart": 60}, by="resource", other=0)
    with pytest.raises(InvalidTTL, match=r"TTL\['cart'\]\(\) = '60' is not a ttl"):
        _ = TTL({"cart": lambda: "60"}, by="resource").defaults  # type: ignore[dict-item,return-value]


def test_the_repr_of_a_ttl_is_the_shortest_declaration_of_it() -> None:
    assert repr(TTL(3600)) == "TTL(3600)"
    assert repr(TTL()) == "TTL()"
    policy = TTL({"cart": 60}, by="resource", other=-1, last_modified="at", override=None)
    assert (
        repr(policy)
        == "TTL({'cart': 60}, by='resource', other=-1, last_modified='at', override=None)"
    )


@pytest.mark.parametrize(
    ("seconds", "stored"),
    [(1, 1), (3600.0, 3600), (timedelta(hours=1), 3600), (MAX_TTL, MAX_TTL)],
)
def test_expire_after_takes_whole_seconds_from_one(seconds: float | timedelta, stored: int) -> None:
    policy = ExpireAfter("created_at", seconds)

    assert policy.seconds == stored
    assert type(policy.seconds) is int


@pytest.mark.parametrize(
    "seconds",
    [-1, 1.5, MAX_TTL + 1, "60", None, True, timedelta(seconds=-1), timedelta(milliseconds=1)],
)
def test_expire_after_refuses_other_seconds(seconds: Any) -> None:
    with pytest.raises(InvalidTTL, match=r"ExpireAfter\.seconds = .*1 to 2147483647"):
        ExpireAfter("created_at", seconds)


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, timedelta(0)])
def test_zero_seconds_are_rejected_with_both_of_their_usual_meanings(zero: Any) -> None:
    with pytest.raises(InvalidTTL) as caught:
        ExpireAfter("date_done", zero)
    assert "never expire, declare no policy at all" in str(caught.value)
    assert "at the date itself, declare ExpireAt('date_done')" in str(caught.value)


def test_none_seconds_are_rejected_with_the_way_to_say_never() -> None:
    with pytest.raises(InvalidTTL, match="never expire, declare no policy at all"):
        ExpireAfter("date_done", None)  # type: ignore[arg-type]


FIELDS = [
    (TTL, "last_modified"),
    (TTL, "override"),
    (ExpireAfter, "field"),
    (ExpireAt, "field"),
]


@pytest.mark.parametrize(("policy_type", "name"), FIELDS)
@pytest.mark.parametrize("value", [("a", "b"), ["a"], "a,b", "a, b"])
def test_a_compound_field_is_refused_by_name(
    policy_type: type[Policy], name: str, value: object
) -> None:
    with pytest.raises(TTLConfigurationError) as caught:
        declare(policy_type, **{name: value})

    message = str(caught.value)
    assert f"{policy_type.__name__}.{name} = {value!r}" in message
    assert "TTL indexes are single-field" in message


@pytest.mark.parametrize(("policy_type", "name"), FIELDS)
@pytest.mark.parametrize("value", ["", "  ", 3, b"at", True, object])
def test_a_field_is_a_name(policy_type: type[Policy], name: str, value: object) -> None:
    with pytest.raises(TTLConfigurationError, match=rf"{policy_type.__name__}\.{name} = .*str"):
        declare(policy_type, **{name: value})


@pytest.mark.parametrize(
    ("policy_type", "name"), [(TTL, "last_modified"), (ExpireAfter, "field"), (ExpireAt, "field")]
)
def test_only_the_override_may_be_none(policy_type: type[Policy], name: str) -> None:
    with pytest.raises(TTLConfigurationError):
        declare(policy_type, **{name: None})
    assert TTL(override=None).override is None


def test_the_override_is_another_field_than_the_last_modification() -> None:
    with pytest.raises(TTLConfigurationError, match=r"TTL\.override = '_ts'"):
        TTL(3600, override="_ts")


@pytest.mark.parametrize("longest", [86_400, 86_400.0, timedelta(days=1)])
def test_a_limit_is_stored_as_plain_seconds_and_part_of_the_shape(longest: Any) -> None:
    policy = TTL(1800, max_lifetime=longest, created="created_at")

    assert (type(policy.max_lifetime), policy.max_lifetime) == (int, 86_400)
    assert policy.shape == TTL(max_lifetime=86_400, created="created_at") != TTL()
    assert policy.with_default(-1) == TTL(-1, max_lifetime=86_400, created="created_at")


@pytest.mark.parametrize("longest", [0, -1, 1.5, "60", True, float("nan"), MAX_TTL + 1, []])
def test_a_limit_is_whole_seconds_from_one(longest: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"TTL\.max_lifetime = .*: give whole seconds"):
        TTL(1800, max_lifetime=longest, created="created_at")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_lifetime": 60}, r"TTL\.max_lifetime = 60: also give created='field'"),
        ({"created": "at"}, r"TTL\.created = 'at': also give max_lifetime=seconds"),
        ({"max_lifetime": 60, "created": "_ts"}, r"TTL\.created = '_ts': name a separate field"),
        ({"max_lifetime": 60, "created": "ttl"}, r"TTL\.created = 'ttl': name a separate field"),
        ({"max_lifetime": 60, "created": ("a", "b")}, r"TTL\.created = .*: name one field"),
        ({"max_lifetime": 60, "created": ""}, r"TTL\.created = '': give a field name"),
    ],
)
def test_a_limit_and_the_instant_that_it_counts_from_go_together(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        TTL(1800, **fields)


@pytest.mark.parametrize(
    ("policy_type", "name", "value"),
    [
        (TTL, "values", "Strict"),
        (TTL, "values", True),
        (TTL, "values", ["strict"]),
        (ExpireAt, "null", "ignore"),
        (ExpireAt, "null", None),
        *((each, "unit", value) for each in (TTL, ExpireAfter, ExpireAt) for value in ("m", 1000)),
    ],
)
def test_a_choice_outside_the_list_is_refused_with_the_list(
    policy_type: type[Policy], name: str, value: object
) -> None:
    with pytest.raises(TTLConfigurationError, match=rf"\.{name} = .*: give '.*' or ") as caught:
        declare(policy_type, **{name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("policy_type", [TTL, ExpireAfter, ExpireAt])
@pytest.mark.parametrize(
    "value",
    [
        *("", "utc", "Local", "Europe/Pariss", "America", "../UTC", "/etc/localtime", "\0"),
        *("\ud800", None, 3, timezone.utc, b"UTC"),
    ],
)
def test_an_unknown_time_zone_is_refused(policy_type: type[Policy], value: object) -> None:
    with pytest.raises(TTLConfigurationError, match=r"\.timezone = .*IANA"):
        declare(policy_type, timezone=value)


@pytest.mark.parametrize("policy_type", [TTL, ExpireAfter, ExpireAt])
@pytest.mark.parametrize("value", ["UTC", "local", "Europe/Paris", "Asia/Kolkata", "Etc/GMT+5"])
def test_a_known_time_zone_is_kept_as_given(policy_type: type[Policy], value: str) -> None:
    assert declare(policy_type, timezone=value).timezone == value


@pytest.mark.parametrize("never", [(0,), (-1,), (999_999, 0), (2**63 - 1, -(2**63)), [0]])
def test_any_64_bit_int_can_mean_never(never: Any) -> None:
    assert TTL(3600, never=never).never == tuple(never)


class Int64(int):
    """Stands in for bson.Int64."""


def test_ints_of_a_driver_are_stored_as_plain_ints() -> None:
    (value,) = TTL(3600, never=(Int64(7),)).never

    assert type(value) is int


@pytest.mark.parametrize(
    "never", [0, None, "0", (True,), (0.0,), ("0",), (None,), (2**63,), (Int64(2**63),), {0}]
)
def test_other_never_values_are_refused(never: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"TTL\.never = "):
        TTL(3600, never=never)


def test_with_default_changes_nothing_else() -> None:
    policy = TTL(3600, last_modified="at", override="life", never=(0,), values="strict", unit="s")

    changed = policy.with_default(timedelta(minutes=1))

    assert changed == TTL(
        60, last_modified="at", override="life", never=(0,), values="strict", unit="s"
    )
    assert policy.default == 3600
    assert changed.with_default(None).default is None
    with pytest.raises(InvalidTTL):
        policy.with_default(0)


@every_policy
def test_a_policy_is_immutable(policy: Policy) -> None:
    with pytest.raises(FrozenInstanceError):
        policy.timezone = "local"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del policy.timezone  # type: ignore[misc]
    assert not hasattr(policy, "__dict__")


@every_policy
def test_a_policy_survives_pickling_and_copying(policy: Policy) -> None:
    for twin in (
        *(pickle.loads(pickle.dumps(policy, protocol)) for protocol in range(6)),  # noqa: S301 (our own bytes)
        copy.copy(policy),
        copy.deepcopy(policy),
    ):
        assert twin == policy
        assert hash(twin) == hash(policy)


@every_policy
def test_the_repr_of_a_policy_makes_an_equal_one(policy: Policy) -> None:
    names = {"TTL": TTL, "ExpireAfter": ExpireAfter, "ExpireAt": ExpireAt}

    assert eval(repr(policy), names) == policy  # noqa: S307 (our own text)


def test_policies_are_equal_only_within_a_type_and_with_equal_fields() -> None:
    assert len(set(POLICIES)) == len(POLICIES)
    assert ExpireAfter("at", 1) != ExpireAt("at")
    assert TTL(3600) != 3600


def test_a_subclass_compares_by_the_inherited_fields_too() -> None:
    class Named(TTL):
        __slots__ = ()

    assert Named(3600) == Named(3600.0)
    assert Named(3600) != Named(60)
    assert Named(3600) != TTL(3600)
    assert type(Named(3600).with_default(60)) is Named


@every_policy
def test_a_declared_policy_is_taken_as_it_is(policy: Policy) -> None:
    assert as_policy(policy) is policy


@pytest.mark.parametrize("declared", [None, -1, 3600, 3600.0, timedelta(hours=1)])
def test_anything_else_that_is_declared_is_a_default_ttl(declared: Any) -> None:
    assert as_policy(declared) == TTL(declared)


@pytest.mark.parametrize("declared", ["expires_at", 0, True, TTL, [3600]])
def test_a_wrong_declaration_is_named(declared: object) -> None:
    with pytest.raises(InvalidTTL, match=r"WebSession\.__ttl__ = "):
        as_policy(declared, where="WebSession.__ttl__")


@pytest.mark.parametrize("error", [TTLError, InvalidTTL, TTLConfigurationError, ExpiredError])
def test_the_docstring_of_an_error_is_its_default_message(error: type[TTLError]) -> None:
    assert str(error()) == error.__doc__
    assert str(error("Else.")) == "Else."


def test_an_expired_error_names_the_model_and_the_key() -> None:
    error = ExpiredError(model="WebSession", key=("a", 1))

    assert str(error) == "WebSession ('a', 1) has expired, so it no longer exists."
    assert (error.model, error.key) == ("WebSession", ("a", 1))
    twin = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    assert (str(twin), twin.model, twin.key) == (str(error), error.model, error.key)


def test_an_expired_error_can_also_be_the_error_of_a_library() -> None:
    class Gone(Exception):  # noqa: N818 (stands in for a library's error)
        pass

    class GoneByExpiry(ExpiredError, Gone):  # noqa: N818
        """The row is gone."""

    assert str(GoneByExpiry()) == "The row is gone."
    with pytest.raises(Gone, match="WebSession 1"):
        raise GoneByExpiry(model="WebSession", key=1)
