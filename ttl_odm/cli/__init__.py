"""The command line, ``ttl-odm``.

- `commands`: the group, which has all of them
- `sweep`, `run`, `pause` (and resume), `status`, `check`, `plan`, `inspect`, `demo`: a command each
- `extensions`: the commands, and the checks, that extensions bring
- `source`: what a command works on, as its options name it
- `options`: the options that several have; `configuration`: their defaults in pyproject.toml
- `application`: an engine and what to sweep with it; `connect`: what ``--app`` and ``--url`` name
- `replicas`: replicas that `check` asks for their clocks
- `urls`: engines and clients of database URLs; `tables`: those whose policies no model declares
- `checks_sql`, `checks_rows`, `checks_references`, `checks_tables`, `checks_cascades`,
  `checks_links`, `checks_mongodb`: what `check` looks at; `checked_table`: how it reads a table;
  `findings`: what it finds
- `plan_page`: the page that `plan` writes; `next_steps`: what `inspect` ends with
- `output`: tables, paragraphs, JSON; `bars`: bars on a terminal; `picture`: a console as an SVG;
  `telemetry`: metrics and spans
- `errors`: how a command fails, without a traceback and without passwords

This module only finds out whether the extra is installed.
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
