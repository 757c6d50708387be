"""What Beanie's users are told by an error of their own kind.

This module must not know when such an error is raised.
"""

from __future__ import annotations

from beanie.exceptions import DocumentNotFound

from ttl_odm import errors


class ExpiredError(errors.ExpiredError, DocumentNotFound):
    """The document has expired, so it no longer exists."""
