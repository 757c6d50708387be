"""Celery's database result backend under ttl_odm: results end ``result_expires`` after the task.

Run it: ``python examples/adoption/celery_results.py``.

Celery deletes old results with ``celery beat`` once a day, in one statement for each table, and
until then a result that is over is still served. With the policy it is over on time.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from celery import Celery
from celery.backends.database.models import Task, TaskSet
from sqlalchemy import create_engine, text

from ttl_odm import ExpireAfter
from ttl_odm.sqlalchemy import disable, enable
from ttl_odm.sweeper import Sweeper

RESULTS = (Task, TaskSet)


def make_app(url: str, result_expires: float | timedelta | None = timedelta(days=1)) -> Celery:
    """Make an application whose results are in a database."""
    app = Celery("shop", broker="memory://", backend=f"db+{url}")
    app.conf.result_expires = result_expires
    if url.startswith("postgresql"):
        # There Celery's naive dates are in the time zone of the connection: let it be UTC.
        app.conf.database_engine_options = {"connect_args": {"options": "-c timezone=utc"}}

    # The adoption. On other databases the dates are in the time zone of the application.
    if app.conf.result_expires:  # with 0 and None, Celery keeps results for ever
        zone = app.conf.timezone or "UTC"
        for model in RESULTS:
            enable(model, ExpireAfter("date_done", app.conf.result_expires, timezone=str(zone)))

    return app


def state_of(app: Celery, task_id: str) -> str:
    """Return what Celery tells of a task."""
    backend: Any = app.backend
    meta = backend.get_task_meta(task_id, cache=False)
    return f"{meta['status']} {meta['result']}"


def main() -> None:
    """Let a result expire, store it again, and sweep."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'results.sqlite3')}"
        app = make_app(url)
        backend: Any = app.backend
        for task_id in ("sum", "product"):
            backend.store_result(task_id, 6, "SUCCESS")
        print("sum:", state_of(app, "sum"))
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE celery_taskmeta SET date_done = '2020-01-01 00:00:00.000000'")
            )
        print("after its end:", state_of(app, "sum"))
        backend.store_result("sum", 7, "SUCCESS")
        print("stored again:", state_of(app, "sum"))
        print(Sweeper(engine, RESULTS).run_once())
        engine.dispose()
    for model in RESULTS:
        disable(model)


if __name__ == "__main__":
    main()
