"""``ttl-odm inspect``: read a schema and propose policies. It changes nothing.

`next_steps` prints what to do with them.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from ttl_odm.cli import next_steps, urls
from ttl_odm.cli.application import Application, answer, in_loop
from ttl_odm.cli.connect import load
from ttl_odm.cli.errors import FailedError, UsageError, in_one_line, readable_errors
from ttl_odm.cli.next_steps import Place
from ttl_odm.cli.options import json_option
from ttl_odm.cli.output import Output
from ttl_odm.cli.tables import as_file
from ttl_odm.core import ExpireAt, expires_at
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.forecast import Estimate
from ttl_odm.forecast.text import tried
from ttl_odm.inspection import Proposal, Table, Verdict, as_source, propose
from ttl_odm.sweeper.text import counted, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from ttl_odm.core.policy import Unit

_URL_NEEDED: Final = (
    "Give something to inspect: a URL such as postgresql://user@host/database, or --models "
    "module:Base, or both."
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of `inspect`: a verdict for each table.

    Attributes:
        database: The URL in a form that may be printed; None if only models were read.
        now: The database's time.
        verdicts: The verdicts, in the order of the tables.
        dialect: SQLAlchemy's name of the dialect; None for MongoDB and for models only.
    """

    database: str | None
    now: datetime
    verdicts: list[Verdict]
    dialect: str | None = None

    @property
    def proposals(self) -> list[Proposal]:
        """The proposals, in the order of the tables."""
        return [verdict.proposal for verdict in self.verdicts if verdict.proposal is not None]

    def to_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""

        def plain(proposal: Proposal) -> dict[str, object]:
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
                "rows": proposal.rows,
                "looked_at": proposal.looked_at,
                "expired": proposal.expired,
                "expired_margin": proposal.margin,
            }

        return {
            "database": self.database,
            "now": self.now.isoformat(),
            "tables": [
                {
                    "table": verdict.table.name,
                    "model": verdict.table.django or verdict.table.model,
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
    help="A declarative base, a MetaData, a model, or a list of models: inspect only their tables, "
    "and name their classes. For Django: django.apps:apps, with DJANGO_SETTINGS_MODULE set. "
    "Without a URL, only their columns are inspected.",
)
@click.option("--schema", help="The schema to inspect (default: the connection's own).")
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the policies to a new TOML file, so that ttl-odm sweep --config FILE needs no "
    "models.",
)
@json_option
def inspect(
    url: str | None,
    models: str | None,
    schema: str | None,
    *,
    write: Path | None,
    as_json: bool,
) -> None:
    """Propose policies for tables whose rows look as if they expire.

    Reads names, types, keys, indexes, sizes and a few hundred rows of each table, and counts what
    each proposal would expire, as plan does, all in a read-only transaction. Then it prints the
    policies with the reasons for each, as settings for --write; with --models as Python to paste.
    It changes nothing in the database. Read access to the tables is enough.
    """
    if url is None and models is None:
        raise UsageError(_URL_NEEDED)
    declared = None if models is None else load(models, "--models")
    with Console(stderr=True).status("Reading the schema..."):
        if url is None:
            now = datetime.now(timezone.utc)
            with readable_errors():
                verdicts = [propose(table, now) for table in _described(declared)]
            inspection = Inspection(None, now, verdicts)
        elif urls.is_mongodb(url):
            inspection = in_loop(partial(_of_mongodb, url, declared))
        else:
            inspection = in_loop(partial(_of_sql, url, declared, schema))
    proposals = inspection.proposals
    if write is not None and proposals:
        _write(proposals, url, write)
    output = Output(as_json=as_json)
    if as_json:
        output.json(inspection.to_dict())
        return
    _print(inspection, output, durations=models is None)
    if proposals and models is not None:
        next_steps.for_models(output, proposals, url)
    elif proposals and write is None:
        options = [] if schema is None else ["--schema", schema]
        next_steps.for_tables(output, proposals, url, options)
    if write is not None and proposals:
        next_steps.after_writing(output, proposals, url, write)
    elif write is not None:
        output.line(f"There is nothing to write, so {write} was not written.", style="bold")


def _write(proposals: Sequence[Proposal], url: str | None, file: Path) -> None:
    """Write the proposals to a new file; never overwrite one."""
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(as_file(proposals, Place.of(url).value))
    except FileExistsError as error:
        raise UsageError(f"--write {str(file)!r}: the file exists; name a new one.") from error
    except OSError as error:
        raise FailedError(f"--write {str(file)!r}: {error.strerror}.") from error


def _described(models: object) -> Iterable[Table]:
    """Return the tables that models declare, or those of a Django project for its registry."""
    if type(models).__module__ == "django.apps.registry":
        from ttl_odm.inspection.readers import django  # noqa: PLC0415 (needs the extra)

        return django.tables_of()
    classes = models if isinstance(models, (list, tuple, set)) else [models]
    are_documents = any(hasattr(model, "get_settings") for model in classes)
    if are_documents or importlib.util.find_spec("sqlalchemy") is None:
        raise UsageError(
            "--models alone works for SQLAlchemy models only, by their columns. For Beanie "
            "documents give the database URL too: ttl-odm inspect mongodb://host/database --models "
            "..."
        )
    from ttl_odm.inspection.readers.models import tables_of  # noqa: PLC0415 (needs the extra)

    return tables_of(models)


async def _of_mongodb(url: str, models: object) -> Inspection:
    name = urls.mongodb_name(url)
    from pymongo import MongoClient  # noqa: PLC0415 (needs the extra)
    from pymongo.errors import PyMongoError  # noqa: PLC0415

    from ttl_odm.forecast import mongodb as counting  # noqa: PLC0415
    from ttl_odm.inspection.readers import mongodb  # noqa: PLC0415

    classes = None if models is None else mongodb.classes_of(models)
    client: MongoClient[Any]
    with MongoClient(url, tz_aware=True, **urls.mongodb_options(url)) as client:
        now = mongodb.now(client[name])
        verdicts = [
            propose(table, now) for table in mongodb.collections(client[name], models=classes)
        ]
    counter = urls.mongodb_client(url)
    try:
        for position, verdict in enumerate(verdicts):
            if (proposal := verdict.proposal) is not None:
                collection = counter[name][proposal.table.name]
                try:
                    measured = await counting.measure(collection, None, proposal.policy)
                    proposal = tried(proposal, measured)
                except (PyMongoError, TTLConfigurationError) as error:
                    doubt = f"can't be tried on the documents: {in_one_line(error)}"
                    proposal = proposal.doubted(doubt)
                verdicts[position] = replace(verdict, proposal=proposal)
    finally:
        await answer(counter.close())
    return Inspection(urls.public_url(url), now, verdicts)


async def _of_sql(url: str, models: object, schema: str | None) -> Inspection:
    engine = urls.sql_engine(url)
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 (needs the extra)

    from ttl_odm.forecast.sql import try_out  # noqa: PLC0415
    from ttl_odm.inspection.readers import sql  # noqa: PLC0415

    declared = None if models is None else {table.name: table for table in _described(models)}

    def judge(connection: Connection, table: Table, now: datetime) -> Verdict:
        verdict = propose(table, now)
        if (proposal := verdict.proposal) is None:
            return verdict
        name = table.name if table.schema is None else table.name[len(table.schema) + 1 :]
        try:
            with connection.begin_nested():
                measured = try_out(connection, name, proposal.policy, schema=table.schema)
            proposal = tried(proposal, measured)
        except (DBAPIError, TTLConfigurationError) as error:
            proposal = proposal.doubted(f"can't be tried on the rows: {in_one_line(error)}")
        return replace(verdict, proposal=proposal)

    def read(connection: Connection) -> Inspection:
        with sql.reading_only(connection):
            now = sql.now(connection)
            verdicts = [
                judge(connection, table, now)
                for table in sql.tables(connection, schema=schema, models=declared)
            ]
            return Inspection(urls.public_url(url), now, verdicts, connection.dialect.name)

    try:
        return await Application(engine).ask(read)
    finally:
        await answer(engine.dispose())


def _print(inspection: Inspection, output: Output, *, durations: bool) -> None:
    verdicts = inspection.verdicts
    for verdict in sorted(verdicts, key=lambda verdict: verdict.proposal is None):
        if verdict.proposal is not None:
            _print_proposal(verdict.proposal, inspection.dialect, output, durations=durations)
        elif verdict.remarks:
            output.line(_head(verdict.table), style="bold")
        else:
            continue
        for remark in verdict.remarks:
            output.line(remark, indent=2, mark="! ", style="yellow")
        output.line()
    is_mongodb = inspection.database is not None and urls.is_mongodb(inspection.database)
    kind = "collection" if is_mongodb else "table"
    output.line(
        f"{len(inspection.proposals):,} of {len(verdicts):,} {kind}s look as if their rows expire. "
        "Nothing in the database was changed."
        if verdicts
        else f"There are no {kind}s that this user may read."
    )


def _head(table: Table) -> str:
    rows = "size unknown" if table.rows is None else counted(table.rows, "row")
    estimated = ", estimated" if table.is_estimated else ""
    name = table.django or table.model
    model = f" ({visible(name)})" if name else ""
    return f"{visible(table.name)}{model}: {rows}{estimated}"


def _print_proposal(
    proposal: Proposal, dialect: str | None, output: Output, *, durations: bool
) -> None:
    output.line(f"{_head(proposal.table)} - {proposal.confidence.value}", style="bold")
    output.line(as_source(proposal.policy, durations=durations), style="cyan", indent=2)
    for reason in proposal.reasons:
        output.line(reason, indent=2, mark="+ ")
    for caution in proposal.cautions:
        output.line(caution, indent=2, mark="! ", style="yellow")
    share = "no rows to try it on"
    if proposal.looked_at:
        rows = f"{Estimate(proposal.expired, proposal.margin)} of {proposal.rows:,} rows"
        if proposal.margin:
            rows = f"{rows}, estimated from {proposal.looked_at:,},"
        share = f"{rows} ({proposal.expired / proposal.rows:.1%}) would be expired at once"
    lines, field, unit = [share], proposal.field, proposal.policy.unit
    if field.lowest is not None:
        values = f"from {_value(field.lowest, unit)} to {_value(field.highest, unit)}"
        lines.append(f"{field.name} {values}{' in a sample' if field.is_sampled else ''}")
    index = _index(proposal, dialect)
    if index is not None:
        lines.append(f"no index begins with {field.name}; the sweeper wants: {index}")
    for line in lines:
        output.line(line, indent=2, mark="  ")


def _value(value: object, unit: Unit | None) -> str:
    instant = expires_at(ExpireAt("_", unit=unit), instant=value) if unit else value
    return f"{instant:%Y-%m-%d %H:%M}" if isinstance(instant, datetime) else str(value)


def _index(proposal: Proposal, dialect: str | None) -> str | None:
    """Return the statement for the index that the sweeper needs; None if it exists or can't."""
    if proposal.field.is_indexed or proposal.table.is_collection or dialect is None:
        return None
    from ttl_odm.inspection.readers.sql import index_for  # noqa: PLC0415 (needs the extra)

    table = proposal.table
    return index_for(table.name, proposal.field.name, dialect, table.schema)
