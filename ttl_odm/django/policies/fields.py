"""The column of names and scopes, as the first migration names it: see `ttl_odm.django.exact`."""

from __future__ import annotations

from ttl_odm.django.exact import ExactField

__all__ = ["ExactField"]
