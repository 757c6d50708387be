"""A policy as the Python source that declares it."""

from __future__ import annotations

import inspect
import keyword
from typing import TYPE_CHECKING

from ttl_odm.core.policy import TTL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.core.policy import Policy
    from ttl_odm.inspection.proposals import Proposal

_POSITIONAL = ("default", "field", "seconds")


def as_source(policy: Policy) -> str:
    """Return the call that makes a policy, without what it would be anyway."""
    cls = type(policy)
    kinds = {}
    if isinstance(policy, TTL) and policy.by is not None:
        kinds = {"default": policy.defaults, "other": policy.default}
    arguments = []
    for name, parameter in inspect.signature(cls).parameters.items():
        value = kinds[name] if name in kinds else getattr(policy, name, parameter.default)
        if name in _POSITIONAL:
            arguments.append(_literal(value))
        elif value != parameter.default:
            arguments.append(f"{name}={_literal(value)}")
    return f"{cls.__name__}({', '.join(arguments)})"


def declarations(proposals: Sequence[Proposal]) -> str:
    """Return the lines to paste, for all tables: imports, and each declaration in both forms."""
    if not proposals:
        return ""
    names = ", ".join(sorted({type(proposal.policy).__name__ for proposal in proposals}))
    is_mongodb = all(proposal.table.is_collection for proposal in proposals)
    adapter = "ttl_odm.beanie" if is_mongodb else "ttl_odm.sqlalchemy"
    lines = [f"from ttl_odm import {names}"]
    if is_mongodb:
        lines += [f"from {adapter} import TTLMixin"]
    for proposal in proposals:
        table = proposal.table
        name, model = _printable(table.name), table.model or _class_name(table.name)
        head = f"class {model}(...):  # {'table' if table.model else 'the model of table'} {name}"
        if table.is_collection:
            head = f"class {model}(TTLMixin, Document):  # collection {name}"
        declaration = f"    __ttl__ = {as_source(proposal.policy)}{_doubt(proposal)}"
        lines += ["", head, declaration]
    lines += ["", "# Or, without touching the models:", f"from {adapter} import enable"]
    lines += ["", *map(as_enabled, proposals)]
    return "\n".join(lines)


def as_enabled(proposal: Proposal) -> str:
    """Return the call of ``enable`` for a model that isn't ours, a Table, or a document class."""
    table = proposal.table
    target, which = table.model, ""
    if target is None and table.is_collection:
        target = _class_name(table.name)
        which = f"  # the class of collection {_printable(table.name)}"
    elif target is None:
        target = f"metadata.tables[{_literal(table.name)}]"
    return f"enable({target}, {as_source(proposal.policy)}){which}{_doubt(proposal)}"


def _doubt(proposal: Proposal) -> str:
    return "  # a guess: choose the seconds" if proposal.confidence.name == "GUESS" else ""


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
