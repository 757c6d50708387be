"""TTL for Django's ORM, as an app: ``INSTALLED_APPS = [..., "ttl_odm.django"]``.

    from ttl_odm.django import TTLModel

    class WebSession(TTLModel):
        __ttl__ = 3600

Expired rows are hidden on every path of the ORM (`ttl_odm.django.gate`); ``manage.py ttl_sweep``
deletes them for good. `TTLModel` is imported on first access, because Django forbids models before
its apps are set up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.django.policy.options import include_expired, keep_last_modified, only_expired
from ttl_odm.sweeper.hooks import Archive

if TYPE_CHECKING:
    from ttl_odm.django.declare.mixin import TTLModel
    from ttl_odm.django.declare.operations import AddTTL
    from ttl_odm.django.objects import TTLManager, TTLQuerySet, touch
    from ttl_odm.django.policy.indexes import TTLIndex
    from ttl_odm.django.purge.errors import ExpiredError
    from ttl_odm.django.sweep.store import DjangoStore
    from ttl_odm.django.time.fields import InstantField, LastModifiedField, TTLField
    from ttl_odm.follows.django.index import FollowsIndex
    from ttl_odm.stored.django.changes import (
        begin_policies,
        policy_changes,
        set_policy,
        stored_policies,
    )
    from ttl_odm.stored.rows import PolicyChange, StoredPolicy

__all__ = [
    "AddTTL",
    "Archive",
    "DjangoStore",
    "ExpiredError",
    "FollowsIndex",
    "InstantField",
    "LastModifiedField",
    "PolicyChange",
    "StoredPolicy",
    "TTLField",
    "TTLIndex",
    "TTLManager",
    "TTLModel",
    "TTLQuerySet",
    "begin_policies",
    "include_expired",
    "keep_last_modified",
    "only_expired",
    "policy_changes",
    "set_policy",
    "stored_policies",
    "touch",
]

_HOMES = {
    "AddTTL": "ttl_odm.django.declare.operations",
    "DjangoStore": "ttl_odm.django.sweep.store",
    "ExpiredError": "ttl_odm.django.purge.errors",
    "FollowsIndex": "ttl_odm.follows.django.index",
    "InstantField": "ttl_odm.django.time.fields",
    "LastModifiedField": "ttl_odm.django.time.fields",
    "PolicyChange": "ttl_odm.stored.rows",
    "StoredPolicy": "ttl_odm.stored.rows",
    "TTLField": "ttl_odm.django.time.fields",
    "TTLIndex": "ttl_odm.django.policy.indexes",
    "TTLManager": "ttl_odm.django.objects",
    "TTLModel": "ttl_odm.django.models",
    "TTLQuerySet": "ttl_odm.django.objects",
    "begin_policies": "ttl_odm.stored.django.changes",
    "policy_changes": "ttl_odm.stored.django.changes",
    "set_policy": "ttl_odm.stored.django.changes",
    "stored_policies": "ttl_odm.stored.django.changes",
    "touch": "ttl_odm.django.objects",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(home), name)
