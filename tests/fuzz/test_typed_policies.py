"""Whatever somebody types as a policy is one, or an error of ours; it is never evaluated."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.words import text
from ttl_odm import TTL, ExpireAfter, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.forecast.parser import parse_policy

pieces = st.sampled_from(
    [
        *("TTL(", "ExpireAt(", "ExpireAfter(", "timedelta(", "enable(", "__ttl__ =", ")", ",", "-"),
        *("'at'", '"a', "3600", "1e999", "10**9", "2 * ", "NEVER", "None", "True", "{", "}", ":"),
        *(
            "by=",
            "unit=",
            "never=",
            "**",
            "*",
            "lambda: 0",
            "f'{x}'",
            "[0]",
            "\n",
            "#",
            "days=",
            "9" * 50,
        ),
        *("__import__('os')", "open('x')", "(((", "x.y", "0x", "\\", "0j", "b'at'", "..."),
    ]
)
typed = st.one_of(text, st.lists(st.one_of(pieces, text), max_size=12).map("".join))


@given(typed)
@example("(" * 900 + ")" * 900)
@example("-" * 999 + "1")
@example("1" + "*9" * 400)
@example("TTL(" + "9" * 900 + ")")
@example("timedelta(days=1e308 * 10)")
@example("TTL(0 * timedelta(1))")
@example("TTL({[]: 1}, by='a')")
@example("ExpireAfter('at', timedelta(days=999999999) * 2)")
def test_a_typed_policy_is_one_or_an_error_of_ours(source: str) -> None:
    try:
        policy = parse_policy(source)
    except (InvalidTTL, TTLConfigurationError) as error:
        assert str(error)  # noqa: PT017
    else:
        assert isinstance(policy, (TTL, ExpireAfter, ExpireAt))
