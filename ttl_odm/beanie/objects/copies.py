"""What a document in memory knows of the stored document that it is a copy of: its key and its end.

Beanie's `save()` is an upsert: it inserts a document that it doesn't find. That is right for a
document that was never stored. If it was stored, and has expired since, the insert would bring its
old content back. So a document remembers that it was stored, under which key, and with which values
of the fields that decide when it expires: a date that was changed in memory must not hide that the
stored date has passed.

Beanie calls `_save_state` after each read and each write, so it has to be quick. Beanie also calls
it for the value of a link, which may never have been stored; so the parsing of links is replaced
when ttl_odm is imported. A `Copy` is a private attribute of pydantic's, so copies and pickles of
the document have it. All `Copy` objects are equal, so documents compare as they do without ttl_odm.

This module must not know how the gate works.
"""

from __future__ import annotations

from copy import deepcopy
from datetime import date, datetime, timezone
from enum import Enum
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from beanie import Document, PydanticObjectId
from beanie.odm import fields as beanie_fields
from beanie.odm.utils.encoder import Encoder
from beanie.odm.utils.parsing import parse_obj
from bson import ObjectId
from pydantic import BaseModel, PrivateAttr

from ttl_odm.beanie.policy.predicate import deciding_fields, value_at
from ttl_odm.core.policy import TTL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ttl_odm.beanie import drivers
    from ttl_odm.core.policy import Policy

_COPY: Final = "_ttl_copy"
_READER: Final = "_ttl_reader"
"""The attribute of a class with the function that reads the key and all deciding fields."""
_ALIASES: Final = "_ttl_aliases"
"""The attribute of a class with the stored names of the deciding fields."""
_STAMP: Final = "_ttl_stamp"
"""The attribute of a class with the name of the field that only the server sets."""

_OWN_STATE: Final = "_ttl_own_state"
"""The attribute of a class that says whether code other than Beanie's saves a state."""

_STORED_AS_IS: Final = frozenset({ObjectId, PydanticObjectId, str, int, type(None)})
"""Types of keys that Beanie doesn't encode."""

# A lazy model intercepts attributes in Python, which would take most of the time here.
_attribute_of: Final = object.__getattribute__


class Copy(tuple[object, ...]):
    """The key of a stored document, and its values in the fields that decide when it expires."""

    __slots__ = ()

    is_certain = True
    """False if the write's transaction may be rolled back, or a bulk writer hasn't written yet."""

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, Copy)

    __hash__ = None  # type: ignore[assignment]

    @property
    def key(self) -> object:
        """The key."""
        return self[0]

    def row(self, model: type) -> dict[str, object]:
        """Return the values, as they were in memory, by their stored names."""
        return dict(zip(getattr(model, _ALIASES), self[1:], strict=True))


class _Doubtful(Copy):
    __slots__ = ()
    is_certain = False


_DELETED: Final = (None,)
"""The copy of a document that was deleted. (One that was never read or written has no copy.)"""


def prepare(model: Any, fields: Iterable[str], *, stamp: str | None) -> None:
    """Make the documents of a class remember their values in these fields.

    `stamp` is the field that has no value before the document is stored.
    """
    tops = {field.partition(".")[0] for field in fields}
    deciding = {
        name: info.alias or name
        for name, info in model.model_fields.items()
        if {name, info.alias or name} & tops
    }
    read: Callable[[Mapping[str, object]], tuple[object, ...]] = itemgetter("id", *deciding)
    if not deciding:
        read = _key_alone
    elif any(_changes_in_place(model.model_fields[name].annotation) for name in deciding):
        read = _Unshared(read)
    setattr(model, _READER, read)
    setattr(model, _ALIASES, tuple(deciding.values()))
    setattr(model, _STAMP, stamp)
    owners = [base for base in model.__mro__ if "_save_state" in vars(base)]
    setattr(model, _OWN_STATE, len(owners) > 2)  # noqa: PLR2004 (the mixin's, and Beanie's)
    # Not declared in the mixin, whose `model_post_init` would then hide the user's own.
    model.__private_attributes__.setdefault(_COPY, PrivateAttr(default=None))


def keeps_state(model: type[Document]) -> bool:
    """Return whether the state of a class's documents is saved, by Beanie or by other code."""
    settings = model._document_settings
    return settings is None or settings.use_state_management or getattr(model, _OWN_STATE, True)


