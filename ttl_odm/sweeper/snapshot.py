"""What the status commands print: the rows of each target, the lease, the last sweeps.

``ttl-odm``, ``flask ttl`` and ``manage.py`` print it in the same words, as they do that sweepers
are paused. This module must not know any of them, nor a database.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.batch_gate import History
from ttl_odm.sweeper.commands import AskServer, CountDue, FindDue, Now, ReadLease
from ttl_odm.sweeper.facts import lines, of_target, plain
from ttl_odm.sweeper.known_facts import IN_STATUS
from ttl_odm.sweeper.report import in_one_line
from ttl_odm.sweeper.store import StoreError
from ttl_odm.sweeper.text import age, aligned, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ttl_odm.sweeper.command_line import Program
    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.facts import Fact
    from ttl_odm.sweeper.leases import LeaseState
    from ttl_odm.sweeper.store import Server


@dataclass(frozen=True, slots=True)
class Counts:
    """The rows of a target; None where they could not be counted, with the problem.

    Attributes:
        oldest: Seconds since the first of its expired rows expired; 0 if there are none.
        facts: Facts of extensions about the target as it is.
    """

    target: str
    model: str | None = None
    is_on: bool = True
    rows: int | None = None
    is_estimated: bool = False
    expired: int | None = None
    oldest: float | None = None
    problem: str | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Four cells of the table: all rows, live rows, expired rows, the age of the oldest."""
        if not self.is_on:
            return ("-", "-", "-", "TTL is off")
        if self.rows is None or self.expired is None:
            return ("?", "?", "?", "?")
        about, live = "~" if self.is_estimated else "", max(self.rows - self.expired, 0)
        oldest = age(self.oldest) if self.expired else "-"
        return (f"{about}{self.rows:,}", f"{about}{live:,}", f"{self.expired:,}", oldest)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All targets and the lease.

    Attributes:
        database: Its name as it may be printed; None if unknown.
        server: The server that answered; None if the database has none.
        lease: The state of the lease; None if there is none.
        at: When it was taken, in seconds of a monotonic clock.
    """

    database: str | None
    lease: LeaseState | None
    targets: list[Counts]
    at: float
    server: Server | None = None

    def change_of(self, counts: Counts, before: Snapshot | None) -> float | None:
        """Return how many more rows are expired per second than before; None if unknown."""
        earlier = [] if before is None else before.targets
        then = next((other for other in earlier if other.target == counts.target), None)
        if before is None or then is None or then.expired is None or counts.expired is None:
            return None
        return (counts.expired - then.expired) / max(self.at - before.at, 1e-9)

    @property
    def history(self) -> History:
        """What the last sweeps found, and how fast they were."""
        return History.loads("" if self.lease is None else self.lease.history)

    @property
    def has_problems(self) -> bool:
        """Whether something could not be counted."""
        return any(counts.problem for counts in self.targets)

    def to_dict(self, before: Snapshot | None = None) -> dict[str, Any]:
        """Return plain values, for JSON."""
        history = self.history
        return {
            "database": self.database,
            "server": None if self.server is None else asdict(self.server),
            "lease": None if self.lease is None else lease_dict(self.lease),
            "targets": [
                {
                    "target": counts.target,
                    "model": counts.model,
                    "is_on": counts.is_on,
                    "rows": counts.rows,
                    "rows_are_estimated": counts.is_estimated,
                    "expired": counts.expired,
                    "expired_change_per_second": self.change_of(counts, before),
                    "oldest_expired_age": counts.oldest,
                    "last_rows_per_second": history.rate_of(counts.target),
                    "last_found": list(history.of(counts.target)),
                    **IN_STATUS,
                    **plain(counts.facts),
                    "error": counts.problem,
                }
                for counts in self.targets
            ],
        }


def look(
    targets: Mapping[str, str | None],
    lease_name: str | None,
    database: str | None,
    explain: Callable[[Exception], str] = in_one_line,
) -> Plan[Snapshot]:
    """Ask which server answers, count the rows of targets, and read the lease.

    Args:
        targets: The targets, each with the name of its model, if it has one.
        lease_name: The name of the lease; None if there is none.
        database: The name of the database, for people.
        explain: Returns a line for people about an error.
    """
    server, counts = (yield from AskServer()), []
    for target, model in targets.items():
        counts.append((yield from _counts(target, model, explain)))
    lease = None if lease_name is None else (yield from ReadLease(lease_name))
    return Snapshot(database, lease, counts, (yield from Now()), server)


def _counts(target: str, model: str | None, explain: Callable[[Exception], str]) -> Plan[Counts]:
    try:
        due = yield from FindDue(target)
        if due is None:
            return Counts(target, model, is_on=False)
        counted = yield from CountDue(target)
    except (StoreError, TTLConfigurationError) as error:
        return Counts(target, model, problem=explain(error))
    oldest = counted.oldest if due.oldest is None else due.oldest
    return Counts(
        target,
        model,
        rows=counted.rows,
        is_estimated=counted.is_estimated,
        expired=counted.due,
        oldest=oldest if counted.due else 0.0,
        facts=of_target({**due.facts, **counted.facts}),
    )


def format_snapshot(
    snapshot: Snapshot,
    program: Program,
    width: int | None = None,
    before: Snapshot | None = None,
) -> str:
    """Return a snapshot for people, with the change since an earlier one, if there is one.

    Args:
        snapshot: The snapshot.
        program: Returns the command that resumes paused sweepers.
        width: Columns of the terminal; None if there is none.
        before: The earlier snapshot.
    """
    printed = [] if snapshot.database is None else [visible(snapshot.database)]
    printed += [] if snapshot.server is None else _of_server(snapshot.server)
    lease = snapshot.lease
    if lease is None:
        printed.append("No lease is kept.")
    else:
        holder, last = "No sweeper holds the lease.", "No sweep has been recorded."
        if lease.holder is not None:
            left = f"{lease.seconds_left:,.0f} s"
            holder = f"{visible(lease.holder)} holds the lease, which expires in {left}."
        if lease.recorded_ago is not None:
            last = f"Last sweep {age(lease.recorded_ago)} ago."
        printed.append(f"{holder} {last}")
        if lease.paused:
            printed.append(f"PAUSED: nothing is deleted until: {program('resume')}")
    change = () if before is None else ("change",)
    head = ("target", "model", "rows", "live", "expired", *change, "oldest", "rate")
    rows: list[tuple[str, ...]] = [(*head, "last sweeps found")]
    for counts in snapshot.targets:
        *cells, oldest = counts.cells
        changes = [_per_second(snapshot.change_of(counts, before), sign="+") for _ in change]
        rate = _per_second(snapshot.history.rate_of(counts.target))
        last = " ".join(f"{number:,}" for number in snapshot.history.of(counts.target)[-3:]) or "-"
        names = (visible(counts.target), visible(counts.model or "-"))
        rows.append((*names, *cells, *changes, oldest, rate, last))
    printed += ["", aligned(rows, width)]
    for name in dict.fromkeys(name for counts in snapshot.targets for name in counts.facts):
        for counts in snapshot.targets:
            if name in counts.facts:
                printed += _of_fact(visible(counts.target), counts.facts[name])
    printed += [
        f"! {visible(counts.target)}: {counts.problem}"
        for counts in snapshot.targets
        if counts.problem
    ]
    return "\n".join(printed)


def _of_server(server: Server) -> Iterator[str]:
    if not server.takes_writes:
        name = "" if server.address is None else f" ({visible(server.address)})"
        yield f"Answered by a standby{name}: it takes no writes, so nothing is swept there."
    elif server.address is not None:
        yield f"Answered by {visible(server.address)}."


def _of_fact(target: str, fact: Fact) -> Iterator[str]:
    if fact.problem is None:
        yield from (f"{target}: {line}" for line in lines([fact]))
    else:
        yield f"! {target}: {visible(fact.problem[1])}"


def _per_second(rows: float | None, sign: str = "") -> str:
    return "-" if rows is None else f"{rows:{sign},.0f}/s"


def lease_dict(lease: LeaseState) -> dict[str, object]:
    """Return the state of a lease for JSON."""
    return {
        "holder": lease.holder,
        "seconds_left": lease.seconds_left,
        "paused": lease.paused,
        "last_sweep_seconds_ago": lease.recorded_ago,
    }


RESUMED: Final = "Resumed: the sweepers continue."


def paused_text(lease: LeaseState, program: Program) -> str:
    """Return the message that sweepers have been paused."""
    at_work = f" {visible(lease.holder)} stops after its batch." if lease.holder else ""
    return f"Paused: no sweeper begins another batch.{at_work} Resume with: {program('resume')}"
