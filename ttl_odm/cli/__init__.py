"""The command line, ``ttl-odm``.

- `commands`: the group of all commands
- `sweep`, `run`, `status` (with pause and resume), `check` (with replicas), `plan`, `inspect`,
  `demo`: the commands
- `extensions`: the commands and checks that extensions bring
- `source`: the options that say what a command works on
- `options`: options that several commands have; `configuration`: their defaults in pyproject.toml
- `application`: an engine and what to sweep with it; `connect`: makes one from ``--app`` and
  ``--url``
- `urls`: engines and clients of database URLs; `tables`: policies of tables without a model
- `checks_sql`, `checks_rows`, `checks_keys`, `checks_tables`, `checks_mongodb`: what `check` looks
  at; `checked_table`: how it reads a table
- `plan_page`: the page that `plan` writes; `next_steps`: the end of what `inspect` prints
- `output`: tables, paragraphs, JSON, a console as an SVG; `progress`: bars on a terminal;
  `telemetry`: metrics and spans
- `errors`: how a command fails, without a traceback and without passwords

This module only checks whether the extra is installed.
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
    from ttl_odm.sweeper.command_line import escape_unencodable  # noqa: PLC0415

    escape_unencodable()
    cli()
