"""The app: see `ttl_odm.stored.django.apps`."""

from __future__ import annotations

from ttl_odm.stored.django.apps import PoliciesConfig

__all__ = ["PoliciesConfig"]
