"""The contract: what a ttl is, what is valid, and when something is expired.

Pure functions and value types that know no database, no model and no clock: every instant is
passed in. Imports are the standard library and `ttl_odm.errors`. A reader of this folder alone
understands the product:

- `values`: which values are a ttl, and durations as text;
- `policy`: what ``__ttl__ = ...`` can declare;
- `extension`: declarations of packages above the adapters; counts of rows by the value that gives
  them a default of their own;
- `declaration`: the default as its owner declares it at this moment;
- `expiry`: the instant from which a row no longer exists;
- `lifetime`: what a program may do with one row's lifetime: `touch`, `expire_in` and so on;
- `class_attributes`: annotations of a class that isn't ours, and attributes set on it.
"""

from ttl_odm.core.expiry import (
    EARLIEST,
    effective_ttl,
    expires_at,
    instant_of,
    is_expired,
    own_ttl,
    remaining,
)
from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt, Policy, as_policy
from ttl_odm.core.values import MAX_TTL, NEVER, default_ttl, lenient_ttl, row_ttl

__all__ = [
    "EARLIEST",
    "MAX_TTL",
    "NEVER",
    "TTL",
    "ExpireAfter",
    "ExpireAt",
    "Policy",
    "as_policy",
    "default_ttl",
    "effective_ttl",
    "expires_at",
    "instant_of",
    "is_expired",
    "lenient_ttl",
    "own_ttl",
    "remaining",
    "row_ttl",
]
