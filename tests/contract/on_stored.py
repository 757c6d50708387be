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


def default_to_store(model: Any, container: str, declared: Any) -> Any:
    """Return the default that an operator stores; a model declares what else a policy has."""
    if not isinstance(declared, TTL):
        return declared
    model.__ttl__ = declared.with_default(Stored(CONTAINERS[container].policy.default))
    return declared.default


class StoredOnSQLAlchemy(SyncSQLAlchemy):
    """Synchronous."""

    declared = models_of(stored)

    def set_policy(self, container: str, declared: Any) -> None:
        if not isinstance(CONTAINERS[container].policy, TTL):
            super().set_policy(container, declared)
            return
        model = self.declared.models[container]
        default = default_to_store(model, container, declared)
        with self.engine.connect() as connection:
            set_policy(connection, model, default, by="the contract")
