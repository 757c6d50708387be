"""What a sweeper logs: a message for people, and the same as fields for machines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from ttl_odm.sweeper import (
    Purged,
    StandbyStoreError,
    Sweeper,
    TransientStoreError,
    UnreachableStoreError,
)
from ttl_odm.testing import InMemoryStore

if TYPE_CHECKING:
    from ttl_odm.sweeper import Due


class Store(InMemoryStore):
    backend = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.troubles: list[Exception] = []
        self.create("carts", 10)
        for key in range(3):
            self.put("carts", key, age=20)

    def due(self, target: str) -> Due | None:
        if self.troubles:
            raise self.troubles.pop()
        return super().due(target)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "ttl_odm.sweeper")
    return caplog


def told(log: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """The fields of an event's records that no other record has, with the level."""
    plain = vars(logging.makeLogRecord({}))
    records: list[Any] = log.records
    return [
        {"level": each.levelname, **{k: v for k, v in vars(each).items() if k not in plain}}
        for each in records
        if each.name == "ttl_odm.sweeper" and each.event == event
    ]


def forever(store: Store, **options: Any) -> None:
    """One sweep of many: only these are logged as a whole."""
    sweeper = Sweeper(store, on_report=lambda _: sweeper.stop(), **options)
    sweeper.run_forever()


def test_a_sweep_and_its_batches_are_logged_with_numbers(
    log: pytest.LogCaptureFixture,
) -> None:
    forever(Store())
    (batch,) = told(log, "batch")
    assert (batch["level"], batch["backend"], batch["table"]) == ("DEBUG", "memory", "carts")
    assert (batch["outcome"], batch["deleted"]) == ("committed", 3)
    inside = {name: took for name, took in batch["phases"].items() if name != "after_commit"}
    assert batch["duration"] == pytest.approx(sum(inside.values()))
    (sweep,) = told(log, "sweep")
    assert (sweep["level"], sweep["backend"], sweep["outcome"]) == ("INFO", "memory", "finished")
    assert (sweep["deleted"], sweep["problems"]) == (3, [])
    assert (sweep["archived"], sweep["skipped"]) == (0, 0)
    assert [(each["table"], each["deleted"]) for each in sweep["targets"]] == [("carts", 3)]


def test_what_failed_is_logged_with_the_error(log: pytest.LogCaptureFixture) -> None:
    def refuse(_: Purged) -> None:
        raise KeyError("outbox")

    forever(Store(), on_purged=refuse)
    batch, *_ = told(log, "batch")  # and those of ever fewer rows
    assert (batch["level"], batch["outcome"], batch["deleted"]) == ("INFO", "failed", 0)
    assert batch["error_type"] == "HookError"
    assert "outbox" in batch["error"]
    (sweep,) = told(log, "sweep")
    assert (sweep["level"], sweep["outcome"]) == ("WARNING", "failed")
    assert "outbox" in sweep["problems"][0]


def test_a_batch_that_is_tried_again_is_logged_each_time(log: pytest.LogCaptureFixture) -> None:
    store = Store()
    troubles = [TransientStoreError("deadlock"), TransientStoreError("locked")]

    def trouble() -> None:
        if troubles:
            raise troubles.pop()

    store.between = trouble
    Sweeper(store).run_once()
    batches = [(each["outcome"], each.get("error")) for each in told(log, "batch")]
    assert batches == [("failed", "locked"), ("failed", "deadlock"), ("committed", None)]


@pytest.mark.slow
def test_a_database_that_stays_away_is_logged_once(
    log: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    store.troubles = [UnreachableStoreError("restarting")] * 3
    assert Sweeper(store).run_once().deleted == 3
    (trouble,) = told(log, "trouble")
    assert (trouble["level"], trouble["command"], trouble["error"]) == (
        "WARNING",
        "FindDue",
        "restarting",
    )


def test_a_standby_is_logged_once_and_in_one_line(log: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.troubles = [StandbyStoreError("cannot execute DELETE\nin a read-only transaction")] * 3
    assert Sweeper(store).run_once().deleted == 3
    (record,) = (record for record in log.records if record.event == "trouble")  # type: ignore[attr-defined]
    assert record.getMessage() == (
        "The server is a standby, which takes no writes (FindDue): "
        "cannot execute DELETE in a read-only transaction"
    )


def test_a_database_that_does_not_answer_is_logged_in_one_line(
    log: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    store.troubles = [UnreachableStoreError("connection refused\n\tIs the server running?\n")]
    Sweeper(store).run_once()
    (record,) = (record for record in log.records if record.event == "trouble")  # type: ignore[attr-defined]
    assert record.getMessage() == (
        "The database doesn't answer (FindDue); retrying: connection refused Is the server running?"
    )
