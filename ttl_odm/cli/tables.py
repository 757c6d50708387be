"""Tables and collections without a model: their policies are in a settings file, or typed.

``[tool.ttl_odm.tables]`` has a policy for each, as a model would declare it and `inspect` prints
it, or a TOML table with the policy and further options of `enable`. ``--table NAME --policy
POLICY`` does the same for one command.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import ttl_odm
from ttl_odm.cli.errors import UsageError, did_you_mean
from ttl_odm.errors import TTLError
from ttl_odm.forecast.parser import parse_policy
from ttl_odm.inspection import Confidence, as_source
from ttl_odm.sweeper.hooks import Archive
from ttl_odm.sweeper.text import is_shown, visible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    from sqlalchemy import Connection, Inspector, MetaData
    from sqlalchemy import Table as SQLTable

    from ttl_odm.core.policy import Policy
    from ttl_odm.inspection import Proposal

SECTION: Final = "tables"
"""The section's key in ``[tool.ttl_odm]``."""

REFLECTED: Final = "ttl_odm.reflected"
"""Key in ``MetaData.info`` of tables that were read from the database, without models."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_KEYS: Final = ("policy", "purge", "sweep", "partition", "archive", "archived_at")


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a table or collection.

    Attributes:
        name: Its name in the database, with its schema if it isn't the connection's own.
        policy: Its policy.
        options: The other options, by the keys of the file.
        where: The place of the declaration, for messages.
    """

    name: str
    policy: Policy
    options: Mapping[str, str] = field(default_factory=dict)
    where: str = "--table"

    @classmethod
    def of(cls, name: str, value: object, where: str) -> Declared:
        """Read a policy, or a table with a policy and options.

        Raises:
            UsageError: The value is neither, or has an invalid policy or option.
        """
        where = f"{where} {name!r}"
        entry = {"policy": value} if isinstance(value, str) else value
        if not isinstance(entry, Mapping) or not isinstance(entry.get("policy"), str):
            raise UsageError(f"{where}: give it a policy, as in {name} = 'ExpireAt(\"...\")'.")
        for key, option in entry.items():
            if key not in _KEYS:
                hint = did_you_mean(key, _KEYS) or "."
                raise UsageError(f"{where} has an unknown key {key!r}{hint}")
            if not isinstance(option, str):
                raise UsageError(f"{where}: {key} = {option!r}: give a string.")
        try:
            policy = parse_policy(entry["policy"])
            if "partition" in entry:
                ttl_odm.Partitions(entry["partition"])
        except TTLError as error:
            raise UsageError(f"{where}: {error}") from error
        options = {key: option for key, option in entry.items() if key != "policy"}
        return cls(name, policy, options, where)

    def enabling(self, archive: object) -> dict[str, Any]:
        """Return further arguments for `enable`; `archive` is the table or collection itself."""
        options: dict[str, Any] = {
            key: self.options.get(key) for key in ("purge", "sweep") if key in self.options
        }
        if archive is not None:
            options["archive"] = Archive(archive, self.options.get("archived_at"))
        if "partition" in self.options:
            # The program that creates the partitions goes on creating them.
            options["partition"] = ttl_odm.Partitions(self.options["partition"])
        return options


def of_file(section: object, where: str) -> dict[str, Declared]:
    """Read the declarations under `SECTION` of a file, by their names.

    Raises:
        UsageError: One of them is invalid.
    """
    if not isinstance(section, Mapping):
        raise UsageError(f"{where} must be a table of policies.")
    return {name: Declared.of(name, value, where) for name, value in section.items()}


def as_file(proposals: Sequence[Proposal], url: str = "$DATABASE_URL") -> str:
    """Return a settings file with proposed policies, for `of_file`.

    Policies that aren't certain are comments.

    Args:
        proposals: The proposals of `inspect`.
        url: The database's URL, or ``$`` and the environment variable that has it.
    """
    is_variable = url.startswith("$")
    lines = [
        "# Written by ttl-odm inspect. Check each policy with ttl-odm plan before you sweep.",
        "[tool.ttl_odm]",
        f"url = {_quoted(url)}" + "  # from this environment variable" * is_variable,
        "",
        f"[tool.ttl_odm.{SECTION}]",
    ]
    for proposal in proposals:
        name = proposal.table.name
        key = name if _BARE_KEY.fullmatch(name) else _quoted(name)
        entry = f"{key} = {_text(as_source(proposal.policy, durations=True))}"
        if proposal.confidence is not Confidence.CLEAR:
            doubts = "; ".join(proposal.cautions or proposal.reasons)
            lines.append(f"# {proposal.confidence.value}: {visible(doubts)}")
            entry = f"# {entry}"
        lines.append(entry)
    return "\n".join([*lines, ""])


def _text(value: str) -> str:
    """Return a TOML string, in single quotes if possible, since policies have double quotes."""
    return f"'{value}'" if "'" not in value and value.isprintable() else _quoted(value)


