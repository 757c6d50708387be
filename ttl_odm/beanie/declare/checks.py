"""What a document class may declare, checked when it is made and when it gets its collection.

This module must not know how the policy is enforced.
"""

from __future__ import annotations

import inspect
from typing import Any

from beanie import Document, View

from ttl_odm.beanie.policy.binding import declared_policy, policy_of, purge_of
from ttl_odm.beanie.policy.ttl_indexes import check as check_policy
from ttl_odm.beanie.policy.ttl_indexes import check_purge
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError


def check(model: type) -> None:
    """Refuse a class that cannot have a policy, or not this one.

    Raises:
        InvalidTTL: The declaration is no ttl.
        TTLConfigurationError: It is no document class, or the policy can't work on MongoDB.
    """
    if issubclass(model, View):
        message = (
            f"{model.__name__} is a view: declare the ttl on the document class that it reads."
        )
        raise TTLConfigurationError(message)
    if not issubclass(model, Document):
        return  # another mixin, on the way to a document
    order = [base.__name__ for base in model.__mro__]
    if order.index("TTLMixin") > order.index("Document"):
        message = f"class {model.__name__}: put TTLMixin before Document."
        raise TTLConfigurationError(message)
    declared = declared_policy(model)
    check_policy(declared)
    check_purge(declared, purge_of(model))


def check_collection(model: Any) -> None:
    """Refuse a time-series collection for documents with a ttl.

    Raises:
        TTLConfigurationError: It is one.
    """
    series = model.get_settings().timeseries
    if series is not None and isinstance(policy_of(model), TTL):
        message = (
            f"{model.__name__} has a time-series collection, whose measurements cannot be changed "
            "one by one and so have no last modification and no ttl of their own: declare "
            f"__ttl__ = ExpireAfter({series.time_field!r}, seconds)."
        )
        raise TTLConfigurationError(message)


def drop_unused_fields(model: Any, mixin: Any) -> None:
    """Take `last_modified` and `ttl` out of a class whose policy is about other fields."""
    policy = policy_of(model)
    used = {policy.last_modified, policy.override} if isinstance(policy, TTL) else set()
    unused = [
        name
        for name, field in mixin.model_fields.items()
        if (field.alias or name) not in used and name not in _annotated(model, mixin)
    ]
    for name in unused:
        model.model_fields.pop(name, None)
    if unused:
        model.model_rebuild(force=True)


def _annotated(model: type, mixin: type) -> set[str]:
    """Return the fields that the user's own classes declare."""
    return {
        name
        for base in model.__mro__
        if base is not mixin and issubclass(base, Document) and base is not Document
        for name in inspect.get_annotations(base)
    }
