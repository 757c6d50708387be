"""Carries a sweeper's plan out against answers that are given beforehand.

The clock is a number that waits and batches move on; the lease is a little model of a real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import hypothesis

from ttl_odm.sweeper import (
    BatchResult,
    Counted,
    Due,
    Hooks,
    Lease,
    LeaseState,
    Pace,
    Part,
    Server,
    StandbyStoreError,
    TransientStoreError,
    UnreachableStoreError,
)
from ttl_odm.sweeper import commands as c
from ttl_odm.sweeper.batch_gate import Claim
from ttl_odm.sweeper.options import Settings
from ttl_odm.sweeper.pace import Limits
from ttl_odm.sweeper.plan import run_forever, run_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.sweeper import SweepReport

unhurried = hypothesis.settings(deadline=None)
"""For tests that carry whole plans out: a busy machine makes none of them wrong."""

PACE = Pace(start=1_000, lowest=100, highest=10_000, target=0.1)
BUSY = TransientStoreError("busy")
AWAY = UnreachableStoreError("restarting")
STANDBY = StandbyStoreError("read-only")
CLAIM = Claim("ttl_odm", "us", 60.0)
NOTHING = Due((), 0.0)


def due(*parts: Part, oldest: float = 60.0) -> Due:
    return Due(parts, oldest)


OWN = due(Part.OWN)


def full(deleted: int, resume: object = "on", elapsed: float = 0.1) -> BatchResult:
    return BatchResult(deleted, resume, elapsed=elapsed)


def last(deleted: int) -> BatchResult:
    return BatchResult(deleted)


def endless() -> list[BatchResult | Exception]:
    """So many full batches that something else has to end the sweep."""
    return [full(1_000, number) for number in range(1_000)]


def settings(pace: Any = PACE, **given: Any) -> Settings:
    """Make settings; the limits may be given by name."""
    limits = {name: given.pop(name) for name in Limits.__dataclass_fields__ if name in given}
    given.setdefault("jitter", lambda: 1.0)
    return Settings(pace, limits=Limits(**limits), **given)


@dataclass
class FakeLease:
    """One lease, on the script's clock. `trouble` is raised by everything that asks it.

    `tells`: whether `Acquire` gets the state, too, as from the stores that ship.
    """

    holder: str | None = None
    token: int = 0
    until: float = 0.0
    paused: bool = False
    history: str = ""
    trouble: Exception | None = None
    tells: bool = False

    def answer(self, command: Any, now: float) -> Any:
        if now >= self.until:
            self.holder = None
        return self.trouble or getattr(self, type(command).__name__)(command, now)

    def Acquire(self, command: c.Acquire, now: float) -> Lease | None:  # noqa: N802
        if self.holder is not None:
            return None
        self.token, self.holder = self.token + 1, command.holder
        self.until = now + command.duration
        state = self.state(now) if self.tells else None
        return Lease(command.name, command.holder, self.token, command.duration, state)

    def Renew(self, command: c.Renew, now: float) -> bool:  # noqa: N802
        if command.lease.token != self.token:
            return False
        self.holder, self.until = command.lease.holder, now + command.lease.duration
        return True

    def ReadLease(self, _: c.ReadLease, now: float) -> LeaseState:  # noqa: N802
        return self.state(now)

    def state(self, now: float) -> LeaseState:
        left = self.until - now if self.holder else 0.0
        return LeaseState(self.holder, self.token, left, self.paused, self.history)

    def Record(self, command: c.Record, _now: float) -> bool:  # noqa: N802
        if command.lease.token == self.token:
            self.history = command.history
        return command.lease.token == self.token

    def taken_over(self, now: float, by: str = "them") -> None:
        """Let somebody else have it, as after its end."""
        self.token, self.holder, self.until = self.token + 1, by, now + 60.0


@dataclass
class Script:
    """Answers, and what was asked.

    Attributes:
        due: What `FindDue` gets, for each target one after the other; the last one stays.
        batches: What `PurgeBatch` gets, one after the other. Errors are thrown.
        instead: Answers for other kinds of commands, one after the other, before the usual ones.
        hooks: Those that the store declares.
        lease: Where the lease is kept.
        midnight: The database's instant at 0 of the clock.
        server: The one that answers.
        stop_at: When somebody wants the sweeper to stop.
        before: Called with each command and the clock, before it is answered.
        asked: The commands.
        clock: The monotonic clock.
    """

    due: dict[str, list[Any]]
    batches: list[Any] = field(default_factory=list)
    instead: dict[type[Any], list[Any]] = field(default_factory=dict)
    hooks: Hooks = field(default_factory=Hooks)
    lease: FakeLease = field(default_factory=FakeLease)
    midnight: datetime = datetime(2024, 1, 1, tzinfo=timezone.utc)
    server: Server | None = None
    stop_at: float = float("inf")
    before: Callable[[Any, float], object] = lambda _command, _clock: None
    asked: list[Any] = field(default_factory=list)
    clock: float = 0.0

    def run(self, claim: Claim | None = None, **given: Any) -> SweepReport:
        report: SweepReport = self.carry_out(run_once(settings(**given), claim))
        return report

    def run_forever(
        self, claim: Claim | None = None, *, interval: float = 60.0, **given: Any
    ) -> SweepReport | None:
        plan = run_forever(settings(**given), claim, interval=interval, jitter=0.0)
        report: SweepReport | None = self.carry_out(plan)
        return report

    def carry_out(self, plan: c.Plan[Any]) -> Any:
        reply: Any = None
        try:
            for _ in range(100_000):
                command = plan.throw(reply) if isinstance(reply, Exception) else plan.send(reply)
                self.before(command, self.clock)
                reply = self.answer(command)
        except StopIteration as end:
            return end.value
        raise AssertionError("the plan spins")

    def answer(self, command: Any) -> Any:
        self.asked.append(command)
        instead = self.instead.get(type(command))
        if instead:
            return instead.pop(0)
        answer = getattr(self, type(command).__name__, None)
        return self.lease.answer(command, self.clock) if answer is None else answer(command)

    def Now(self, _: c.Now) -> float:  # noqa: N802
        return self.clock

    def IsStopping(self, _: c.IsStopping) -> bool:  # noqa: N802
        return self.clock >= self.stop_at

    def Pause(self, command: c.Pause) -> None:  # noqa: N802
        self.clock = min(self.clock + command.seconds, max(self.clock, self.stop_at))

    def DatabaseNow(self, _: c.DatabaseNow) -> datetime:  # noqa: N802
        return self.midnight + timedelta(seconds=self.clock)

    def AskServer(self, _: c.AskServer) -> Server | None:  # noqa: N802
        return self.server

    def ListTargets(self, _: c.ListTargets) -> list[str]:  # noqa: N802
        return list(self.due)

    def ListHooks(self, _: c.ListHooks) -> Hooks:  # noqa: N802
        return self.hooks

    def FindDue(self, command: c.FindDue) -> Any:  # noqa: N802
        answers = self.due[command.target]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def PurgeBatch(self, _: c.PurgeBatch) -> Any:  # noqa: N802
        result = self.batches.pop(0)
        self.clock += getattr(result, "elapsed", 0.0)
        return result

    def CountDue(self, _: c.CountDue) -> Counted:  # noqa: N802
        return Counted(0, 0)

    def Nothing(self, _: object) -> None:  # noqa: N802
        """Answer a command that only tells something, or asks for nothing in particular."""

    Emit = CallHooks = AskThrottle = Nothing

    def of(self, kind: type[Any]) -> list[Any]:
        return [command for command in self.asked if isinstance(command, kind)]

    @property
    def sizes(self) -> list[int]:
        """Of the batches that were asked for."""
        return [command.request.size for command in self.of(c.PurgeBatch)]

    @property
    def pauses(self) -> list[float]:
        return [command.seconds for command in self.of(c.Pause)]

    @property
    def servers(self) -> list[Server]:
        """That were emitted."""
        return [each.event for each in self.of(c.Emit) if isinstance(each.event, Server)]

    @property
    def reports(self) -> list[SweepReport]:
        """That were emitted."""
        from ttl_odm.sweeper import SweepReport

        return [each.event for each in self.of(c.Emit) if isinstance(each.event, SweepReport)]
