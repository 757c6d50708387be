"""``ttl-odm inspect``: read a schema, propose policies, print what to paste. It changes nothing."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from ttl_odm.cli import urls
from ttl_odm.cli.application import Application, answer
from ttl_odm.cli.connect import load
from ttl_odm.cli.errors import UsageError, readable_errors
from ttl_odm.cli.options import json_option
from ttl_odm.cli.output import Output
from ttl_odm.core import ExpireAt, expires_at
from ttl_odm.inspection import Proposal, Table, Verdict, as_source, declarations, propose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from ttl_odm.core.policy import Unit

_URL_NEEDED: Final = (
    "Say what to inspect: a URL such as postgresql://user@host/database, or --models "
    "module:Base, or both."
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was read: a verdict for each table, at a database's now.

    The URL, as it may be printed, is None where only models were read; the dialect for MongoDB.
    """

    database: str | None
    now: datetime
    verdicts: list[Verdict]
    dialect: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""

        def plain(proposal: Proposal) -> dict[str, Any]:
            field = proposal.field
            return {
                "declaration": as_source(proposal.policy),
                "confidence": proposal.confidence.name.lower(),
                "reasons": list(proposal.reasons),
                "cautions": list(proposal.cautions),
                "field": field.name,
                "is_indexed": field.is_indexed,
                "index": _index(proposal, self.dialect),
                "lowest": field.lowest,
                "highest": field.highest,
                "looked_at": proposal.looked_at,
                "expired": proposal.expired,
            }

        return {
            "database": self.database,
            "now": self.now.isoformat(),
            "tables": [
                {
                    "table": verdict.table.name,
                    "model": verdict.table.model,
                    "rows": verdict.table.rows,
                    "rows_are_estimated": verdict.table.is_estimated,
                    "proposal": verdict.proposal and plain(verdict.proposal),
                    "remarks": list(verdict.remarks),
                }
                for verdict in self.verdicts
            ],
        }


@click.command()
@click.argument("url", required=False, envvar="TTL_ODM_URL")
@click.option(
    "--models",
    metavar="MODULE:NAME",
    help="A declarative base, a MetaData, a model, or a list of models: look at their tables only, "
    "and name their classes. Without a URL, judge by their columns alone.",
)
@click.option("--schema", help="The schema to look at, in place of the connection's own.")
@json_option
def inspect(url: str | None, models: str | None, schema: str | None, *, as_json: bool) -> None:
    """Propose policies for the tables of a database that look as if their rows expire.

    Reads names, types, indexes, sizes and a few hundred rows of each table, in a transaction that
    can only read, and prints the declarations to paste with the reasons for each. It changes
    nothing. A user that may read the tables is enough.
    """
    if url is None and models is None:
        raise UsageError(_URL_NEEDED)
    declared = None if models is None else load(models, "--models")
    with readable_errors(), Console(stderr=True).status("Reading the schema..."):
        if url is None:
            from ttl_odm.inspection.readers.sql import tables_of  # noqa: PLC0415 (needs the extra)

            inspection = _judged(None, datetime.now(timezone.utc), tables_of(declared))
        elif urls.is_mongodb(url):
            name = urls.mongodb_name(url)
            from pymongo import MongoClient  # noqa: PLC0415 (needs the extra)

            from ttl_odm.inspection.readers import mongodb  # noqa: PLC0415

            classes = None if declared is None else mongodb.classes_of(declared)
            client: MongoClient[Any]
            with MongoClient(url, tz_aware=True, serverSelectionTimeoutMS=5_000) as client:
                collections = mongodb.collections(client[name], models=classes)
                inspection = _judged(url, mongodb.now(client[name]), collections)
        else:
            inspection = _of_sql(url, declared, schema)
    output = Output(as_json=as_json)
    if as_json:
        output.json(inspection.to_dict())
    else:
        _print(inspection, output)


def _judged(
    url: str | None, now: datetime, tables: Iterable[Table], dialect: str | None = None
) -> Inspection:
    verdicts = [propose(table, now) for table in tables]
    return Inspection(None if url is None else urls.public_url(url), now, verdicts, dialect)


