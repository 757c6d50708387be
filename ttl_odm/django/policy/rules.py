"""The seam for tables without a policy, whose rows expire with rows of another table.

A `Rule` is the `TablePolicy` of such a table. Each rule leads to a parent, and finally to a table
with a policy. `Dependents` removes such rows before their parents. Both come with an `Extension`
that a model declares; until then nothing of an extension is imported or called.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

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
    """The parent's model, and pairs of equal fields: one of the rows, one of the parent.

    The parent has a policy of its own, or a `Rule`. If it is a subclass with a table of its own,
    `parent` is the model at the root.
    """

    parent: Model
    pairs: tuple[tuple[AnyField, AnyField], ...]

    @property
    def own(self) -> list[AnyField]:
        """The rows' fields."""
        return [own for own, _ in self.pairs]

    @property
    def theirs(self) -> list[AnyField]:
        """The parent's fields."""
        return [theirs for _, theirs in self.pairs]

    @property
    def policy(self) -> TablePolicy:
        """The policy, or the rule, of the parent's table."""
        policy = table_policy(self.parent._meta.db_table)
        assert policy is not None  # noqa: S101 (a parent is found by its policy)
        return policy


class Rule(TablePolicy, ABC):
    """The policy of a table whose rows expire with rows of another, without columns for it."""

    has_lifetime = False

    def __init__(self, model: Model, find: Callable[[], Links]) -> None:
        """Take the model.

        Args:
            model: The model.
            find: Finds the parent, which may be declared later; raises TTLConfigurationError if
                there is no suitable one.
        """
        self._model = model
        self._find = find

    @cached_property
    def links(self) -> Links:
        """The parent, and the fields that lead to it."""
        return self._find()

    @property
    def binding(self) -> Binding:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """The policy at the end of the rule, which says when the rows expire."""
        return self.links.policy.binding

    @property
    def model(self) -> Model:
        """The model that declares the rule."""
        return self._model

    @property
    def stamps(self) -> bool:
        """False: the table has no field with an instant."""
        return False

    @property
    def depth(self) -> int:
        """The number of parents, up to the rows with a lifetime."""
        above = self.links.policy
        return 1 + (above.depth if isinstance(above, Rule) else 0)

    def is_link(self, relation: AnyField) -> bool:
        """Whether a foreign key is among the fields that lead to the parent."""
        return relation in self.links.own

    def is_off_for(self, obj: Instance, using: str) -> bool:  # noqa: ARG002
        """Whether the rows at the root can't expire; the instance isn't one of them."""
        return self.binding.is_off

    @abstractmethod
    def condition(
        self, connection: BaseDatabaseWrapper, source: str, kind: Kind, *, writing: bool
    ) -> str:
        """Return SQL for whether a row of a table or alias, quoted, is live, or expired."""

    @abstractmethod
    def rejected(self, what: Rejected, where: str) -> TTLConfigurationError:
        """Return the error, with the fix, for what rows with this rule can't have."""

    @abstractmethod
    def seal(self, using: str, keys: Sequence[object]) -> None:
        """Make sure that the parents of some expired rows, by the rows' keys, stay expired.

        The rows are about to be deleted, and a raised default would revive the parents without
        them.
        """

    @abstractmethod
    def check(self) -> Iterable[CheckMessage]:
        """Report problems of the model to ``manage.py check``."""


@dataclass
class Removed:
    """The dependent rows that were removed.

    Attributes:
        rows: Their number, by table.
        purged: What the hooks after the commit receive.
        is_done: Whether no dependent rows are left.
    """

    rows: Counter[str] = field(default_factory=Counter)
    purged: list[Purged] = field(default_factory=list)
    is_done: bool = True


class Doomed(Protocol):
    """Expired rows of one model that are to be removed after their dependents."""

    @property
    def root(self) -> Model:
        """The model."""
        ...

    @property
    def using(self) -> str:
        """The alias of the database, in which a transaction runs."""
        ...

    @property
    def reason(self) -> Reason:
        """Why they are removed."""
        ...

    @property
    def hooks_below(self) -> Hooks:
        """The hooks for rows of other models that are removed before these."""
        ...


class Dependents(Protocol):
    """Removes rows with a rule before their parents.

    It is called only for models to which rules lead.
    """

    @property
    def part(self) -> Part:
        """The additional part of a sweep that it purges."""
        ...

    def remove(self, doomed: Doomed, keys: Sequence[object], limit: int | None) -> Removed:
        """Remove the dependents of expired rows.

        If some are left, the expired rows must stay expired until these are removed, too.

        Args:
            doomed: The expired rows.
            keys: Their primary keys.
            limit: The most dependents to remove; None for all.

        Raises:
            UndeletedError: A row survives its DELETE.
        """
        ...

    def is_due(self, binding: Binding, using: str) -> bool:
        """Whether its part of a sweep has rows."""
        ...

    def facts(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return a dry run's report of dependents, from their numbers by table."""
        ...

    def purge(self, binding: Binding, using: str, request: BatchRequest) -> BatchResult:
        """Purge a batch of its part."""
        ...

    def check(self, model: Model, connection: BaseDatabaseWrapper) -> Iterator[Finding]:
        """Report problems of dependents in a database to ``ttl_check``."""
        ...


dependents: Final[list[Dependents]] = []
"""One for each extension that a model declares and that has dependents."""


def bind_extension(model: Model, declared: Extension, *, where: str) -> None:
    """Let the package of a declaration bind it to the table of a model."""
    import_module(declared.package("django")).bind(model, declared, where=where)


def rule_of(model: Model) -> Rule | None:
    """Return the rule of a model; None if it has none, or in a migration."""
    policy = policy_of(model)
    return policy if isinstance(policy, Rule) else None


def rules_below(model: Model) -> list[Rule]:
    """Return the rules whose parent is a model, in the order of declaration."""
    rules = [policy for policy in table_policies() if isinstance(policy, Rule)]
    if not rules:
        return rules
    model = model._meta.concrete_model or model
    return [rule for rule in rules if rule.links.parent is model]


def all_rules_below(model: Model) -> list[Rule]:
    """Return the rules that lead to a model at any depth, parents' rules first."""
    below = rules_below(model)
    return below + [deeper for rule in below for deeper in all_rules_below(rule.model)]


def remove_dependents(doomed: Doomed, keys: Sequence[object], limit: int | None = None) -> Removed:
    """Remove the dependents of expired rows, for all extensions; see `Dependents.remove`."""
    removed = Removed()
    for remover in dependents:
        rest = None if limit is None else limit - removed.rows.total()
        more = remover.remove(doomed, keys, rest)
        removed.rows += more.rows
        removed.purged += more.purged
        if not more.is_done:
            removed.is_done = False
            break
    return removed
