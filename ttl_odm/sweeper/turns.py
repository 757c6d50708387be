"""Whose turn it is: the order of a sweep's targets, and what each gets of a sweep that is limited.

Each target is purged to its end, before the next one. Where `max_rows` or `max_seconds` limit the
sweep, the first would have it all as long as it has enough expired rows. So all are looked at
first, and get a share of the rows and seconds by how long their oldest rows have been expired. What
one leaves is shared among the others, until nothing is left of either. A sweep that is broken off
for whatever reason is followed by one that begins with the target after that of its last batch: one
batch may take longer than `max_seconds`.

This module must not know how a target is purged.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper.report import LIMITS
from ttl_odm.sweeper.tenure import Halt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.sweeper.batch_gate import BatchGate
    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.target import TargetSweep

LEAST: Final = 0.1
"""Part of an equal share that a target gets, however little it is overdue."""


def after(last: str | None, targets: Sequence[str]) -> list[str]:
    """The targets, beginning with the one after ``last``; as they are if that is none of them."""
    begins = targets.index(last) + 1 if last in targets else 0
    return [*targets[begins:], *targets[:begins]]


def to_the_end(sweeps: Sequence[TargetSweep]) -> Plan[Halt | None]:
    """Purge each target to its end; return what has ended the sweep before.

    After a limit, which a dry run may meet, the others are still looked at.
    """
    halt = None
    for sweep in sweeps:
        try:
            yield from sweep.begin()
            if not sweep.is_over:
                yield from sweep.go_on()
        except Halt as end:
            halt = end
        yield from sweep.end(halt)
        if halt is not None and halt.ending not in LIMITS:
            break
    return halt


def in_turns(sweeps: Sequence[TargetSweep], gate: BatchGate) -> Plan[Halt | None]:
    """Let the targets share what the sweep may take; return what has ended it before."""
    halt = None
    begun: list[TargetSweep] = []
    try:
        for sweep in sweeps:
            begun.append(sweep)
            yield from sweep.begin()
        waiting = [sweep for sweep in sweeps if not sweep.is_over]
        while waiting:
            weights = weights_of([sweep.overdue for sweep in waiting])
            for number, sweep in enumerate(waiting):
                yield from gate.begin_turn(weights[number] / sum(weights[number:]))
                yield from sweep.go_on()
            waiting = [sweep for sweep in waiting if not sweep.is_over]
    except Halt as end:
        halt = end
    for sweep in begun:
        yield from sweep.end(halt)
    return halt


def weights_of(overdue: Sequence[float | None]) -> list[float]:
    """What each target gets in proportion, by the seconds that it is overdue; None: not known."""
    known = [seconds for seconds in overdue if seconds is not None]
    usual = fmean(known) if known else 1.0
    seconds = [usual if each is None else each for each in overdue]
    least = LEAST * fmean(seconds) or 1.0
    return [max(each, least) for each in seconds]
