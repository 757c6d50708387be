"""The error of the MongoDB side for a document that no longer exists."""

from __future__ import annotations

from beanie.exceptions import DocumentNotFound

from ttl_odm import errors


class ExpiredError(errors.ExpiredError, DocumentNotFound):
    """The document has expired, so it no longer exists."""
