"""What became of the mutants, as text and as the table of docs/quality.md."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mutation.mutants import Mutant

Verdicts = dict[str, dict[str, dict[str, Any]]]
"""By the mutant's number and the group of tests."""


def read(file: Path, group: str, verdicts: Verdicts) -> None:
    """Add what one group of tests said."""
    for line in file.read_text().splitlines() if file.exists() else []:
        answer = json.loads(line)
        verdicts.setdefault(answer.pop("number"), {})[group] = answer


def is_caught(answers: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether any group caught a mutant."""
    return any(answer["verdict"] == "caught" for answer in answers.values())


def outcome(answers: Mapping[str, Mapping[str, Any]]) -> str:
    """Say in a word what became of a mutant."""
    said = [answer["verdict"] for answer in answers.values()]
    order = ("caught", "survived", "can't be patched", "not executed")
    return next((verdict for verdict in order if verdict in said), "not executed")


def lines(mutants: Mapping[str, Mutant], verdicts: Verdicts) -> list[str]:
    """List the mutants that no test noticed, and count the others."""
    outcomes = {number: outcome(verdicts.get(number, {})) for number in mutants}
    unnoticed = [
        f"{mutants[number].path}:{mutants[number].line}: {mutants[number].change}"
        f"  [{said}{_tests(verdicts.get(number, {}))}]"
        for number, said in outcomes.items()
        if said != "caught"
    ]
    counts = Counter(outcomes.values())
    tried = counts["caught"] + counts["survived"] + counts["not executed"]
    share = counts["caught"] / tried if tried else 0.0
    return [
        *unnoticed,
        ", ".join(f"{count} {said}" for said, count in counts.items()),
        f"{counts['caught']} of {tried} were caught: {share:.1%}",
    ]


def _tests(answers: Mapping[str, Mapping[str, Any]]) -> str:
    counted = [
        f"{group} {answer['done']}/{answer['tests']}"
        for group, answer in answers.items()
        if answer["verdict"] == "survived"
    ]
    return f" by {', '.join(counted)} tests" if counted else ""
