"""What `ttl-odm check` looks at in MongoDB: TTL indexes, units, strays, and forgotten classes.

A class is forgotten if the documents of its collection expire, but the application doesn't declare
it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bson import json_util

from ttl_odm.beanie import find_strays
from ttl_odm.beanie.gate.handle import sign_of_ttl
from ttl_odm.beanie.indexes.changes import Aim, check_clustered
from ttl_odm.beanie.indexes.ensure import check_archive
from ttl_odm.beanie.indexes.strays import Inconsistency
from ttl_odm.beanie.policy import ttl_indexes
from ttl_odm.beanie.policy.bindings import binding_of, collection_of, policy_of, registry_of
from ttl_odm.beanie.policy.commands import (
    BUILD,
    details_of,
    first_batch,
    indexes_and_builds_of,
    run,
)
from ttl_odm.beanie.policy.rules import dependents, rules_below
from ttl_odm.beanie.policy.sources import IndexedSource
from ttl_odm.cli.errors import in_one_line
from ttl_odm.cli.extensions import mongodb_findings
from ttl_odm.core.policy import TTL, ExpireAt, instant_field
from ttl_odm.core.values import MAX_TTL, NEVER
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.inspection.readers.mongodb import misread
from ttl_odm.sweeper.findings import AHEAD, WRONG_UNIT, Finding, Severity
from ttl_odm.sweeper.units import FIRST_INSTANT, LEAST_MILLISECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.beanie.drivers import Collection, Database, Filter
    from ttl_odm.cli.application import Target

_STEPS: Final = {
    "created": ("missing-index", "is missing"),
    "changed": ("other-seconds", "has other seconds than the default ttl"),
    "removed": ("old-index", "belongs to an earlier policy"),
}
"""By the outcome of a step of `ensure_indexes`: the finding's code and its words for the index."""

_ERRORS: Final = (Inconsistency.TOO_EARLY, Inconsistency.SEVERAL_DATES)


async def check(database: Database, targets: Sequence[Target], *, deep: bool) -> list[Finding]:
    """Check all targets and look for forgotten classes; `deep` reads collections of any size."""
    findings = await _forgotten(database)
    for target in targets:
        findings += await _default(target)
        findings += await _indexes(target)
        findings += await _dependents(target)
        findings += await _units(target)
        findings += await _strays(target, deep=deep)
    return findings + await mongodb_findings(database, targets)


async def _forgotten(database: Database) -> list[Finding]:
    """Report collections whose documents expire although no class with a policy has them."""
    registry, findings = registry_of(database.client), []
    listed = await database.list_collection_names(authorizedCollections=True)
    for name in sorted(listed):
        if registry.entry(database.name, name) is not None:
            continue
        sign = await sign_of_ttl(database[name])
        if sign is not None:
            message = f"reads return expired documents, and writes set no _ts: {sign}"
            fix = (
                "pass its class to init_beanie() and --app; if it no longer has a ttl: "
                "await ensure_indexes(...) for the class"
            )
            findings.append(Finding(Severity.WARNING, "forgotten-class", name, message, fix))
    return findings


async def _default(target: Target) -> list[Finding]:
    """Report problems of a default that isn't in code."""
    binding = binding_of(target.entity)
    if binding is None or not isinstance(binding.source, IndexedSource):
        return []
    collection = collection_of(target.entity)
    return await binding.source.check(collection, target.name, target.model)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A collection whose dependents are checked."""

    target: Target
    collection: Collection

    def warning(self, code: str, message: str, fix: str) -> Finding:
        """Return a finding about something that works badly."""
        return Finding(Severity.WARNING, code, self.target.name, message, fix)

    def wrong_index(self, error: TTLConfigurationError, model: str) -> Finding:
        """Return a finding about an index that contradicts the declaration of a class."""
        return _wrong_index(self.target, error, model)


async def _dependents(target: Target) -> list[Finding]:
    """Ask the extensions about documents that are deleted along with a target's."""
    collection = collection_of(target.entity)
    if not rules_below(collection):
        return []
    checked = _Checked(target, collection)
    return [finding for extension in dependents for finding in await extension.check(checked)]


async def _indexes(target: Target) -> list[Finding]:
    collection = collection_of(target.entity)
    binding = registry_of(collection.database.client).find(
        collection.database.name, collection.name
    )
    if binding is None or binding.backend != "mongodb":
        return []
    details = await details_of(collection)
    if details.get("type") == "timeseries":
        return []
    policy = binding.policy
    aim = Aim(
        collection=collection.name,
        indexes=ttl_indexes.mongodb_indexes(policy, binding.purge, binding.scope),
        declared=policy,
        rebuild=False,
        can_change=True,
    )
    fix = f"await ensure_indexes({target.model})"
    rebuild = f"await ensure_indexes({target.model}, rebuild=True)"
    existing = await indexes_and_builds_of(collection, binding.backend)
    findings: list[Finding] = []
    try:
        await check_archive(collection, binding)
    except TTLConfigurationError as error:
        findings.append(_wrong_index(target, error, target.model))
    try:
        check_clustered(details.get("options", {}), collection.name, policy)
        steps = list(aim.steps(existing))
    except TTLConfigurationError as error:
        return [*findings, _wrong_index(target, error, target.model)]
    building = {index["name"] for index in existing if BUILD in index}
    findings += [
        Finding(
            Severity.ERROR,
            code,
            target.name,
            f"index {name} {'is still being built' if name in building else state}",
            _in_mongosh(step.command) if target.model is None else fix,
        )
        for step in steps
        for code, state in [_STEPS[step.outcome]]
        for name in step.names
    ]
    for name in aim.without_scope(existing):
        message = (
            f"index {name} doesn't begin with {binding.scope}, so each sweep reads all "
            "documents older than the shortest stored default"
        )
        findings.append(Finding(Severity.ERROR, "wrong-index", target.name, message, rebuild))
    return findings


