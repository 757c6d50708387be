"""A policy as the Python source that declares it."""

from __future__ import annotations

import inspect
import keyword
from typing import TYPE_CHECKING, TypeGuard

from ttl_odm.core.policy import TTL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ttl_odm.core.policy import Policy
    from ttl_odm.inspection.proposals import Proposal

_POSITIONAL = ("default", "field", "seconds")


def as_source(policy: Policy) -> str:
    """Return the call that makes a policy, without what it would be anyway."""
    cls = type(policy)
    arguments = []
    kinds = {"default": policy.defaults, "other": policy.default} if _has_kinds(policy) else {}
    for name, parameter in inspect.signature(cls).parameters.items():
        value = kinds[name] if name in kinds else getattr(policy, name, parameter.default)
        if name in _POSITIONAL:
            arguments.append(_literal(value))
        elif value != parameter.default:
            arguments.append(f"{name}={_literal(value)}")
    return f"{cls.__name__}({', '.join(arguments)})"


def _has_kinds(policy: Policy) -> TypeGuard[TTL]:
    return isinstance(policy, TTL) and policy.by is not None


def declarations(proposals: Iterable[Proposal]) -> str:
    """Return the lines to paste, for all tables: imports, and each declaration in both forms."""
    proposals = list(proposals)
    if not proposals:
        return ""
    names = ", ".join(sorted({type(each.policy).__name__ for each in proposals}))
    is_mongodb = all(each.table.is_collection for each in proposals)
    adapter = "ttl_odm.beanie" if is_mongodb else "ttl_odm.sqlalchemy"
    lines = [f"from ttl_odm import {names}"]
    if is_mongodb:
        lines += [f"from {adapter} import TTLMixin"]
    for each in proposals:
        lines += ["", *in_model(each)]
    lines += ["", "# Or, without touching the models:", f"from {adapter} import enable"]
    lines += ["", *map(as_enabled, proposals)]
    return "\n".join(lines)


def in_model(proposal: Proposal) -> list[str]:
    """Return the line that goes into the model, under the head of its class."""
    table = proposal.table
    line = f"    __ttl__ = {as_source(proposal.policy)}{_doubt(proposal)}"
    if table.is_collection:
        name = table.model or _class_name(table.name)
        return [f"class {name}(TTLMixin, Document):  # collection {_shown(table.name)}", line]
    if table.model is not None:
        return [f"class {table.model}(...):  # table {_shown(table.name)}", line]
    return [
        f"class {_class_name(table.name)}(...):  # the model of table {_shown(table.name)}",
        line,
    ]


def as_enabled(proposal: Proposal) -> str:
    """Return the call of ``enable`` for a model that isn't ours, a Table, or a document class."""
    table = proposal.table
    target, which = table.model, ""
    if target is None and table.is_collection:
        target, which = _class_name(table.name), f"  # the class of collection {_shown(table.name)}"
    elif target is None:
        target = f"metadata.tables[{_literal(table.name)}]"
    return f"enable({target}, {as_source(proposal.policy)}){which}{_doubt(proposal)}"


def _doubt(proposal: Proposal) -> str:
    return "  # a guess: choose the seconds" if proposal.confidence.name == "GUESS" else ""


def _class_name(table: str) -> str:
    words = "".join(each if each.isalnum() else " " for each in table.rpartition(".")[2]).split()
    name = "".join(each[0].upper() + each[1:] for each in words)
    return name if name.isidentifier() and not keyword.iskeyword(name) else "Model"


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _literal(value: object) -> str:
    if isinstance(value, str) and not {'"', "\\"} & set(value) and value.isprintable():
        return f'"{value}"'
    return repr(value)
