"""Run a command with private, real database servers: `python tools/servers.py -- CMD...`.

PostgreSQL, MariaDB and a one-node MongoDB replica set start on free ports of the loopback
address, in a temporary folder; the command finds their URLs in its environment. When it ends, or
is interrupted, the servers are stopped and the folder is removed. The exit status is the command's.
`--only documentdb` starts that engine in the place of MongoDB.
"""

from __future__ import annotations

import argparse
import sys

from local_servers.children import ServerError
from local_servers.lifetime import BACKENDS, ON_REQUEST, running
from terminal import end_orderly_on_signals, run, say, split_at_dashes

CANNOT_START = 3


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        prog="servers.py",
        description=(__doc__ or "").partition("\n")[0],
        usage="%(prog)s [--only BACKEND]... -- CMD...",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=(*BACKENDS, *(kind.name for kind in ON_REQUEST)),
        help="start nothing but this; may be repeated (sqlite needs no server)",
    )
    own_words, command = split_at_dashes(sys.argv[1:])
    arguments = parser.parse_args(own_words)
    if not command:
        parser.error("what shall I run? Put it after --")
    end_orderly_on_signals()
    try:
        with running(arguments.only) as urls:
            return run(command, urls)
    except ServerError as error:
        say(str(error))
        return CANNOT_START
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
