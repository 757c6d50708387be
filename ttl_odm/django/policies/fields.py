"""The column of names and scopes, as migrations name it: see `ttl_odm.stored.django.fields`."""

from __future__ import annotations

from ttl_odm.stored.django.fields import ExactField

__all__ = ["ExactField"]
