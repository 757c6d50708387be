"""Previews of changes of stored defaults with Django, and changes approved by them.

Applications import this module, which re-exports names of the extension for stored defaults.
"""

from ttl_odm.stored.django.previews import (
    NotApprovedError,
    PolicyPreview,
    approve_policy,
    preview_policy,
)

__all__ = ["NotApprovedError", "PolicyPreview", "approve_policy", "preview_policy"]
