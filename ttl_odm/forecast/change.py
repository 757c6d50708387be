"""A change of a stored default with SQLAlchemy: previewed, and made as its preview said.

The extension for stored defaults has it, and this module is the name that applications import.
"""

from ttl_odm.stored.sqlalchemy.previews import (
    NotApprovedError,
    PolicyPreview,
    approve_policy,
    preview_policy,
)

__all__ = ["NotApprovedError", "PolicyPreview", "approve_policy", "preview_policy"]
