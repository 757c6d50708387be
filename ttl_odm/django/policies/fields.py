"""The field of names and scopes, where the first migration expects it; see `ExactField`."""

from __future__ import annotations

from ttl_odm.django.extensions import ExactField

__all__ = ["ExactField"]
