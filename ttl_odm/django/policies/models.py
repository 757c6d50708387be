"""The tables of stored defaults: see `ttl_odm.stored.django.models`."""

from __future__ import annotations

from ttl_odm.stored.django.models import Policy, PolicyChange

__all__ = ["Policy", "PolicyChange"]
