"""A ``manage.py`` with two databases in ``SHOP_FOLDER``, for ``ttl_sweep``.

Three sessions of the one and two of the other have expired.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command, execute_from_command_line

from ttl_odm import ExpireAt


def interrupt_count(execute: Any, sql: str, *call: Any) -> Any:
    """What a connection executes: here ^C is typed while rows are counted."""
    if "count(" in sql.lower():
        signal.raise_signal(signal.SIGINT)
    return execute(sql, *call)


def main() -> None:
    """Fill the databases, unless they exist, and run a command."""
    folder = Path(os.environ["SHOP_FOLDER"])
    rows = {"default": 3, "other": 2}
    settings.configure(
        USE_TZ=True,
        DATABASES={
            alias: {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / f"{alias}.sqlite3"}
            for alias in rows
        },
        INSTALLED_APPS=["ttl_odm.integrations.django", "django.contrib.sessions"],
        TTL_ODM_POLICIES={"sessions.Session": ExpireAt("expire_date")},
    )
    is_new = not (folder / "other.sqlite3").exists()
    django.setup()
    from django.contrib.sessions.models import Session
    from django.db import connections

    past = datetime(2024, 1, 1, tzinfo=timezone.utc)
    for alias in rows if is_new else ():
        call_command("migrate", database=alias, verbosity=0)
        Session.objects.using(alias).bulk_create(
            [Session(session_key=f"{n}", expire_date=past) for n in range(rows[alias])]
        )
    if "INTERRUPTED" in os.environ:
        connections["default"].execute_wrappers.append(interrupt_count)
    if "CALLED" in os.environ:
        call_command(*sys.argv[1:])
    else:
        execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
