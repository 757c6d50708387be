"""A model's policy as one value over columns, and the note by which two of them are told apart.

What the database keeps of a policy (a view, a job that sweeps) is told it so: a migration knows
columns, and no attributes, subclasses or functions. It notes which policy it has.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.core.policy import TTL, ExpireAfter, default_extension

if TYPE_CHECKING:
    from ttl_odm.core.extension import DefaultExtension
    from ttl_odm.core.policy import Policy
    from ttl_odm.sqlalchemy.policy.bindings import Binding

LOOKED_UP: Final = "stored"
"""Stands for the seconds where a view or a policy of the database looks them up."""


def whole_policy(binding: Binding) -> Policy:
    """The policy of a table: over columns, and with its numbers at this moment."""
    policy, limit = binding.default.policy, binding.max_lifetime
    if not isinstance(policy, TTL):
        return replace(policy, field=binding.last_modified.name)
    own, kind = binding.override, binding.discriminator
    kinds = {
        identity: variant.default()
        for variant in binding.variants
        for identity in variant.identities
    }
    default: Any = default_now(binding)
    declared: dict[str, Any] = {"default": default}
    if kinds and kind is not None:
        declared = {"default": kinds, "by": kind.name, "other": default}
    return TTL(
        **declared,
        last_modified=binding.last_modified.name,
        override=None if own is None else own.name,
        never=policy.never,
        max_lifetime=None if limit is None else limit.seconds,
        created=None if limit is None else limit.created.name,
        values=policy.values,
        timezone=policy.timezone,
        unit=policy.unit,
    )


def default_now(binding: Binding) -> int | DefaultExtension | None:
    """The default of a table at this moment, or the declaration of one that isn't in code."""
    declared, column = default_extension(binding.default.policy), binding.discriminator
    if declared is None:
        return binding.default()
    return declared if declared.by is None or column is None else declared.by_column(column.name)


def note_of(policy: Policy) -> str:
    """The policy as it is noted: its seconds first, and in words only.

    What else there is to it, as the columns that it goes by, is told apart by a checksum.
    """
    if not isinstance(policy, TTL):
        seconds = policy.seconds if isinstance(policy, ExpireAfter) else 0
        return f"{seconds}_{_checksum(policy)}"
    declared = default_extension(policy)
    default = str(policy.default) if declared is None else LOOKED_UP
    now = policy.settled if declared is None else policy.with_default(declared.shape)
    is_usual = now == TTL(now.declared_default) and (declared is None or declared.by is None)
    return default if is_usual else f"{default}_{_checksum(now)}"


def _checksum(policy: Policy) -> str:
    return f"{zlib.crc32(repr(policy).encode()):08x}"
