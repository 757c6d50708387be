"""What a sweep does with whole partitions, whatever store they are in."""

from __future__ import annotations

from tests.unit.scripted import NOTHING, Script, due, full, last
from ttl_odm.partitions.facts import PARTITIONS, partitions
from ttl_odm.sweeper import BatchResult, Due, Ending, Part, PartitionsCounted, StoreError
from ttl_odm.sweeper.commands import PurgeBatch

BOTH = due(PARTITIONS, Part.INHERITING)


def test_partitions_have_no_say_in_the_size_of_batches() -> None:
    slow = [full(1_000_000, "x", elapsed=9.0), full(3, "y", elapsed=0.001), last(0)]
    script = Script({"a": [BOTH, NOTHING]}, [*slow, last(10)])
    report = script.run()
    assert [each.request.part for each in script.of(PurgeBatch)] == [
        *[PARTITIONS] * 3,
        Part.INHERITING,
    ]
    assert script.sizes == [1_000] * 4
    assert report.deleted == 1_000_013


def test_a_partition_is_no_load_by_its_rows() -> None:
    script = Script({"a": [BOTH, NOTHING]}, [full(1_000_000, "x", elapsed=0.1), last(0), last(0)])
    report = script.run(max_rows_per_second=100)
    assert report.waited.get("rate", 0.0) == 0.0


def test_a_partition_may_exceed_max_rows_and_ends_the_sweep() -> None:
    script = Script({"a": [BOTH]}, [full(1_000, "x"), last(0)])
    report = script.run(max_rows=10)
    assert (report.deleted, report.ended) == (1_000, Ending.MAX_ROWS)
    assert len(script.of(PurgeBatch)) == 1


def test_a_store_may_ask_for_a_pause() -> None:
    tries = [BatchResult(0, number, pause=0.5) for number in range(3)]
    script = Script({"a": [due(PARTITIONS), NOTHING]}, [*tries, last(4)])
    report = script.run()
    assert report.deleted == 4
    assert report.waited["retry"] == 1.5


def test_notes_are_reported_once_each() -> None:
    results = [BatchResult(0, 1, notes=["x is in use", "y"]), BatchResult(0, notes=["y", "z"])]
    script = Script({"a": [due(PARTITIONS), NOTHING]}, results)
    report = script.run()
    assert report.targets[0].notes == ("x is in use", "y", "z")
    assert report.to_dict()["targets"][0]["notes"] == ["x is in use", "y", "z"]
    assert "a: x is in use" in str(report)


BEFORE = PartitionsCounted(3, 1, 2, dead=1)
AFTER = PartitionsCounted(4, 0, 0)


def test_a_report_says_how_many_partitions_there_are() -> None:
    report = Script({"a": [Due((), 0.0, facts=partitions(AFTER))], "b": [NOTHING]}).run()
    assert [target.partitions for target in report.targets] == [AFTER, None]
    counts = {"there": 4, "over": 0, "missing": 0, "dead": 0}
    assert [target["partitions"] for target in report.to_dict()["targets"]] == [counts, None]
    assert "a: 4 partitions, 0 over" in str(report)
    assert str(PartitionsCounted(1, 0, 2)) == "1 partition, 0 over, 2 more to be created"


def test_it_is_what_the_last_step_has_left() -> None:
    there = Due((PARTITIONS, Part.INHERITING), 60.0, facts=partitions(BEFORE))
    steps = [
        BatchResult(0, 1, facts=partitions(BEFORE)),
        BatchResult(9, facts=partitions(AFTER)),
    ]
    report = Script({"a": [there, NOTHING]}, [*steps, last(3)]).run()
    assert report.targets[0].partitions == AFTER


def test_a_dry_run_says_what_there_is_to_do() -> None:
    report = Script({"a": [Due((PARTITIONS,), 60.0, facts=partitions(BEFORE))]}).run(dry_run=True)
    assert report.targets[0].partitions == BEFORE
    assert "a: 3 partitions, 1 over, 2 more to be created" in str(report)


def test_of_a_target_that_nobody_could_read_it_is_not_known() -> None:
    script = Script({"a": [StoreError("no")]})
    assert script.run().targets[0].partitions is None
