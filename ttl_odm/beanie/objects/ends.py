"""When a stored document expires, as the database has it.

This module must not know how documents are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.beanie.drivers import on_primary
from ttl_odm.beanie.policy import predicate
from ttl_odm.beanie.policy.bindings import binding_of, collection_of
from ttl_odm.beanie.purge.errors import ExpiredError
from ttl_odm.beanie.policy.predicate import deciding_fields
from ttl_odm.beanie.policy.rules import rule_of
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from datetime import datetime

    from beanie import Document

    from ttl_odm.beanie.drivers import Session


async def expires_at(document: Document, *, session: Session = None) -> datetime | None:
    """Return the instant at which a document expires, as the database has it at this moment.

    For documents that expire with a parent, it is the expiry of the parent at the top of the
    chain; for those with a lifetime of their own, that of the stored document.

    Args:
        document: A document that is stored.
        session: The session of a transaction.

    Returns:
        The instant (aware, UTC), None for never.

    Raises:
        ExpiredError: The document has expired, or isn't there.
    """
    collection, model = collection_of(document), type(document)
    rule = rule_of(model)
    if rule is not None:
        return await rule.end_of(document, session)
    binding = binding_of(model)
    if binding is None:
        raise TTLConfigurationError(f"{model.__name__} has no TTL: declare __ttl__ on it.")
    await binding.source.see(collection)
    row = await on_primary(collection).find_one(
        {"_id": document.id}, dict.fromkeys(deciding_fields(binding.policy), 1), session=session
    )
    if row is None:
        raise ExpiredError(model=model.__name__, key=document.id)
    return predicate.end_of(row, binding.policy)
