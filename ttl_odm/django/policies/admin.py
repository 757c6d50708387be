"""Stored defaults in the admin: see `ttl_odm.stored.django.admin`."""

from __future__ import annotations

from ttl_odm.stored.django.admin import PolicyChangeAdmin

__all__ = ["PolicyChangeAdmin"]
