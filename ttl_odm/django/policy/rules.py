"""The seam for tables whose rows expire with rows of another table, by no policy of their own.

A `Rule` is the `TablePolicy` of such a table. Each of them leads to a parent, and in the end to a
table with a policy. `Dependents` removes such rows before the rows that they belong to. Both come
with an `Extension` that a model declares: nothing of it is imported, or asked, before.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from ttl_odm.django.policy.bindings import TablePolicy, policy_of, table_policies, table_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from django.core.checks import CheckMessage
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model as Instance

    from ttl_odm.core.extension import Extension
    from ttl_odm.django.policy.bindings import Binding, Model, Rejected
    from ttl_odm.django.policy.options import Kind
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.errors import TTLConfigurationError
    from ttl_odm.sweeper import BatchRequest, BatchResult, Fact, Hooks, Part, Purged
    from ttl_odm.sweeper.findings import Finding
    from ttl_odm.sweeper.hooks import Reason


@dataclass(frozen=True)
class Links:
    """The parent's model, and pairs of a field of the rows and the parent's that it equals.

    The parent has a policy of its own, or a `Rule`. Of a subclass with a table of its own it is the
    model at the root.
    """

    parent: Model
    pairs: tuple[tuple[AnyField, AnyField], ...]

    @property
    def own(self) -> list[AnyField]:
        """The fields of the rows."""
        return [own for own, _ in self.pairs]

    @property
    def theirs(self) -> list[AnyField]:
        """The fields of the parent."""
        return [theirs for _, theirs in self.pairs]

    @property
    def policy(self) -> TablePolicy:
        """The policy, or the rule, of the parent's table."""
        policy = table_policy(self.parent._meta.db_table)
        assert policy is not None  # noqa: S101 (it was there when the parent was found)
        return policy


class Rule(TablePolicy, ABC):
    """Rows of a table expire with rows of another; the table has no columns for that."""

    has_lifetime = False

    def __init__(self, model: Model, find: Callable[[], Links]) -> None:
        """Take the model.

        Args:
            model: The model.
            find: Finds the parent, which may be declared later; it raises TTLConfigurationError
                where that can't be.
        """
        self._model = model
        self._find = find

    @cached_property
    def links(self) -> Links:
        """The parent."""
        return self._find()

    @property
    def binding(self) -> Binding:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """The policy at the end of the rule, which says when the rows expire."""
        return self.links.policy.binding

    @property
    def model(self) -> Model:
        """The model that declares it."""
        return self._model

    @property
    def stamps(self) -> bool:
        """No: there is no field with an instant."""
        return False

    @property
    def depth(self) -> int:
        """How many parents there are up to the rows with a lifetime."""
        above = self.links.policy
        return 1 + (above.depth if isinstance(above, Rule) else 0)

    def is_link(self, relation: AnyField) -> bool:
        """Whether it is among the fields that lead to the parent."""
        return relation in self.links.own

    def is_off_for(self, obj: Instance, using: str) -> bool:  # noqa: ARG002
        """Whether the rows at the end can't expire; the instance isn't one of them."""
        return self.binding.is_off

    @abstractmethod
    def condition(
        self, connection: BaseDatabaseWrapper, source: str, kind: Kind, *, writing: bool
    ) -> str:
        """SQL for whether the row of a table, or of its alias, quoted, is live, or expired."""

    @abstractmethod
    def rejected(self, what: Rejected, where: str) -> TTLConfigurationError:
        """The error for what rows with this rule can't have, with the fix."""

    @abstractmethod
    def seal(self, using: str, keys: Sequence[Any]) -> None:
        """Let the rows stay expired that some expired rows, by primary key, belong to.

        These are about to go, and a default that is raised would bring back the others alone.
        """

    @abstractmethod
    def check(self) -> Iterable[CheckMessage]:
        """Report what ``manage.py check`` finds on the model."""


@dataclass
class Removed:
    """The rows that went before others, by table, and whether those were all.

    `purged` is what hooks after the commit are to get of them.
    """

    rows: Counter[str] = field(default_factory=Counter)
    purged: list[Purged] = field(default_factory=list)
    is_done: bool = True


class Doomed(Protocol):
    """Expired rows of one model that are removed after those that belong to them."""

    @property
    def root(self) -> Model:
        """The model."""
        ...

    @property
    def using(self) -> str:
        """The alias of the database, with a transaction."""
        ...

    @property
    def reason(self) -> Reason:
        """Why they go."""
        ...

    @property
    def hooks_below(self) -> Hooks:
        """The hooks of rows of other models that go before these."""
        ...


class Dependents(Protocol):
    """Removes rows with a rule before the rows that they belong to.

    It is asked only about models that rules lead to.
    """

    @property
    def part(self) -> Part:
        """The further part of a sweep that is left to it."""
        ...

    def remove(self, doomed: Doomed, keys: Sequence[Any], limit: int | None) -> Removed:
        """Remove what goes before expired rows, by their primary keys; at most so many rows.

        If that isn't all, the rows have to stay expired until it is. Raises UndeletedError where a
        row survives its DELETE.
        """
        ...

    def is_due(self, binding: Binding, using: str) -> bool:
        """Whether there is something in its part."""
        ...

    def facts(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return what a dry run reports of rows that go along with expired ones, by table."""
        ...

    def purge(self, binding: Binding, using: str, request: BatchRequest) -> BatchResult:
        """Purge a batch of its part."""
        ...

    def check(self, model: Model, connection: BaseDatabaseWrapper) -> Iterator[Finding]:
        """Report what ``ttl_check`` finds on them in a database."""
        ...


dependents: Final[list[Dependents]] = []
"""Those of the extensions that models have asked for."""


def bind_extension(model: Model, declared: Extension, *, where: str) -> None:
    """Let the package of a declaration put it on the table of a model."""
    import_module(declared.package("django")).bind(model, declared, where=where)


def rule_of(model: Model) -> Rule | None:
    """The rule of a model; None where it has none, or in a migration."""
    policy = policy_of(model)
    return policy if isinstance(policy, Rule) else None


def rules_below(model: Model) -> list[Rule]:
    """The rules whose parent is a model, in the order of declaration."""
    rules = [policy for policy in table_policies() if isinstance(policy, Rule)]
    if not rules:
        return rules
    model = model._meta.concrete_model or model
    return [rule for rule in rules if rule.links.parent is model]


def all_rules_below(model: Model) -> list[Rule]:
    """The rules that lead to a model at whatever depth, those of parents before the others."""
    below = rules_below(model)
    return below + [deeper for rule in below for deeper in all_rules_below(rule.model)]


def remove_dependents(doomed: Doomed, keys: Sequence[Any], limit: int | None = None) -> Removed:
    """Remove what goes before expired rows, by their primary keys."""
    removed = Removed()
    for one in dependents:
        left = None if limit is None else limit - removed.rows.total()
        more = one.remove(doomed, keys, left)
        removed.rows += more.rows
        removed.purged += more.purged
        if not more.is_done:
            removed.is_done = False
            break
    return removed
