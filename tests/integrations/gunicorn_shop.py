"""The application that tests/integrations/test_gunicorn.py serves, on the database it is told."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import insert
from sqlalchemy.orm import Mapped, mapped_column

from ttl_odm.integrations.flask import TTL
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from ttl_odm.sweeper import Purged

db: Any = SQLAlchemy()


class Cart(TTLMixin, db.Model):
    __tablename__ = "carts"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Batch(db.Model):
    """A batch that was purged, and which process did it."""

    __tablename__ = "batches"

    id: Mapped[int] = mapped_column(primary_key=True)
    process: Mapped[int]
    rows: Mapped[int]


def note(purged: Purged) -> None:
    """Write a batch down, in the transaction that deletes it."""
    purged.transaction.execute(insert(Batch).values(process=os.getpid(), rows=purged.count))


def create_app() -> Flask:
    app = Flask(__name__)
    app.config.update(
        SQLALCHEMY_DATABASE_URI=os.environ["SHOP_DATABASE"],
        TTL_SWEEP_INTERVAL=0.1,
        TTL_LEASE_DURATION=86_400,  # no machine is so slow that it ends by itself
        TTL_ON_PURGED=note,
    )
    db.init_app(app)
    TTL(app, db)

    @app.get("/")
    def who() -> dict[str, int]:
        time.sleep(0.05)  # so that the next request finds another worker
        sweepers = [each for each in threading.enumerate() if each.name.startswith("ttl_odm")]
        return {"process": os.getpid(), "parent": os.getppid(), "sweepers": len(sweepers)}

    return app
