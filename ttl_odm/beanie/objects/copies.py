"""What a document in memory knows of the stored one that it is a copy of: its key, and its end.

Beanie's `save()` is an upsert: it inserts what it doesn't find. For a document that was read or
written before, and has expired since, that would bring the old content back; for one that was never
stored it is right. So a document remembers that it was stored, under which key, and with which
values of the fields that say when it expires: a date that was changed in memory must not hide that
the stored one has passed.

Beanie calls `_save_state` after each read and each write, which has to be quick. It does so, too,
for what a link is given, which may never have been stored: so the parsing of links is replaced when
ttl_odm is imported. What is remembered is a private attribute of pydantic's, so that copies and
pickles have it; it is equal to any other, so that documents are compared as before.

This module must not know how the gate works.
"""

from __future__ import annotations

from copy import deepcopy
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from beanie import Document
from beanie.odm import fields as beanie_fields
from beanie.odm.utils.parsing import parse_obj
from pydantic import BaseModel, PrivateAttr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_COPY: Final = "_ttl_copy"
_READER: Final = "_ttl_reader"
"""The attribute of a class with what reads the key and the fields that decide, all at once."""
_ALIASES: Final = "_ttl_aliases"
"""The attribute of a class with the names that MongoDB has for the fields that decide."""
_STAMP: Final = "_ttl_stamp"
"""The attribute of a class with the name of the field that nobody sets but the server."""

_OWN_STATE: Final = "_ttl_own_state"
"""The attribute of a class that says whether others than Beanie save a state of documents."""

# A lazy model looks at each attribute by Python, which would take most of the time here.
_attribute_of: Final = object.__getattribute__


class Copy(tuple[Any, ...]):
    """The key of a stored document, and its values in the fields by which it expires."""

    __slots__ = ()

    is_certain = True
    """False where a transaction may not have been committed, or a bulk writer has yet to write."""

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, Copy)

    __hash__ = None  # type: ignore[assignment]

    @property
    def key(self) -> object:
        """The key."""
        return self[0]

    def row(self, model: type) -> dict[str, Any]:
        """The values, as they are in memory, by the names that MongoDB has for them."""
        return dict(zip(getattr(model, _ALIASES), self[1:], strict=True))


class _Doubtful(Copy):
    __slots__ = ()
    is_certain = False


_DELETED: Final = (None,)
"""What is remembered of a document that was deleted; nothing if it was never read nor written."""


def prepare(model: Any, fields: Iterable[str], *, stamp: str | None) -> None:
    """Have the documents of a class remember what they have in these fields.

    `stamp` is the one of them that has no value before the document is stored.
    """
    tops = {field.partition(".")[0] for field in fields}
    deciding = {
        name: info.alias or name
        for name, info in model.model_fields.items()
        if {name, info.alias or name} & tops
    }
    read: Callable[[Any], tuple[Any, ...]] = itemgetter("id", *deciding)
    if not deciding:
        read = _key_alone
    elif any(_changes_in_place(model.model_fields[name].annotation) for name in deciding):
        read = _Unshared(read)
    setattr(model, _READER, read)
    setattr(model, _ALIASES, tuple(deciding.values()))
    setattr(model, _STAMP, stamp)
    owners = [base for base in model.__mro__ if "_save_state" in vars(base)]
    setattr(model, _OWN_STATE, len(owners) > 2)  # noqa: PLR2004 (the mixin's, and Beanie's)
    # Not by the mixin, whose `model_post_init` would then stand before the user's own.
    model.__private_attributes__.setdefault(_COPY, PrivateAttr(default=None))


def keeps_state(model: Any) -> bool:
    """Say whether anybody saves the state of a class's documents."""
    settings = model._document_settings
    return settings is None or settings.use_state_management or getattr(model, _OWN_STATE, True)


def remember(document: Any, *, is_certain: bool = True, **known: object) -> None:
    """Take note that a document is stored, as it is in memory but for what is known better.

    What isn't certain remains so if it is noted again without a change.
    """
    model = type(document)
    read = getattr(model, _READER, None)
    private: Any = _attribute_of(document, "__pydantic_private__")
    if read is None or private is None:
        return
    values = read(_attribute_of(document, "__dict__"))
    if known:
        row = {**dict(zip(getattr(model, _ALIASES), values[1:], strict=True)), **known}
        values = values[0], *row.values()
    last = private.get(_COPY)
    if type(last) is not _Doubtful or tuple(last) != values:
        private[_COPY] = Copy(values) if is_certain else _Doubtful(values)


def forget(document: Any) -> None:
    """Take note that a document was deleted."""
    if getattr(type(document), _READER, None) is not None:
        document.__pydantic_private__[_COPY] = Copy(_DELETED)


def copy_of(document: Any) -> Copy | None:
    """Return what a document remembers of the stored one; None if it was never stored.

    As far as anybody can know: one that was parsed lazily has what was read. One that came as JSON,
    or was read by the driver, has a stamp that only a stored document gets.
    """
    model, private, key = type(document), document.__pydantic_private__ or {}, document.id
    read = getattr(model, _READER, None)
    if read is None or key is None:
        return None
    copy: Copy | None = private.get(_COPY)
    if copy is not None:
        return copy if copy.key == key else None
    stored: Mapping[str, Any] = private.get("_store") or {}
    if stored.get("_id") == key:
        return Copy((key, *(stored.get(alias) for alias in getattr(model, _ALIASES))))
    stamp: str | None = getattr(model, _STAMP)
    return None if stamp is None or getattr(document, stamp) is None else Copy(read(vars(document)))


def _parse_linked(model: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
    """Parse what a link was given: documents, those of ``$lookup``, or a user's own dicts."""
    known = getattr(data, "__pydantic_private__", None) or {}
    copy = known.get(_COPY)
    document: Any = parse_obj(model, data, *args, **kwargs)
    was_read = isinstance(data, dict) and "_id" in data
    if not was_read and getattr(type(document), _READER, None) is not None:
        document.__pydantic_private__[_COPY] = copy
    return document


beanie_fields.parse_obj = _parse_linked  # type: ignore[attr-defined]


def _key_alone(values: Mapping[str, Any]) -> tuple[Any, ...]:
    return (values["id"],)


class _Unshared:
    """Reads values that may change in place, so that they don't; links never change."""

    def __init__(self, read: Callable[[Any], tuple[Any, ...]]) -> None:
        self._read = read

    def __call__(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(
            deepcopy(value)
            if isinstance(value, (list, dict, BaseModel)) and not isinstance(value, Document)
            else value
            for value in self._read(values)
        )


def _changes_in_place(annotation: object) -> bool:
    """Say whether values of a type may change without being replaced."""
    if isinstance(annotation, type) and not get_args(annotation):
        return issubclass(annotation, (list, dict, set, BaseModel))
    origin = get_origin(annotation)
    return origin in (list, dict, set) or any(map(_changes_in_place, get_args(annotation)))
