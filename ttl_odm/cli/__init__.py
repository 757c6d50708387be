"""The command line, ``ttl-odm``.

This module only finds out whether the extra is installed; the commands are in
`ttl_odm.cli.commands`.
"""

from __future__ import annotations

import importlib.util


def main() -> None:
    """Run the command line (the entry point ``ttl-odm``)."""
    missing = [name for name in ("click", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"ttl-odm: the command line needs {' and '.join(missing)}; "
            "install it with: pip install 'ttl-odm[cli,sqlalchemy]'"
        )
    from ttl_odm.cli.commands import cli  # noqa: PLC0415 - needs the extra

    cli()
