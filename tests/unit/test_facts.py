"""What an extension reports goes through a sweep that knows nothing of it."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.unit.scripted import NOTHING, OWN, Script, full
from ttl_odm.follows.sweep import due_followers
from ttl_odm.metrics.numbers import FactSeries
from ttl_odm.sweeper import (
    BatchResult,
    Counted,
    Due,
    Fact,
    FuseError,
    Number,
    Part,
    Progress,
    Reading,
    RowsFact,
    SweepReport,
    TargetReport,
)
from ttl_odm.sweeper.command_line import question
from ttl_odm.sweeper.commands import CountDue, Emit, PurgeBatch
from ttl_odm.sweeper.fuse import Fuse
from ttl_odm.sweeper.snapshot import Counts, Snapshot, format_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ttl_odm.sweeper.facts import Reported

TORN = Number("pages_torn", "gauge", "Pages of a book that are torn.", ("table",))
LENT = Number("books_lent", "counter", "Deleted rows by who had them.", ("table", "reader"))


@dataclass(frozen=True, slots=True)
class Pages(Fact):
    """About the target as it is."""

    torn: int

    def __str__(self) -> str:
        return f"{self.torn} pages torn\nbind them again"

    def to_dict(self) -> Mapping[str, object]:
        return {"torn": self.torn}

    @property
    def problem(self) -> tuple[str, str] | None:
        return ("torn", "the book falls apart") if self.torn > 9 else None

    def numbers(self, target: Reported) -> Iterator[Reading]:
        yield Reading(TORN, self.torn + target.deleted)


@dataclass(frozen=True, slots=True)
class Readers(RowsFact):
    """About rows."""

    rows: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __str__(self) -> str:
        return f"read by {', '.join(self.rows)}"

    def to_dict(self) -> Mapping[str, object]:
        return self.rows

    def plus(self, earlier: Readers) -> Readers:
        names = {**earlier.rows, **self.rows}
        both = (earlier.rows, self.rows)
        return Readers({name: sum(rows.get(name, 0) for rows in both) for name in names})

    def among(self, rows: int) -> Readers:
        return Readers({**self.rows, "nobody": rows - sum(self.rows.values())})

    @property
    def brief(self) -> str:
        return f"most by {max(self.rows)}"

    @property
    def along(self) -> int:
        return 2

    def numbers(self, target: Reported) -> Iterator[Reading]:  # noqa: ARG002
        for name, rows in self.rows.items():
            yield Reading(LENT, rows, name)


def swept() -> tuple[SweepReport, list[Progress]]:
    script = Script(
        {"books": [Due((Part.OWN,), 60.0, facts={"pages": Pages(5)}), NOTHING]},
        [
            BatchResult(1_000, "on", facts={"pages": Pages(4), "readers": Readers({"ann": 600})}),
            full(1_000, "still"),
            BatchResult(9, facts={"pages": Pages(3), "readers": Readers({"ann": 1, "bob": 2})}),
        ],
    )
    report = script.run()
    events = [command.event for command in script.of(Emit)]
    return report, [event for event in events if isinstance(event, Progress)]


def test_the_latest_is_reported_of_a_target_and_the_sum_of_its_rows() -> None:
    report, (first, second, _) = swept()
    (target,) = report.targets
    readers = Readers({"ann": 601, "bob": 2, "nobody": 2_009 - 603})
    assert target.facts == {"pages": Pages(3), "readers": readers}
    assert first.facts == {"pages": Pages(4), "readers": Readers({"ann": 600, "nobody": 400})}
    assert second.facts == {}
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301 (our own)


def test_it_is_in_the_text_and_in_the_json_by_its_own_name() -> None:
    report, _ = swept()
    assert str(report).splitlines()[3:] == [
        "books: read by ann, bob, nobody",
        "books: 3 pages torn",
        "books: bind them again",
    ]
    plain = json.loads(json.dumps(report.to_dict()))["targets"][0]
    assert plain["pages"] == {"torn": 3}
    assert plain["readers"] == {"ann": 601, "bob": 2, "nobody": 1_406}


def test_a_fact_that_is_false_is_left_out() -> None:
    report = SweepReport([TargetReport("books", facts={"readers": Readers({})})])
    assert "read by" not in str(report)
    assert "readers" not in report.targets[0].to_dict()


def test_a_terminal_obeys_none_of_it() -> None:
    report = SweepReport([TargetReport("books", facts={"readers": Readers({"\x1b[2J": 1})})])
    assert "read by \\x1b[2J" in str(report)


def test_a_dry_run_and_the_fuse_report_what_was_counted_of_rows() -> None:
    counted = Counted(5_000, 6_000, facts={"readers": Readers({"ann": 4_000}), "pages": Pages(1)})
    report = Script({"books": [OWN]}, instead={CountDue: [counted]}).run(dry_run=True)
    (target,) = report.targets
    assert target.facts == {"readers": Readers({"ann": 4_000, "nobody": 1_000})}
    assert report.due == 5_002
    assert question([{"books": 5_000}], [report]) == (
        "Delete 5,000 rows and up to 2 rows that follow them?"
    )
    with pytest.raises(FuseError) as caught:
        Fuse(max_fraction=0.5).check("books", counted, ())
    assert "5,000 rows have expired (most by nobody), more than" in str(caught.value)
    assert caught.value.facts == target.facts
    assert caught.value.by_scope == {}


def test_a_status_prints_what_is_known_of_a_target_and_what_is_wrong_with_it() -> None:
    facts: dict[str, Mapping[str, Fact]] = {"a": {"pages": Pages(1)}, "b": {"pages": Pages(10)}}
    targets = [Counts(name, rows=1, expired=0, facts=facts[name]) for name in facts]
    snapshot = Snapshot(None, None, targets, at=0.0)
    text = format_snapshot(snapshot, str)
    assert text.splitlines()[-3:] == [
        "a: 1 pages torn",
        "a: bind them again",
        "! b: the book falls apart",
    ]
    assert [target["pages"] for target in snapshot.to_dict()["targets"]] == [
        {"torn": 1},
        {"torn": 10},
    ]


def test_its_numbers_are_read_of_reports() -> None:
    series, (report, _) = FactSeries(), swept()
    assert list(series.of(report)) == [
        (TORN, {"table": "books"}, 3 + 2_009),
        (LENT, {"table": "books", "reader": "ann"}, 601),
        (LENT, {"table": "books", "reader": "bob"}, 2),
        (LENT, {"table": "books", "reader": "nobody"}, 1_406),
        (LENT, {"table": "books", "reader": ""}, 0),
    ]
    gone = list(series.of(SweepReport([TargetReport("books")])))
    assert gone == [(TORN, {"table": "books"}, None)]


def test_a_table_has_series_for_twenty_labels() -> None:
    series = FactSeries()

    def read(**rows: int) -> dict[str, float | None]:
        target = TargetReport("books", facts={"readers": Readers(rows)})
        return {labels["reader"]: value for _, labels, value in series.of(SweepReport([target]))}

    assert read() == {}
    assert read(ann=3) == {"ann": 3, "": 0}
    many = read(**{f"r{number}": 1 for number in range(30)})
    assert (len(many), many["ann"], many["r18"], many[""]) == (21, 0, 1, 11)
    assert read(new=5)[""] == 5


def test_a_part_that_comes_last_is_purged_last_wherever_a_store_puts_it() -> None:
    last, whole = Part("left behind", last=True), Part("drawers", whole=True)
    due = Due((last, whole, Part.OWN), 60.0)
    script = Script({"a": [due, NOTHING]}, [BatchResult(1)] * 3)
    script.run(workers=4)
    parts = [command.request.part for command in script.of(PurgeBatch)]
    assert parts == [whole, Part.OWN, last]


def test_followers_of_several_tables_are_a_line_each() -> None:
    target = TargetReport("carts", due=3, facts=due_followers({"items": 1, "notes\n": 2}))
    assert [*target.remarks] == [
        "carts: 1 row of items would be deleted as well, because their parents have expired",
        "carts: 2 rows of notes\\x0a would be deleted as well, because their parents have expired",
    ]
    assert target.due_followers == {"items": 1, "notes\n": 2}
    assert TargetReport("carts").due_followers == {}
