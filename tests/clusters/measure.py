"""What `python3 tools/dev.py clusters` runs for one setup: see `main`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_servers.cluster import FAULTS, ClusterKind
from local_servers.lifetime import ON_REQUEST, running_cluster
from terminal import end_orderly_on_signals, say
from tests.clusters.checker import Verdict, check
from tests.clusters.workload import Load, one_of, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from local_servers.cluster import Cluster, Fault
    from tests.clusters.history import History

_CLIENTS = ("sqlalchemy", "beanie", "django")
_SHOWN = 20
"""The most findings that are printed."""


def main(words: Sequence[str]) -> None:
    """Run clients through failovers of a cluster, judge their history, and write what came of it.

    Args:
        words: The command line without the program.
    """
    parser = argparse.ArgumentParser(prog="tests.clusters.measure")
    parser.add_argument("kind")
    parser.add_argument("--clients", choices=_CLIENTS, required=True)
    parser.add_argument("--failovers", type=int, required=True)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, required=True)
    parser.add_argument("--loses", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--session", default="")
    parser.add_argument("--to", type=Path, required=True)
    wanted = parser.parse_args(words)
    clients = import_module(f"tests.clusters.{wanted.clients}_clients")
    session = {"session": wanted.session} if wanted.session else {}
    kinds = {kind.name: kind for kind in ON_REQUEST if isinstance(kind, ClusterKind)}
    with running_cluster(kinds[wanted.kind]) as cluster:
        history = run(
            cluster,
            Load(seed=wanted.seed),
            opened=partial(clients.opened, **session),
            faults=counted(wanted.faults, wanted.failovers),
            number=wanted.failovers,
            loses=wanted.loses,
        )
        version, driver = clients.described(cluster)
    verdict = check(history)
    for finding in verdict.wrong[:_SHOWN]:
        say(str(finding))
    seen = {"version": version, "driver": driver, **counts(history, verdict)}
    wanted.to.write_text(json.dumps(seen), encoding="utf-8")


def counted(faults: Sequence[Fault], number: int) -> Callable[[Cluster, Random], None]:
    """Fail over, and say how often that was done."""
    fail_over = one_of(faults)
    done = 0

    def fail(cluster: Cluster, random: Random) -> None:
        nonlocal done
        fail_over(cluster, random)
        done += 1
        say(f"clusters: {done} of {number} failovers")

    return fail


def counts(history: History, verdict: Verdict) -> dict[str, Any]:
    """The numbers of a run."""
    return {
        "failovers": dict(sorted(Counter(one.fault for one in history.failovers).items())),
        "operations": len(history.operations),
        "wrong": _numbers(verdict.counts()),
        "by_engine": _numbers(Verdict(wrong=verdict.by_engine).counts()),
        "behind": verdict.behind,
        "outages": [round(seconds, 1) for seconds in history.outages()],
    }


def _numbers(counted_rules: Any) -> dict[str, int]:
    return {rule.name.lower(): number for rule, number in sorted_rules(counted_rules)}


def sorted_rules(counted_rules: Any) -> list[Any]:
    """In the order of their names, so that files don't change by chance."""
    return sorted(counted_rules.items(), key=lambda pair: pair[0].name)


if __name__ == "__main__":
    end_orderly_on_signals()
    main(sys.argv[1:])
