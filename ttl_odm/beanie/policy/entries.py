"""What a client's registry keeps of a collection whose documents expire: an `Entry`.

It is a `Binding`, if the documents have a policy, or the `Rule` of an extension, if they expire
with those of another collection. Reads ask either of them how documents are judged: by a policy,
from which a filter is made, or by stages (`Judged`), where no filter can tell.

This module must not know which extensions there are.
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
"""Who enforces a policy: the gate on MongoDB or on documentdb (the engine of Azure Cosmos DB for
MongoDB vCore), Azure Cosmos DB (RU) itself, or, in a migration of Beanie's, nobody."""

GATED: Final = ("mongodb", "documentdb")
"""The backends on which the gate enforces it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """How documents are judged that no filter can judge: by stages, and then an expression.

    `hide` is the stage that takes out what the others have put into the documents.
    """

    stages: Pipeline
    condition: Document
    hide: Document

    @property
    def live(self) -> Pipeline:
        """The stages that leave live documents."""
        return [*self.stages, {"$match": {"$expr": self.condition}}]

    @property
    def expired(self) -> Pipeline:
        """The stages that leave those that have expired."""
        return [*self.stages, {"$match": {"$expr": {"$not": [self.condition]}}}]


Own: TypeAlias = "Policy | Judged | None"
"""What decides about the documents of a collection."""


class Entry(ABC):
    """What stands on a collection, declared by a class."""

    __slots__ = ()

    model: type
    backend: Backend

    @property
    @abstractmethod
    def declared(self) -> Policy | Extension:
        """What the class declares at this moment."""

    @property
    def enforced_by_others(self) -> bool:
        """Whether the service enforces it, or in a migration nobody."""
        return self.backend not in GATED

    @abstractmethod
    def judged(self, reader: str) -> Own:
        """What decides about the documents at this moment, for a read in a database.

        None where ttl_odm doesn't enforce it.

        Raises:
            TTLError: In that database it can't be told.
        """

    @abstractmethod
    def check_shared(self, model: type, declared: Policy | None) -> None:
        """Reject another class on the collection, with this policy, or without any.

        Raises:
            TTLConfigurationError: Its documents would expire by what stands here.
        """
