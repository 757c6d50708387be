"""An archive of one's own: rows go to a file of JSON lines before they are deleted.

A sink is called in the deleting transaction: what it raises keeps the rows. A sink outside the
database may get rows twice, when the process dies between the file and the commit, so a reader
takes the last line of each key.

Run it: python examples/own_archive.py
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttl_odm.sweeper import Sweeper
from ttl_odm.testing import InMemoryStore

if TYPE_CHECKING:
    from ttl_odm.sweeper import Purged


class JsonLines:
    """A `ttl_odm.sweeper.ArchiveSink` that appends to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def write(self, purged: Purged) -> None:
        """Append the rows, and let nothing be deleted before they are on the disk."""
        as_of = purged.as_of.isoformat()
        with self.file.open("a") as file:
            for key, row in zip(purged.keys, purged.rows or (), strict=True):
                line = {"table": purged.table, "key": key, "as_of": as_of, "row": row}
                file.write(json.dumps(line, default=str) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def rows(self) -> dict[tuple[Any, ...], Any]:
        """Read them back, each once."""
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        return {(line["table"], *line["key"]): line["row"] for line in lines}


def main() -> None:
    """Archive the carts that nobody came back for."""
    with tempfile.TemporaryDirectory() as folder:
        sink = JsonLines(Path(folder) / "carts.jsonl")
        store = InMemoryStore()
        store.create("carts", default=60, archive=sink)
        store.put("carts", "ann", {"items": 3}, age=3600)
        store.put("carts", "bob", {"items": 1})
        report = Sweeper(store).run_once()
        print(f"{report.deleted} deleted, {report.archived} archived")
        print(sink.rows())


if __name__ == "__main__":
    main()
