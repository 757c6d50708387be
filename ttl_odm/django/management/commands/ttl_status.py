"""``manage.py ttl_status``: what has expired and was not purged yet, and who sweeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.core.management import BaseCommand

from ttl_odm.django.management.options import NO_MODELS, add_option, add_selection, stores
from ttl_odm.sweeper import StoreError
from ttl_odm.sweeper.command_line import Status
from ttl_odm.sweeper.options import LEASE_NAME
from ttl_odm.sweeper.text import age, visible

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from ttl_odm.django.sweep.store import DjangoStore


class Command(BaseCommand):
    """Show each table's expired rows, and the lease."""

    help = (
        "Show what has expired and was not purged yet, and who holds the sweepers' lease. Exit "
        "status: 0 done, 1 a database or a table didn't answer, or --deep found rows, 2 usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options."""
        add_selection(parser)
        add_option(parser, "lease_name", default=LEASE_NAME)
        deep = "Read whole tables: find rows that nobody sees, or will see, and no sweep finds."
        parser.add_argument("--deep", action="store_true", help=deep)

    def handle(self, **options: Any) -> None:
        """Look at one database after the other."""
        failed, selected = False, stores(options)
        if not selected:
            self.stderr.write(NO_MODELS)
        for alias, store in selected.items():
            try:
                content = _read(store, options["lease_name"], is_deep=options["deep"])
            except StoreError as error:
                self.stderr.write(f"{alias}: {visible(str(error))}")
                failed = True
                continue
            failed = failed or any(target["error"] for target in content["targets"])
            if options["as_json"]:
                self.stdout.write(json.dumps({"database": alias, **content}))
            else:
                self._print(alias, content)
        if failed:
            raise SystemExit(Status.FAILED)

    def _print(self, alias: str, content: dict[str, Any]) -> None:
        lease, targets = content["lease"], content["targets"]
        parts = [
            f"{visible(lease['holder'])} is sweeping" if lease["holder"] else "nobody is sweeping"
        ]
        if lease["paused"]:
            parts.append("sweepers are paused")
        ago = lease["last_sweep_ago"]
        parts.append("never swept" if ago is None else f"last swept {age(ago)} ago")
        self.stdout.write(f"{alias}: {', '.join(parts)}")
        names = [visible(target["table"]) for target in targets]
        width = max(map(len, names))
        self.stdout.write(f"  {'table'.ljust(width)}  {'rows':>10}  {'expired':>10}  oldest")
        for name, target in zip(names, targets, strict=True):
            oldest = target["oldest"]
            state = "TTL is off" if target["off"] else age(oldest)
            rows, due = (
                "?" if target[number] is None else f"{target[number]:,}"
                for number in ("rows", "due")
            )
            self.stdout.write(f"  {name.ljust(width)}  {rows:>10}  {due:>10}  {state}")
        for name, target in zip(names, targets, strict=True):
            if target["error"]:
                self.stderr.write(f"{name}: {visible(target['error'])}")


def _read(store: DjangoStore, lease_name: str, *, is_deep: bool) -> dict[str, Any]:
    targets = []
    for table in store.targets():
        due = counted = problem = None
        try:
            due, counted = store.due(table), store.count(table)
            if is_deep:
                problem = "; ".join(store.out_of_reach(table)) or None
        except StoreError as error:
            problem = str(error)
        targets.append(
            {
                "table": table,
                "rows": None if counted is None else counted.rows,
                "due": None if counted is None else counted.due,
                "oldest": None if due is None else due.oldest,
                "off": due is None and counted is not None,
                "error": problem,
            }
        )
    state = store.leases.read(lease_name)
    lease = {
        "holder": state.holder,
        "seconds_left": state.seconds_left,
        "paused": state.paused,
        "last_sweep_ago": state.recorded_ago,
    }
    return {"targets": targets, "lease": lease}
