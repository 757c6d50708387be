"""What became of the mutants, as text and as the table of docs/quality.md."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from mutation.mutants import Mutant

Answers = dict[str, dict[str, Any]]
"""What the groups of tests said of a mutant, by their names."""
Verdicts = dict[str, Answers]
"""The same for many, by `Mutant.key`."""

BY_TURN: Final = "caught by one turn"
BY_ALL: Final = "caught by other turns only"
NOT_JUDGED: Final = "not judged yet"
EQUIVALENT: Final = "equivalent"
_SAID: Final = ("timed out", "survived", "can't be patched", "not executed")
"""What groups say of a mutant that none of them caught: the first of these counts."""


_COLUMNS: Final = (
    *("package", "mutants", "equivalent", "can't be tried"),
    *("caught by one turn", "caught by all", "timed out", "not noticed"),
)


def read(file: Path, group: str, verdicts: Verdicts) -> None:
    """Add what one group of tests said: for each mutant the last answer, of those by most tests."""
    for line in file.read_text().splitlines() if file.exists() else []:
        answer = json.loads(line)
        answers = verdicts.setdefault(answer.pop("mutant"), {})
        answers[group] = max(answer, answers.get(group, {}), key=_weight)


def _weight(answer: Mapping[str, Any]) -> tuple[bool, int]:
    return answer.get("verdict") == "caught", answer.get("tests", -1)


def is_caught(answers: Answers, *, turn: bool = False) -> bool:
    """Whether any group caught a mutant, if need be with a test of the turn."""
    return any(
        answer["verdict"] == "caught" and (answer["turn"] or not turn)
        for answer in answers.values()
    )


def is_left(answers: Answers, group: str, *, again: bool) -> bool:
    """Whether a group has something to say of a mutant.

    Args:
        answers: What is known of it.
        group: The group.
        again: Whether the group is asked again about mutants that it didn't catch, as there are
            new tests.
    """
    if is_caught(answers, turn=True):
        return False
    return group not in answers or (again and answers[group]["verdict"] != "caught")


def outcome(answers: Answers, groups: Iterable[str], *, equivalent: bool) -> str:
    """Say in a word what became of a mutant.

    Args:
        answers: What the groups said.
        groups: Those that have to say something.
        equivalent: Whether no test can notice it, as `mutation.equivalent` explains.
    """
    if is_caught(answers):
        return BY_TURN if is_caught(answers, turn=True) else BY_ALL
    if equivalent:
        return EQUIVALENT
    said = {answers[group]["verdict"] if group in answers else NOT_JUDGED for group in groups}
    return next(word for word in (NOT_JUDGED, *_SAID) if word in said)


def lines(mutants: Iterable[Mutant], verdicts: Verdicts, outcomes: Mapping[str, str]) -> list[str]:
    """List the mutants with the tests that caught them, and then those that no test noticed.

    Args:
        mutants: What was tried.
        verdicts: What the groups said.
        outcomes: What became of each, by its key.
    """
    caught, others = list[str](), list[str]()
    for mutant in mutants:
        said, answers = outcomes[mutant.key], verdicts.get(mutant.key, {})
        line = f"{mutant.place}: {mutant.change}  [{said}"
        if is_caught(answers):
            caught.append(f"{line}: {', '.join(_tests(answers))}]")
        else:
            others.append(f"{line}{_counts(answers)}]")
    return [*caught, *others]


def table(mutants: Iterable[Mutant], outcomes: Mapping[str, str]) -> list[str]:
    """Count them by package, as a table in Markdown.

    The shares are those of the mutants that are neither equivalent nor impossible to patch.
    """
    counts: dict[str, Counter[str]] = {}
    for mutant in mutants:
        said = outcomes[mutant.key]
        if said != NOT_JUDGED:
            for row in (mutant.package, "all"):
                counts.setdefault(row, Counter())[said] += 1
    rows = sorted(counts.items(), key=lambda row: (row[0] == "all", row[0]))
    return [
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---|' * len(_COLUMNS)}",
        *(_row(package, count) for package, count in rows),
    ]


def _row(package: str, count: Counter[str]) -> str:
    tried = count.total() - count[EQUIVALENT] - count["can't be patched"]
    turn, everything = count[BY_TURN], count[BY_TURN] + count[BY_ALL]
    cells = (
        *(package, count.total(), count[EQUIVALENT], count["can't be patched"]),
        *(_share(turn, tried), _share(everything, tried), count["timed out"]),
        count["survived"] + count["not executed"],
    )
    return f"| {' | '.join(map(str, cells))} |"


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.1%})" if whole else "0"


def _tests(answers: Answers) -> list[str]:
    return [answer["by"] for answer in answers.values() if answer["verdict"] == "caught"]


def _counts(answers: Answers) -> str:
    counted = [
        f"{group} {answer['done']}/{answer['tests']}"
        for group, answer in answers.items()
        if "done" in answer
    ]
    return f" by {', '.join(counted)} tests" if counted else ""
