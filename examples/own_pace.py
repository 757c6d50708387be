"""A pace of one's own: batches that only ever get as large as they have proved to be harmless.

The shipped `Pace` adapts to the time that batches take. Here the size grows by a fixed step and is
halved at once when a batch was slow, as TCP does: slower to speed up, quicker to give way.

Run it: python examples/own_pace.py
"""

from __future__ import annotations

from dataclasses import dataclass

from ttl_odm.sweeper import Progress, Sweeper
from ttl_odm.testing import InMemoryStore


@dataclass(frozen=True)
class Cautious:
    """A `ttl_odm.sweeper.Pacing`.

    Attributes:
        start: Rows in the first batch.
        step: Rows by which a batch may be larger than the one before.
        slow: Seconds after which a batch was slow.
        rest: Seconds to pause for each second of work.
    """

    start: int = 100
    step: int = 50
    slow: float = 0.05
    rest: float = 0.0

    def next(self, size: int, elapsed: float) -> int:
        """Grow by a step, or give way."""
        return size + self.step if elapsed < self.slow else self.shrunk(size)

    def shrunk(self, size: int) -> int:
        """Halve it."""
        return max(size // 2, 1)


def main() -> None:
    """Show the batches of a sweep."""
    store = InMemoryStore()
    store.create("carts", default=60)
    for key in range(1_000):
        store.put("carts", key, age=3600 + key)

    def show(progress: Progress) -> None:
        print(f"allowed {progress.batch_size}, deleted {progress.deleted}")

    Sweeper(store, pace=Cautious(), on_progress=show).run_once()


if __name__ == "__main__":
    main()
