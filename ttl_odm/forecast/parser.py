"""A planned policy, as the user typed or pasted it: a default, or a whole policy.

A policy may be a declaration (``ExpireAt("expires_at")``), or a line of a model or of ``ttl-odm
inspect`` with one. The source is parsed, never evaluated: it may contain literals, products, and
calls of the four names in `_CALLS`. Pure, so that it can be fuzzed.
"""

from __future__ import annotations

import ast
import inspect
import warnings
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.core.policy import DURATIONS, TTL, ExpireAfter, ExpireAt, as_policy
from ttl_odm.core.values import NEVER, default_ttl, duration
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.inspection.source import as_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.core.policy import Policy

OPTION: Final = "--default-ttl"
POLICY_OPTION: Final = "--policy"
"""The options' names on the command lines."""

HELP: Final = (
    "The default ttl to try: seconds, or a duration such as 90d, 12h or 30m; -1 (rows never expire "
    "by default), or off. Without it, the forecast is for the current policy."
)
POLICY_HELP: Final = (
    "The policy to try, as it would be declared or as printed by inspect: "
    '\'ExpireAt("expires_at")\', \'ExpireAfter("created_at", "30d")\', \'TTL(3600, '
    'last_modified="updated_at", override=None)\'.'
)

LONGEST: Final = 1_000
"""The most characters of a declaration."""

_OFF: Final = ("off", "none")
_FIX: Final = "give whole seconds from 1 to 2147483647"
_CALLS: Final[dict[str, Callable[..., object]]] = {
    call.__name__: call for call in (TTL, ExpireAfter, ExpireAt, timedelta)
}
_EXAMPLES: Final = (
    "ExpireAt('expires_at'), ExpireAfter('created_at', '30d') or "
    "TTL(3600, last_modified='updated_at', override=None)"
)


def planned_policy(
    name: str, current: Policy | None, default: str | None, source: str | None
) -> Policy | None:
    """Return the planned policy; None if the user planned none.

    Args:
        name: The model's name, for messages.
        current: The current policy, if there is one.
        default: Another default of it: seconds, a `duration`, "-1" or "off".
        source: Another policy.

    Raises:
        InvalidTTL: The default is invalid, or the policy has no default.
        TTLConfigurationError: The source can't be read, or both are set, or there is no policy.
    """
    if default is not None and source is not None:
        raise TTLConfigurationError(f"{OPTION} and {POLICY_OPTION}: give one of them.")
    if source is not None:
        return parse_policy(source)
    if current is None:
        example = """'ExpireAfter("created_at", "90d")'"""
        raise TTLConfigurationError(
            f"{name} has no policy yet: give one with {POLICY_OPTION} {example}, or declare it "
            "first (in a settings file, lines that begin with # don't count)."
        )
    if default is None:
        return None
    where = f"{OPTION} {default}"
    if isinstance(current, ExpireAt):
        raise InvalidTTL(
            f"{where}: {as_source(current)} has no default, each row has its own expiry. Specify "
            f"another policy with {POLICY_OPTION}."
        )
    if not isinstance(current, ExpireAfter):
        return current.with_default(parse_default(default, where))
    try:
        seconds: Any = None if default in _OFF else duration(default)  # `ExpireAfter` checks it
        return replace(current, seconds=seconds)
    except InvalidTTL as error:
        raise InvalidTTL(f"{where}: {error}") from error
    except ValueError as error:
        raise InvalidTTL(f"{where}: {_FIX}, or as in 90d.") from error


def parse_default(text: str, where: str) -> int | None:
    """Return a default that was typed: seconds, a `duration`, -1 or off (None).

    Raises:
        InvalidTTL: The text is none of these; the message begins with `where`.
    """
    try:
        return None if text in _OFF else default_ttl(duration(text), where=where)
    except (ValueError, InvalidTTL) as error:
        raise InvalidTTL(f"{where}: {_FIX}, -1 or off, or as in 90d.") from error


