"""A change of a stored default on MongoDB: previewed, and made as its preview said.

The extension for stored defaults has it, and this module is the name that applications import.
"""

from ttl_odm.stored.beanie.previews import (
    NotApprovedError,
    PolicyPreview,
    approve_policy,
    preview_policy,
)

__all__ = ["NotApprovedError", "PolicyPreview", "approve_policy", "preview_policy"]