def _of_sql(url: str, models: Any, schema: str | None) -> Inspection:
    engine: Any = urls.sql_engine(url)
    from ttl_odm.inspection.readers import sql  # noqa: PLC0415 (needs the extra)

    classes = None if models is None else sql.classes_of(models)

    def read(connection: Connection) -> Inspection:
        with sql.reading_only(connection):
            now = sql.now(connection)
            tables = sql.tables(connection, schema=schema, models=classes)
            return _judged(url, now, tables, connection.dialect.name)

    async def work() -> Inspection:
        try:
            return await Application(engine).ask(read)
        finally:
            await answer(engine.dispose())

    return asyncio.run(work())


def _print(inspection: Inspection, output: Output) -> None:
    verdicts = inspection.verdicts
    proposals = [verdict.proposal for verdict in verdicts if verdict.proposal is not None]
    for verdict in sorted(verdicts, key=lambda verdict: verdict.proposal is None):
        if verdict.proposal is not None:
            _print_proposal(verdict.proposal, inspection.dialect, output)
        elif verdict.remarks:
            output.line(_head(verdict.table), style="bold")
        else:
            continue
        for remark in verdict.remarks:
            output.line(remark, indent=2, mark="! ", style="yellow")
        output.line()
    is_mongodb = inspection.database is not None and urls.is_mongodb(inspection.database)
    what = "collection" if is_mongodb else "table"
    output.line(
        f"{len(proposals)} of {len(verdicts):,} {what}s look as if their rows expire. "
        "Nothing was changed."
        if verdicts
        else f"There are no {what}s that this user may read."
    )
    if not proposals:
        return
    output.line("To paste, after you have looked at each:", style="bold")
    output.line()
    output.code(declarations(proposals))
    if inspection.database is not None:
        first = proposals[0]
        policy = shlex.quote(as_source(first.policy))
        output.line()
        output.line("What each would expire, and when, before you paste it:", style="bold")
        output.code(f"ttl-odm plan {shlex.quote(first.table.name)} --policy {policy} --url ...")


def _head(table: Table) -> str:
    rows = "size unknown" if table.rows is None else f"{table.rows:,} rows"
    estimated = ", estimated" if table.is_estimated else ""
    model = f" ({table.model})" if table.model else ""
    return f"{table.name}{model}: {rows}{estimated}"


def _print_proposal(proposal: Proposal, dialect: str | None, output: Output) -> None:
    output.line(f"{_head(proposal.table)} - {proposal.confidence.value}", style="bold")
    output.line(as_source(proposal.policy), style="cyan", indent=2)
    for reason in proposal.reasons:
        output.line(reason, indent=2, mark="+ ")
    for caution in proposal.cautions:
        output.line(caution, indent=2, mark="! ", style="yellow")
    share = "no rows to try it on"
    if proposal.looked_at:
        all_read = proposal.looked_at == proposal.table.rows and not proposal.table.is_estimated
        of = "" if all_read else " that were looked at"
        share = (
            f"{proposal.expired:,} of {proposal.looked_at:,} rows{of} "
            f"({proposal.expired / proposal.looked_at:.0%}) would be expired at once"
        )
    lines, field, unit = [share], proposal.field, proposal.policy.unit
    if field.lowest is not None:
        values = f"from {_value(field.lowest, unit)} to {_value(field.highest, unit)}"
        lines.append(f"{field.name} {values}")
    index = _index(proposal, dialect)
    if index is not None:
        lines.append(f"no index begins with {field.name}; the sweeper wants: {index}")
    for line in lines:
        output.line(line, indent=2, mark="  ")


def _value(value: object, unit: Unit | None) -> str:
    instant = expires_at(ExpireAt("_", unit=unit), instant=value) if unit else value
    return f"{instant:%Y-%m-%d %H:%M}" if isinstance(instant, datetime) else str(value)


def _index(proposal: Proposal, dialect: str | None) -> str | None:
    """The statement for the index that the sweeper needs; None where there is one, or can't be."""
    if proposal.field.is_indexed or proposal.table.is_collection or dialect is None:
        return None
    from ttl_odm.inspection.readers.sql import index_for  # noqa: PLC0415 (needs the extra)

    table = proposal.table
    return index_for(table.name, proposal.field.name, dialect, table.schema)
