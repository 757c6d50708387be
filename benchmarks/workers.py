"""Processes that are measured in step: each runs what it is asked to, and tells the seconds.

What must not meet in one process (two ways that hook into every `Session`, ttl_odm and its absence,
two versions of SQLAlchemy) is measured in one each. `worker` starts one, `sample` is a sample that
is taken in it, and `serve` is what its main function does. First comes the database's URL on
standard input, which, unlike a command line, shows its password to nobody.

Used in processes that must not know ttl_odm: nothing here may import it.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.harness import Sample

    Ask = Callable[[str], str]

_READY = "ready"


@contextmanager
def worker(module: str, *words: str, url: str, python: str = sys.executable) -> Iterator[Ask]:
    """Start a process that serves, as a function that asks it something; it ends with the block.

    Args:
        module: one of ours, whose main function calls `serve`.
        words: its command line.
        url: of the database that it works on.
        python: the interpreter.

    Raises:
        RuntimeError: it failed; what it says is on standard error.
    """
    command = [python, "-m", module, *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload] # noqa: S603 - our own module
        _ask(process, url)
        yield partial(_ask, process)
    # The block has closed the pipes, and with them ended the process.
    if process.returncode != 0:
        raise RuntimeError(f"{module} {' '.join(words)} ended with status {process.returncode}")


def _ask(process: subprocess.Popen[str], question: str) -> str:
    process.stdin.write(f"{question}\n")  # type: ignore[union-attr]
    process.stdin.flush()  # type: ignore[union-attr]
    answer = process.stdout.readline().strip()  # type: ignore[union-attr]
    if not answer:
        raise RuntimeError("a measured process has ended too early")
    return answer


def sample(ask: Ask, operation: str) -> Sample:
    """A sample that is taken in another process.

    Args:
        ask: what `worker` gave.
        operation: one that is served there.
    """
    return lambda count: float(ask(f"{operation} {count}"))


def serve(open_samples: Callable[[str], Mapping[str, Sample]]) -> None:
    """Answer lines ``OPERATION RUNS`` by the seconds that these runs took, until input ends.

    Args:
        open_samples: makes the operations for a database's URL.
    """
    samples = open_samples(sys.stdin.readline().strip())
    gc.freeze()
    _answer(_READY)
    for line in iter(sys.stdin.readline, ""):
        operation, _, runs = line.strip().rpartition(" ")
        _answer(repr(samples[operation](int(runs))))


def _answer(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
