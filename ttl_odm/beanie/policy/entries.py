"""What a client's registry has for a collection whose documents expire: an `Entry`.

It is a `Binding` if the documents have a policy, or the `Rule` of an extension if they expire with
the documents of another collection. Either tells reads how to judge documents: by a policy, which
becomes a filter, or by stages (`Judged`), if no filter can decide.

This module must not know which extensions exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Document, Pipeline
    from ttl_odm.core.extension import Extension
    from ttl_odm.core.policy import Policy

Backend = Literal["mongodb", "documentdb", "cosmos", "migrations"]
"""What enforces a policy: the gate on MongoDB or on documentdb (the engine of Azure Cosmos DB for
MongoDB vCore), the service Azure Cosmos DB (RU), or, in a migration of Beanie's, nothing."""

GATED: Final = ("mongodb", "documentdb")
"""The backends on which the gate enforces policies."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Stages and an expression that judge documents where no filter can.

    `hide` is the stage that removes the fields which the other stages add.
    """

    stages: Pipeline
    condition: Document
    hide: Document

    @property
    def live(self) -> Pipeline:
        """The stages that keep live documents only."""
        return [*self.stages, {"$match": {"$expr": self.condition}}]

    @property
    def expired(self) -> Pipeline:
        """The stages that keep expired documents only."""
        return [*self.stages, {"$match": {"$expr": {"$not": [self.condition]}}}]


Own: TypeAlias = "Policy | Judged | None"
"""How the documents of a collection are judged; None if ttl_odm doesn't judge them."""


class Entry(ABC):
    """The policy or rule of a collection, declared by a class."""

    __slots__ = ()

    model: type
    backend: Backend

    @property
    @abstractmethod
    def declared(self) -> Policy | Extension:
        """The class's declaration at this moment."""

    @property
    def enforced_by_others(self) -> bool:
        """Whether the service enforces it, or, in a migration, nothing does."""
        return self.backend not in GATED

    @abstractmethod
    def judged(self, reader: str) -> Own:
        """Return how to judge the documents at this moment, for a read in a database.

        None if ttl_odm doesn't enforce it.

        Raises:
            TTLError: A read in that database can't judge them.
        """

    @abstractmethod
    def check_shared(self, model: type, declared: Policy | None) -> None:
        """Reject another class on the collection, with this policy or without one.

        Raises:
            TTLConfigurationError: Its documents would expire by this entry.
        """