def remember(document: Document, *, is_certain: bool = True, **known: object) -> None:
    """Note that a document is stored, with its values in memory, or those of `known`.

    An uncertain copy stays uncertain if it is noted again without a change.
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


def forget(document: Document) -> None:
    """Note that a document was deleted."""
    if getattr(type(document), _READER, None) is not None:
        _attribute_of(document, "__pydantic_private__")[_COPY] = Copy(_DELETED)


def copy_of(document: Document) -> Copy | None:
    """Return what a document remembers of the stored document; None if it was never stored.

    A document that was parsed lazily still has what was read. A document without a copy, from JSON
    or the driver, counts as stored if it has the stamp that only stored documents get.
    """
    model, private, key = type(document), document.__pydantic_private__ or {}, document.id
    read = getattr(model, _READER, None)
    if read is None or key is None:
        return None
    copy: Copy | None = private.get(_COPY)
    if copy is not None:
        return copy if copy.key == key else None
    stored: Mapping[str, object] = private.get("_store") or {}
    if stored and stored.get("_id") in (key, key_of(document)):
        return Copy((key, *(stored.get(alias) for alias in getattr(model, _ALIASES))))
    stamp: str | None = getattr(model, _STAMP)
    return None if stamp is None or getattr(document, stamp) is None else Copy(read(vars(document)))


def key_of(document: Document) -> object:
    """Return a document's key as Beanie stores it and queries for it: a UUID is binary then."""
    key: object = document.id
    encoders = document.get_settings().bson_encoders
    if not encoders and type(key) in _STORED_AS_IS:
        return key
    return Encoder(custom_encoders=encoders).encode(key)


def _parse_linked(model: type[BaseModel], data: object, *args: Any, **kwargs: Any) -> BaseModel:
    """Parse the value of a link: a document, one from ``$lookup``, or a dict of the user's."""
    known = getattr(data, "__pydantic_private__", None) or {}
    copy = known.get(_COPY)
    document = parse_obj(model, data, *args, **kwargs)
    was_read = isinstance(data, dict) and "_id" in data
    if not was_read and getattr(type(document), _READER, None) is not None:
        _attribute_of(document, "__pydantic_private__")[_COPY] = copy
    return document


beanie_fields.parse_obj = _parse_linked  # type: ignore[attr-defined]


def _key_alone(values: Mapping[str, object]) -> tuple[object, ...]:
    return (values["id"],)


class _Unshared:
    """Reads copies of values that may change in place; links never do."""

    def __init__(self, read: Callable[[Mapping[str, object]], tuple[object, ...]]) -> None:
        self._read = read

    def __call__(self, values: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(
            deepcopy(value)
            if isinstance(value, (list, dict, BaseModel)) and not isinstance(value, Document)
            else value
            for value in self._read(values)
        )


def _changes_in_place(annotation: object) -> bool:
    """Return whether values of a type may change in place."""
    if isinstance(annotation, type) and not get_args(annotation):
        return issubclass(annotation, (list, dict, set, BaseModel))
    origin = get_origin(annotation)
    return origin in (list, dict, set) or any(map(_changes_in_place, get_args(annotation)))


def learn(document: Document, row: drivers.Filter, policy: Policy) -> None:
    """Set the fields that decide when a document expires to those of the stored document."""
    created = policy.created if isinstance(policy, TTL) else None  # we never change it
    settings = document.get_settings()
    state, keeps_nulls = document._saved_state, settings.keep_nulls
    for field in deciding_fields(policy):
        name = None if field == created else _attribute(type(document), field)
        if name is None:
            continue
        value = row.get(field)
        if isinstance(value, datetime) and value.tzinfo is None:
            value = value.replace(tzinfo=timezone.utc)
        setattr(document, name, value)
        if state is not None and value is None and not keeps_nulls:
            state.pop(field, None)
        elif state is not None and (field in state or not keeps_nulls):
            state[field] = Encoder(custom_encoders=settings.bson_encoders).encode(value)
    copy = copy_of(document)
    remember(document, is_certain=copy is None or copy.is_certain)


def lifetime_of(document: Document, policy: Policy, copy: Copy | None = None) -> drivers.Document:
    """Return the fields that decide when a document expires, with their values in memory.

    If a copy is given, its values take precedence.
    """
    fields = deciding_fields(policy)
    names = {field: _attribute(type(document), field) for field in fields}
    if None in names.values():  # a field of an embedded document
        dumped = document.model_dump(by_alias=True)
        held = {field: value_at(dumped, field) for field in fields}
    else:
        held = {field: getattr(document, str(name)) for field, name in names.items()}
    if copy is not None:
        row = {
            name: value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value
            for name, value in copy.row(type(document)).items()
        }
        held |= {field: value_at(row, field) for field in fields if field.partition(".")[0] in row}
    settings = document.get_settings()
    if names.get(settings.class_id, "") is None:
        held[settings.class_id] = _class_id(document)
    return {field: _as_stored(value) for field, value in held.items()}


def _class_id(document: Document) -> str | None:
    """Return what Beanie stores as a document's class."""
    settings, own = document.get_settings(), document._class_id
    if own is None and settings.union_doc is not None:
        return settings.union_doc_alias or type(document).__name__
    return own


def _as_stored(value: object) -> object:
    """Return what Beanie stores for a value, as far as it matters for expiry."""
    if isinstance(value, list):
        return [_as_stored(element) for element in value]
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=timezone.utc)
    return value.value if isinstance(value, Enum) else value


def _attribute(model: type[Document], field: str) -> str | None:
    """Return the attribute for a stored field, None if there is none."""
    fields = model.model_fields.items()
    return next((name for name, info in fields if (info.alias or name) == field), None)
