"""A policy that somebody has typed or pasted: `parse_policy`, from its source to the policy.

What is taken is what declares one (``ExpireAt("expires_at")``), and what stands around it in a
model or in what ``ttl-odm inspect`` prints. It is read, never evaluated: literals, products, and
calls of the four names below by keyword or position. Pure, so that it can be fuzzed.
"""

from __future__ import annotations

import ast
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt, as_policy
from ttl_odm.core.values import NEVER
from ttl_odm.errors import InvalidTTL, TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.core.policy import Policy

LONGEST: Final = 1_000
"""Characters that a declaration may have."""

_CALLS: Final[dict[str, Callable[..., Any]]] = {
    each.__name__: each for each in (TTL, ExpireAfter, ExpireAt, timedelta)
}
_EXAMPLES: Final = (
    "ExpireAt('expires_at'), ExpireAfter('created_at', 30 * 86400) or "
    "TTL(3600, last_modified='updated_at', override=None)"
)


def parse_policy(source: str) -> Policy:
    """Return the policy that a source declares.

    Args:
        source: A policy, a number of seconds, a line ``__ttl__ = policy``, or a line
            ``enable(target, policy)``, of which the target is not looked at.

    Raises:
        InvalidTTL: It says a number that is no ttl.
        TTLConfigurationError: It is something else, or no policy that can be.
    """
    try:
        declared = _value(_declaration(source))
    except _UnreadableError as error:
        raise _refused(source, str(error)) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, (InvalidTTL, TTLConfigurationError)):
            raise
        raise _refused(source, "it is no declaration") from error
    return as_policy(declared, where="the policy")


class _UnreadableError(Exception):
    """Something that no declaration has."""


def _declaration(source: str) -> ast.expr:
    """Return the expression that is the policy."""
    if len(source) > LONGEST:
        raise _UnreadableError(f"a declaration has {LONGEST:,} characters at most")
    with warnings.catch_warnings():  # of escapes that Python doesn't know
        warnings.simplefilter("ignore")
        body = ast.parse(source.strip()).body
    if len(body) != 1:
        raise _UnreadableError("give one declaration")
    match body[0]:
        case ast.Assign(targets=[ast.Name(id="__ttl__")], value=found):
            return found
        case ast.AnnAssign(target=ast.Name(id="__ttl__"), value=ast.expr() as found):
            return found
        case ast.Expr(value=ast.Call(func=ast.Name(id="enable"), args=[_, found])):
            return found
        case ast.Expr(value=found):
            return found
        case _:
            raise _UnreadableError("it is no declaration")


def _value(node: ast.expr) -> Any:  # noqa: PLR0911 (a table)
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id="NEVER"):
            return NEVER
        case ast.Tuple(elts=elements):
            return tuple(map(_value, elements))
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_key(key): _value(value) for key, value in zip(keys, values, strict=True)}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return _number(left) * _number(right)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _CALLS:
            return _called(name, args, keywords)
        case _:
            raise _UnreadableError(f"{ast.unparse(node)} can't be read")


def _key(node: ast.expr | None) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    raise _UnreadableError("the kinds of rows have to be literals")


def _number(node: ast.expr) -> Any:
    value = _value(node)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _UnreadableError(f"{ast.unparse(node)} is no number")
    return value


def _called(name: str, args: list[ast.expr], keywords: list[ast.keyword]) -> Any:
    given = {each.arg: _value(each.value) for each in keywords if each.arg is not None}
    if len(given) != len(keywords):
        raise _UnreadableError("** can't be read")
    try:
        return _CALLS[name](*map(_value, args), **given)
    except (TypeError, OverflowError) as error:
        raise _UnreadableError(str(error)) from error


def _refused(source: str, why: str) -> TTLConfigurationError:
    shown = source if len(source) <= LONGEST else f"{source[:LONGEST]}..."
    return TTLConfigurationError(f"{shown!r} is no policy: {why}. Give one such as {_EXAMPLES}.")
