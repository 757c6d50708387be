"""Says what the members of a replica set say of themselves, to whoever connects.

`mongodb_members` runs this with a Python that has PyMongo, since its own may have none, and asks
often: a process for each question would take a third of a second to import PyMongo. A question is a
line of JSON with addresses; the answer has the states of those that answer at once.
"""

from __future__ import annotations

import json
import socketserver
import sys
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

_LIMITS = dict.fromkeys(("serverSelectionTimeoutMS", "socketTimeoutMS"), 2000)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        question = self.rfile.readline() or b"[]"  # empty from those who try whether we listen
        states = {url: _state(url) for url in json.loads(question)}
        known = {url: state for url, state in states.items() if state is not None}
        self.wfile.write(json.dumps(known).encode())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


def _state(url: str) -> dict[str, Any] | None:
    """What a member says of itself; `optime` is a term, then seconds and a number within them."""
    with MongoClient[Any](url, **_LIMITS) as client:  # type: ignore[arg-type]
        try:
            hello = client.admin.command("hello")
        except PyMongoError:
            return None
    written = hello["lastWrite"]["opTime"]
    return {
        "is_primary": hello["isWritablePrimary"],
        "is_secondary": hello["secondary"],
        "optime": [written["t"], written["ts"].time, written["ts"].inc],
    }


if __name__ == "__main__":
    with _Server((sys.argv[1], int(sys.argv[2])), _Handler) as server:
        server.serve_forever()
