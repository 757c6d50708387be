"""Previews of changes of stored defaults with SQLAlchemy, and changes approved by them.

Applications import this module, which re-exports names of the extension for stored defaults.
"""

from ttl_odm.stored.sqlalchemy.previews import (
    NotApprovedError,
    PolicyPreview,
    approve_policy,
    preview_policy,
)

__all__ = ["NotApprovedError", "PolicyPreview", "approve_policy", "preview_policy"]
