"""``manage.py ttl_check``: does a database agree with the models, and is it swept?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.core.management import CommandError
from django.db import connections

from ttl_odm.django.management.findings import findings_of, unsearchable
from ttl_odm.django.management.options import (
    NO_MODELS,
    TTLCommand,
    add_option,
    add_selection,
    labels,
    program,
    stores,
)
from ttl_odm.django.sweep.store import DjangoStore
from ttl_odm.sweeper import StoreError, Sweeper
from ttl_odm.sweeper.command_line import Status
from ttl_odm.sweeper.findings import (
    MAX_AGE,
    Finding,
    findings_dict,
    github_annotations,
    have_failed,
    lines_of,
    look_after,
    of_replica,
    searchable,
)
from ttl_odm.sweeper.options import LEASE_NAME
from ttl_odm.sweeper.text import visible, without_controls

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(TTLCommand):
    """Compare databases with the models, and name the fixes."""

    help = (
        "Compare a database with the models' policies, and check that it is swept. Each finding "
        "comes with the command or statement that fixes it. It changes nothing. Exit status: 0 no "
        "findings or only warnings, 1 errors (with --strict also warnings), 2 usage error."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options."""
        add_selection(parser)
        add_option(parser, "max_age", default=MAX_AGE)
        add_option(parser, "deep", default=False)
        add_option(parser, "strict", default=False)
        add_option(parser, "replica", dest="replicas", choices=tuple(connections), metavar="ALIAS")
        add_option(parser, "lease_name", default=LEASE_NAME)

    def handle(self, **options: Any) -> None:
        """Check one database after the other."""
        if options["max_age"] <= 0:
            raise CommandError(
                "--max-age: give a number of seconds greater than 0.", returncode=Status.USAGE
            )
        failed, selected = False, stores(options)
        if not selected:
            self.stderr.write(NO_MODELS)
        if options["replicas"] and len(selected) > 1:
            raise CommandError(
                "--replica compares with a single database: give one --database.",
                returncode=Status.USAGE,
            )
        for alias, store in selected.items():
            checked = alias
            try:
                findings = _findings(store, alias, options)
                for checked in options["replicas"]:
                    findings += _of_replica(store, checked)
            except StoreError as error:
                self.stderr.write(f"{checked}: {visible(str(error))}")
                failed = True
                continue
            failed |= have_failed(findings, strict=options["strict"])
            self._print(alias, findings, len(labels(store)), as_json=options["as_json"])
        if failed:
            raise SystemExit(Status.FAILED)

    def _print(self, alias: str, findings: list[Finding], checked: int, *, as_json: bool) -> None:
        annotated = github_annotations(findings)
        if as_json:
            content = {"database": alias, **findings_dict(findings, checked)}
            self.stdout.write(json.dumps(content))
        elif annotated is not None:
            self.stdout.write(annotated)
        else:
            lines = "\n".join(map(str, lines_of(findings, checked)))
            self.stdout.write(without_controls(f"{alias}:\n{lines}"))


def _findings(store: DjangoStore, alias: str, options: dict[str, Any]) -> list[Finding]:
    findings = findings_of(store, alias, deep=options["deep"])
    unread = unsearchable(findings)
    targets = {
        table: label
        for table, label in searchable(labels(store), findings).items()
        if table not in unread
    }
    sweeper = Sweeper(store, lease_name=options["lease_name"])
    plan = look_after(targets, sweeper.lease_name, options["max_age"], is_clocked=True)
    findings += sweeper.carry_out(plan)
    return [finding.for_program(program(alias, options)) for finding in findings]


def _of_replica(store: DjangoStore, alias: str) -> list[Finding]:
    """Compare the clock of a replica with that of its primary."""
    replica = DjangoStore(alias, [])
    if replica.backend != store.backend:
        raise CommandError(
            f"--replica {alias}: it isn't of the database's kind.", returncode=Status.USAGE
        )
    server = replica.server()  # which also connects, before the clocks are compared
    before, now, after = store.now(), replica.now(), store.now()
    return of_replica(alias, now, (before, after), server)
