"""SQLAlchemy as a `Subject` where the database stores the defaults, which an operator changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.contract.on_sqlalchemy import SyncSQLAlchemy
from tests.contract.subject import CONTAINERS
from tests.contract.tables import models_of
from ttl_odm import TTL, Stored
from ttl_odm.sqlalchemy import set_policy

if TYPE_CHECKING:
    from ttl_odm.core import Policy


def stored(name: str) -> Policy:
    """The policy of a container with its default in the database, where it has one."""
    policy = CONTAINERS[name].policy
    if not isinstance(policy, TTL):
        return policy
    return policy.with_default(Stored(policy.default))


class StoredOnSQLAlchemy(SyncSQLAlchemy):
    """Synchronous."""

    declared = models_of(stored)

    def set_policy(self, container: str, declared: Any) -> None:
        model, policy = self.declared.models[container], CONTAINERS[container].policy
        if not isinstance(policy, TTL):
            super().set_policy(container, declared)
            return
        if isinstance(declared, TTL):
            model.__ttl__ = declared.with_default(Stored(policy.default))
            declared = declared.default
        with self.engine.connect() as connection:
            set_policy(connection, model, declared, by="the contract")
