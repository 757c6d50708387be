"""The end of what `inspect` prints: text to paste, and the commands to type next.

The text is Python if models were given, and a settings file in TOML otherwise. This module must not
know how proposals are made.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from ttl_odm.cli.tables import as_file
from ttl_odm.cli.urls import pasted_url
from ttl_odm.inspection import Confidence, as_source, declarations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ttl_odm.cli.output import Output
    from ttl_odm.inspection import Proposal

_VARIABLES: Final = ("DATABASE_URL", "TTL_ODM_URL")
"""Environment variables that may have the URL; the first is named if none has it."""

_FILE: Final = "ttl.toml"


class Place(NamedTuple):
    """How a file and a shell refer to a database: by its URL or an environment variable.

    Attributes:
        value: The value of ``url`` in the file.
        typed: The word for a command line.
        is_unset: Whether the variable has to be set first: the URL may have a password in it.
    """

    value: str
    typed: str
    is_unset: bool = False

    @classmethod
    def of(cls, url: str | None) -> Place:
        """Refer to a database without its password; without a URL, by the first variable."""
        variable = next((name for name in _VARIABLES if os.environ.get(name) == url), None)
        if variable is None and url is not None and url == pasted_url(url):
            return cls(url, shlex.quote(url))
        name = variable or _VARIABLES[0]
        return cls(f"${name}", f'"${name}"', is_unset=variable is None)


def for_models(output: Output, proposals: Sequence[Proposal], url: str | None) -> None:
    """Print declarations in Python, and how to try one."""
    output.line("Review each of these, then paste:", style="bold")
    output.line()
    output.code(declarations(proposals))
    if url is not None:
        output.line()
        output.line("Before you paste one, see what it would expire, and when:", style="bold")
        output.code(f"{_plan(proposals[0])} --url {Place.of(url).typed}")


def for_tables(
    output: Output, proposals: Sequence[Proposal], url: str | None, options: Sequence[str]
) -> None:
    """Print the settings file and how to write it.

    Args:
        output: Where to print.
        proposals: The proposals.
        url: The database's URL, if it was given.
        options: The options of `inspect` that were typed, to repeat them.
    """
    place = Place.of(url)
    django = [proposal for proposal in proposals if proposal.table.django is not None]
    if django:
        output.line("The Django project of these tables declares:", style="bold")
        output.line()
        output.code(declarations(django))
    else:
        output.line("For an application in Python, --models MODULE:NAME prints declarations.")
    output.line()
    output.line("These settings let ttl-odm sweep without a line of Python:", style="bold")
    output.line()
    output.code(as_file(proposals, place.value))
    _set(output, place)
    output.line("Write them to a file, and count what a sweep would delete:", style="bold")
    output.code(shlex.join(["ttl-odm", "inspect", *options]) + f" {place.typed} --write {_FILE}")
    _choose(output, proposals, _FILE)
    output.code(f"ttl-odm sweep --config {_FILE} --dry-run")
    output.line()
    output.line("Before you sweep, see what a policy would expire, and when:", style="bold")
    output.code(f"{_plan(_first(proposals))} --url {place.typed}")


def after_writing(
    output: Output, proposals: Sequence[Proposal], url: str | None, file: Path
) -> None:
    """Print what to do with the written file."""
    place, name = Place.of(url), shlex.quote(str(file))
    output.line(f"Written to {file}.", style="bold")
    _set(output, place)
    output.line("See what a policy would expire, and when:", style="bold")
    first = _first(proposals)
    if _is_clear(first):
        output.code(f"ttl-odm plan {shlex.quote(first.table.name)} --config {name}")
    else:
        output.code(f"{_plan(first)} --url {place.typed}")
    output.line()
    _choose(output, proposals, name)
    output.line("Then count what a sweep would delete:", style="bold")
    output.code(f"ttl-odm sweep --config {name} --dry-run")


def _set(output: Output, place: Place) -> None:
    if place.is_unset:
        output.line("Set the variable that has the URL, which may hold a password:", style="bold")
        output.code(f"export {place.value[1:]}=...")
        output.line()


def _choose(output: Output, proposals: Sequence[Proposal], file: str) -> None:
    if not any(map(_is_clear, proposals)):
        output.line(
            f"No proposal is certain, so all of them are comments: in {file}, remove the # before "
            "each policy that is right."
        )


def _is_clear(proposal: Proposal) -> bool:
    return proposal.confidence is Confidence.CLEAR


def _first(proposals: Sequence[Proposal]) -> Proposal:
    """Return the first clear proposal, or else the first."""
    return next(filter(_is_clear, proposals), proposals[0])


def _plan(proposal: Proposal) -> str:
    policy = as_source(proposal.policy, durations=True)
    return shlex.join(["ttl-odm", "plan", proposal.table.name, "--policy", policy])
