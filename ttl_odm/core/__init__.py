"""The contract: what a ttl is, what is valid, and when something is expired.

Pure functions and value types that know no database, no model and no clock: every instant is
passed in. Imports are the standard library and `ttl_odm.errors`. Whoever reads only this folder
understands the product:

- `annotations`: what a class annotates, on every Python;
- `values`: which values are a ttl;
- `policy`: what ``__ttl__ = ...`` can declare;
- `extension`: a declaration of a package above the adapters;
- `declared`: the default as its owner declares it at this moment;
- `expiry`: the instant from which a row no longer exists;
- `scopes`: rows by the value that gives them a default of their own;
- `durations`: durations as command lines and files have them;
- `lifetime`: what a program may do with one row's lifetime: `touch`, `expire_in` and their like;
- `overlay`: attributes that are set on a class of somebody else's, and put back.
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