def _quoted(value: str) -> str:
    return "".join(
        character if is_shown(character) else f"\\U{ord(character):08x}"
        for character in json.dumps(value, ensure_ascii=False)
    )


def paired(
    names: Sequence[str], policies: Sequence[str], known: Mapping[str, Declared]
) -> dict[str, Declared]:
    """Pair typed tables and policies: the first ``--policy`` belongs to the first ``--table``.

    Without policies the tables must be in a settings file, whose declarations are `known`.

    Raises:
        UsageError: The numbers of both differ, or the file doesn't have a table.
    """
    if not policies:
        for name in names:
            if name not in known:
                raise UsageError(
                    f"--table {name!r}: give its policy with --policy, such as "
                    "'ExpireAt(\"expires_at\")', or in [tool.ttl_odm.tables]. ttl-odm inspect "
                    "proposes one."
                )
        return {name: known[name] for name in names}
    if len(names) != len(policies) or len(set(names)) != len(names):
        raise UsageError(
            f"--table and --policy: give one policy for each table, not {len(policies)} for "
            f"{len(set(names))}."
        )
    pairs = zip(names, policies, strict=True)
    return {name: Declared.of(name, policy, "--table") for name, policy in pairs}


def enabled_tables(
    connection: Connection, tables: Mapping[str, Declared], ending: AsyncExitStack
) -> list[Any]:
    """Read the tables from the database, and enable their policies until the command ends.

    Raises:
        UsageError: A table isn't there, or can't have its policy.
    """
    from sqlalchemy import MetaData, inspect  # noqa: PLC0415 (needs the extra)

    from ttl_odm.sqlalchemy import disable, enable  # noqa: PLC0415

    # One for all tables: the foreign keys between them decide the order of the sweep.
    inspector, metadata = inspect(connection), MetaData(info={REFLECTED: True})
    enabled = []
    for declared in tables.values():
        table = _read(inspector, metadata, declared.name, declared.where)
        name = declared.options.get("archive")
        archive = None if name is None else _read(inspector, metadata, name, declared.where)
        try:
            enable(table, declared.policy, **declared.enabling(archive))
        except TTLError as error:
            raise UsageError(f"{declared.where}: {error}") from error
        ending.callback(disable, table)
        enabled.append(table)
    return enabled


def _read(inspector: Inspector, metadata: MetaData, full_name: str, where: str) -> SQLTable:
    from sqlalchemy import Table  # noqa: PLC0415 (needs the extra)
    from sqlalchemy.exc import SAWarning  # noqa: PLC0415

    schema, name = find_table(inspector, full_name, where)
    with warnings.catch_warnings():  # about indexes, including ours, and irrelevant types
        warnings.simplefilter("ignore", SAWarning)
        return Table(name, metadata, schema=schema, autoload_with=inspector.bind)


def find_table(inspector: Inspector, full_name: str, where: str) -> tuple[str | None, str]:
    """Return the schema and the name of a table or view of the database.

    Args:
        inspector: Inspects the database.
        full_name: Its name, with or without a schema.
        where: The option with the name, for the error.

    Raises:
        UsageError: There is no such table.
    """
    places: list[tuple[str | None, str]] = [(None, full_name)]
    if "." in full_name:
        places.append((full_name.rpartition(".")[0], full_name.rpartition(".")[2]))
    for schema, name in places:
        if inspector.has_table(name, schema=schema):
            return schema, name
    hint = did_you_mean(full_name, inspector.get_table_names()) or "."
    raise UsageError(f"{where}: the database has no table {full_name!r}{hint}")


def document_classes(tables: Mapping[str, Declared], ending: AsyncExitStack) -> list[Any]:
    """Make a document class for each collection, with its policy until the command ends.

    The caller has to pass them to `init_beanie`.

    Raises:
        UsageError: A collection can't have its policy.
    """
    from ttl_odm.beanie import disable  # noqa: PLC0415 (needs the extra)

    classes = []
    for declared in tables.values():
        classes.append(_document_class(declared))
        ending.callback(disable, classes[-1])
    return classes


def _document_class(declared: Declared) -> Any:
    from beanie import Document  # noqa: PLC0415 (needs the extra)
    from pydantic import ConfigDict  # noqa: PLC0415

    from ttl_odm.beanie import enable  # noqa: PLC0415

    class Collection(Document):
        """A document with any fields."""

        model_config = ConfigDict(extra="allow")
        id: Any = None

        class Settings:
            name = declared.name

    Collection.__name__ = Collection.__qualname__ = declared.name
    # The command line sweeps, so MongoDB's own monitor isn't meant.
    options = {"purge": "sweeper", **declared.enabling(declared.options.get("archive"))}
    try:
        enable(Collection, declared.policy, **options)
    except (TTLError, TypeError) as error:
        raise UsageError(f"{declared.where}: {error}") from error
    return Collection