def _in_mongosh(command: Filter) -> str:
    """Return a command as it is typed in mongosh, for a target without a class."""
    text = json_util.dumps(command, json_options=json_util.RELAXED_JSON_OPTIONS)
    if '{"$date"' in text:
        text = f"EJSON.parse({json.dumps(text)})"
    return f"db.runCommand({text})"


def _wrong_index(target: Target, error: TTLConfigurationError, model: str | None) -> Finding:
    message = in_one_line(error)
    if model is None:
        fix = "drop that index, if nothing else needs it; ttl-odm check then shows the right one"
        return Finding(Severity.ERROR, "wrong-index", target.name, message, fix)
    fix = f"await ensure_indexes({model}, rebuild=True)"
    if "rebuild=True" not in message:
        fix = f"drop or declare it; then await ensure_indexes({model})"
    return Finding(Severity.ERROR, "wrong-index", target.name, message, fix)


async def _units(target: Target) -> list[Finding]:
    """Report documents' own ttls that aren't in seconds."""
    collection = collection_of(target.entity)
    policy = policy_of(target.entity)
    wrong = await misread(collection, policy)
    if wrong is None or not isinstance(policy, TTL):
        return []
    own, documents = policy.override, f"db[{collection.name!r}]"
    if wrong.unit is None:
        change = f"{{{own}: {{$gte: {FIRST_INSTANT}}}}}, {{$unset: {{{own}: 1}}}}"
    else:
        seconds = f"{{$toInt: {{$divide: ['${own}', 1000]}}}}"
        change = f"{{{own}: {{$gte: {LEAST_MILLISECONDS}}}}}, [{{$set: {{{own}: {seconds}}}}}]"
    severity = Severity.ERROR if wrong.is_most else Severity.WARNING
    message = f"{wrong.message}; correct the program that writes them first"
    return [
        Finding(severity, WRONG_UNIT, target.name, message, f"{documents}.updateMany({change})")
    ]


async def _strays(target: Target, *, deep: bool) -> list[Finding]:
    collection = collection_of(target.entity)
    rows = (await run(collection, {"count": collection.name}))["n"]  # past the gate
    if not deep and rows > SMALL:
        return [
            Finding(
                Severity.SKIPPED,
                "strays",
                target.name,
                "the collection is big; --deep finds what other programs left in it",
                f"ttl-odm check --deep --model {target.model}",
            )
        ]
    report = await find_strays(target.entity)
    findings = [
        Finding(
            Severity.ERROR if strays.kind in _ERRORS else Severity.WARNING,
            strays.kind.name.lower().replace("_", "-"),
            target.name,
            f"{strays.count:,} documents: {strays.kind.value} (such as "
            f"{', '.join(map(repr, strays.examples))})",
            _fix_for(strays.kind, target, collection.name),
        )
        for strays in report.found
    ]
    return [*findings, *await _future(target, collection)]


def _fix_for(kind: Inconsistency, target: Target, name: str) -> str:
    """Return how to repair documents: by ttl_odm, or in mongosh by what they may have meant."""
    if kind.is_repairable:
        return f"await repair_strays({target.model or '...'})"
    policy, documents = policy_of(target.entity), f"db[{name!r}]"
    if kind is Inconsistency.INVALID_TTL and isinstance(policy, TTL):
        own = policy.override
        numbers = f"{{{own}: {{$type: ['int', 'long', 'double'], $gte: 1, $lte: {MAX_TTL}}}}}"
        wrong = f"{{$nor: [{{{own}: null}}, {{{own}: {NEVER}}}, {numbers}]}}"
        return f"{documents}.updateMany({wrong}, {{$unset: {{{own}: 1}}}})"
    field = instant_field(policy)
    undated = f"{{{field}: {{$not: {{$type: 'date'}}}}}}"
    if kind is Inconsistency.UNDATED and not isinstance(policy, ExpireAt):
        return f"{documents}.updateMany({undated}, [{{$set: {{{field}: '$$NOW'}}}}])"
    several = f"{{{field}: {{$type: 'array'}}}}"
    which = undated if kind is Inconsistency.UNDATED else several
    return f"{documents}.find({which})  (set a single date where they should expire)"


async def _future(target: Target, collection: Collection) -> list[Finding]:
    """Report documents whose lifetime is counted from a date in the future."""
    policy = policy_of(target.entity)
    if isinstance(policy, ExpireAt) or policy.unit is not None:
        return []
    field = instant_field(policy)
    latest = {"$add": ["$$NOW", AHEAD * 1000]}
    is_ahead = {"$and": [{"$eq": [{"$type": f"${field}"}, "date"]}, {"$gt": [f"${field}", latest]}]}
    pipeline = [{"$match": {"$expr": is_ahead}}, {"$count": "n"}]
    command = {"aggregate": collection.name, "pipeline": pipeline, "cursor": {}}
    batch = await first_batch(collection, command)
    if not batch:
        return []
    message = (
        f"documents whose {field} is more than an hour in the future, so they live that much "
        f"longer: {batch[0]['n']:,}"
    )
    since = f"{{$expr: {{$gt: ['${field}', {{$add: ['$$NOW', {AHEAD * 1000}]}}]}}}}"
    fix = f"db[{collection.name!r}].updateMany({since}, [{{$set: {{{field}: '$$NOW'}}}}])"
    return [Finding(Severity.WARNING, "future-rows", target.name, message, fix)]
