"""A policy as the Python source that declares it."""

from __future__ import annotations

import inspect
import keyword
from typing import TYPE_CHECKING

from ttl_odm.core.policy import DURATIONS, TTL
from ttl_odm.core.values import duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.core.policy import Policy
    from ttl_odm.inspection.proposals import Proposal

_OF_TTL_MIXIN = frozenset(
    {
        *("expire_at", "expire_in", "expires_at", "inherit_ttl", "is_expired", "persist"),
        *("time_left", "touch"),
    }
)
"""The names that TTLMixin gives a document: pydantic warns of fields that shadow them."""
_POSITIONAL = ("default", "field", "seconds")


def as_source(policy: Policy, *, durations: bool = False) -> str:
    """Return the call that makes a policy, without arguments that have their default.

    Args:
        policy: The policy.
        durations: Whether to write seconds as in files and on command lines (``"90d"``) instead
            of Python's numbers (``7776000``).
    """
    cls = type(policy)
    kinds: dict[str, object] = {}
    if isinstance(policy, TTL) and policy.by is not None:
        kinds = {"default": policy.defaults, "other": policy.default}
    elif policy.stored is not None:
        kinds = {"default": policy.stored}
    arguments = []
    for name, parameter in inspect.signature(cls).parameters.items():
        value = kinds[name] if name in kinds else getattr(policy, name, parameter.default)
        if durations and name in DURATIONS:
            value = _as_duration(value)
        if name in _POSITIONAL:
            arguments.append(_literal(value))
        elif value != parameter.default:
            arguments.append(f"{name}={_literal(value)}")
    return f"{cls.__name__}({', '.join(arguments)})"


def _as_duration(value: object) -> object:
    """Return seconds as a duration, also those in a mapping; -1, None and others unchanged."""
    if isinstance(value, dict):
        return {kind: _as_duration(seconds) for kind, seconds in value.items()}
    return duration_text(value) if isinstance(value, int) and value > 0 else value


def declarations(proposals: Sequence[Proposal]) -> str:
    """Return the lines to paste for all tables: imports, and each declaration in both forms."""
    django = [proposal for proposal in proposals if proposal.table.django is not None]
    others = [proposal for proposal in proposals if proposal.table.django is None]
    blocks = [_in_settings(django)] if django else []
    blocks += [_on_classes(others)] if others else []
    return "\n\n".join(blocks)


def _import_of(proposals: Sequence[Proposal]) -> str:
    names = ", ".join(sorted({type(proposal.policy).__name__ for proposal in proposals}))
    return f"from ttl_odm import {names}"


def _in_settings(proposals: Sequence[Proposal]) -> str:
    """Return the setting that gives Django's models their policies."""
    lines = [
        '# settings.py, with "ttl_odm.django" in INSTALLED_APPS before these apps',
        _import_of(proposals),
        "",
        "TTL_ODM_POLICIES = {",
    ]
    for proposal in proposals:
        label = _literal(proposal.table.django)
        lines.append(f"    {label}: {as_source(proposal.policy)},{_doubt(proposal)}")
    return "\n".join([*lines, "}", "", "# Or, in a model of your own: __ttl__ = ExpireAt(...)"])


def _on_classes(proposals: Sequence[Proposal]) -> str:
    is_mongodb = all(proposal.table.is_collection for proposal in proposals)
    adapter = "ttl_odm.beanie" if is_mongodb else "ttl_odm.sqlalchemy"
    lines = [_import_of(proposals)]
    if is_mongodb and any(proposal.field.name not in _OF_TTL_MIXIN for proposal in proposals):
        lines = ["from beanie import Document", *lines, f"from {adapter} import TTLMixin"]
    for proposal in proposals:
        table = proposal.table
        if table.variable is not None:  # it has no class
            continue
        name, model = _printable(table.name), table.model or _class_name(table.name)
        head = f"class {model}(...):  # {'table' if table.model else 'your model of table'} {name}"
        field = proposal.field.name
        if table.is_collection and field in _OF_TTL_MIXIN:
            lines += [
                "",
                f"# Collection {name}: TTLMixin already has {_printable(field)}, so use enable()",
            ]
            continue
        if table.is_collection:
            head = f"class {model}(TTLMixin, Document):  # collection {name}"
        declaration = f"    __ttl__ = {as_source(proposal.policy)}{_doubt(proposal)}"
        lines += ["", head, declaration]
    has_classes = any(proposal.table.variable is None for proposal in proposals)
    lines += ["", "# Or, without touching the models:"] if has_classes else []
    lines += [
        f"from {proposal.table.module} import {proposal.table.model or proposal.table.variable}"
        for proposal in proposals
        if proposal.table.module is not None
    ]
    lines += [f"from {adapter} import enable", "", *map(as_enabled, proposals)]
    return "\n".join(lines)


def as_enabled(proposal: Proposal) -> str:
    """Return the call of ``enable`` for a model or document class.

    If the class is unknown, its name is made up, and a comment says so: `enable` needs the
    application's own class or Table, not a second Table of the same name.
    """
    table = proposal.table
    target, which = table.model or table.variable, ""
    if target is None:
        target = _class_name(table.name)
        kind = "collection" if table.is_collection else "table"
        or_table = "" if table.is_collection else ", or its Table"
        which = f"  # your class of {kind} {_printable(table.name)}{or_table}"
    return f"enable({target}, {as_source(proposal.policy)}){which}{_doubt(proposal)}"


def _doubt(proposal: Proposal) -> str:
    doubts = {"GUESS": "  # a guess: choose the seconds", "LIKELY": "  # likely: see its ! lines"}
    return doubts.get(proposal.confidence.name, "")


def _class_name(table: str) -> str:
    letters = "".join(letter if letter.isalnum() else " " for letter in table.rpartition(".")[2])
    name = "".join(word[0].upper() + word[1:] for word in letters.split())
    return name if name.isidentifier() and not keyword.iskeyword(name) else "Model"


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _literal(value: object) -> str:
    if isinstance(value, str) and not {'"', "\\"} & set(value) and value.isprintable():
        return f'"{value}"'
    return repr(value)