def parse_policy(source: str) -> Policy:
    """Return the policy that a source declares.

    Args:
        source: A policy, a number of seconds, a line ``__ttl__ = policy``, or a line
            ``enable(target, policy)``, whose target is ignored. Seconds may be a `duration` in
            quotes; alone, also one without quotes.

    Raises:
        InvalidTTL: A number is invalid.
        TTLConfigurationError: It isn't a valid policy.
    """
    try:
        declared: object = duration(source)
    except ValueError:
        declared = _read(source)
    return as_policy(declared, where="the policy")


def _read(source: str) -> object:
    try:
        return _value(_declaration(source))
    except _UnreadableError as error:
        raise _error(source, str(error)) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, (InvalidTTL, TTLConfigurationError)):
            raise
        raise _error(source, "it is not a declaration") from error


class _UnreadableError(Exception):
    """A part of the source that no declaration may contain."""


def _declaration(source: str) -> ast.expr:
    """Return the expression of the policy."""
    if len(source) > LONGEST:
        raise _UnreadableError(f"a declaration has at most {LONGEST:,} characters")
    with warnings.catch_warnings():  # about invalid escapes
        warnings.simplefilter("ignore")
        body = ast.parse(source.strip()).body
    if len(body) != 1:
        raise _UnreadableError("give a single declaration")
    match body[0]:
        case ast.Assign(targets=[ast.Name(id="__ttl__")], value=policy):
            return policy
        case ast.AnnAssign(target=ast.Name(id="__ttl__"), value=ast.expr() as policy):
            return policy
        case ast.Expr(value=ast.Call(func=ast.Name(id="enable"), args=[_, policy])):
            return policy
        case ast.Expr(value=policy):
            return policy
        case _:
            raise _UnreadableError("it is not a declaration")


def _value(node: ast.expr) -> object:  # noqa: C901, PLR0911 (a table)
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id="NEVER"):
            return NEVER
        case ast.Tuple(elts=elements):
            return tuple(map(_value, elements))
        case ast.Dict(keys=keys, values=values) if None not in keys:
            kinds = [key.value for key in keys if isinstance(key, ast.Constant)]
            if len(kinds) != len(keys):
                raise _UnreadableError("the kinds of rows must be literals")
            return dict(zip(kinds, map(_value, values), strict=True))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return _number(left) * _number(right)
        case ast.Call(func=ast.Name(id="Follows")):
            raise _UnreadableError(
                "Follows needs a model that declares it: give the model with --app"
            )
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _CALLS:
            options = {word.arg: _value(word.value) for word in keywords if word.arg is not None}
            if len(options) != len(keywords):
                raise _UnreadableError("** can't be read")
            try:
                return _called(_CALLS[name], list(map(_value, args)), options)
            except (TypeError, OverflowError) as error:
                raise _UnreadableError(str(error)) from error
        case _:
            raise _UnreadableError(f"{ast.unparse(node)} can't be read")


def _called(call: Callable[..., object], args: list[Any], options: dict[str, Any]) -> object:
    """Make a policy, with textual durations as seconds, or a timedelta."""
    if call is timedelta:
        return call(*args, **options)
    bound = inspect.signature(call).bind(*args, **options)
    for name in DURATIONS & bound.arguments.keys():
        bound.arguments[name] = _seconds(bound.arguments[name])
    return call(*bound.args, **bound.kwargs)


def _seconds(value: object) -> object:
    if isinstance(value, dict):
        return {kind: _seconds(seconds) for kind, seconds in value.items()}
    if not isinstance(value, str):
        return value
    try:
        return duration(value)
    except ValueError as error:
        raise _UnreadableError(str(error)) from error


def _number(node: ast.expr) -> int | float:
    value = _value(node)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _UnreadableError(f"{ast.unparse(node)} is not a number")
    return value


def _error(source: str, why: str) -> TTLConfigurationError:
    start = source if len(source) <= LONGEST else f"{source[:LONGEST]}..."
    return TTLConfigurationError(f"{start!r} is not a policy: {why}. Give one such as {_EXAMPLES}.")
