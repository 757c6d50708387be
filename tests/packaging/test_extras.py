"""Each extra alone, installed from the wheel: its modules are there and do something real.

The scripts in `uses` are run by the environment's own interpreter in a folder of its own, so that
nothing of the source tree and no other extra can help.
"""

from __future__ import annotations

import email
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.packaging.conftest import install

if TYPE_CHECKING:
    from tests.packaging.conftest import Installed, Packages

pytestmark = [pytest.mark.slow, pytest.mark.in_turns]

USES = Path(__file__).parent / "uses"

# Each extra, and the packages of ours that have to be importable as a whole.
EXTRAS = {
    "sqlalchemy": "ttl_odm.sqlalchemy",
    "beanie": "ttl_odm.beanie",
    "motor": "ttl_odm.beanie",
    "alembic": "ttl_odm.alembic",
    "flask": "ttl_odm.integrations.flask",
    "fastapi": "ttl_odm.integrations.fastapi",
    "django": "ttl_odm.integrations.django",  # the rest only within a project: use_django.py
    "cli": "ttl_odm.cli",
    "metrics": "ttl_odm.metrics",
    "guard": "ttl_odm.sqlalchemy",
    "langgraph": "ttl_odm.integrations.langgraph",
}


FOR_DEVELOPERS = {"test", "lint", "docs", "bench", "dev"}


@pytest.fixture(scope="module")
def bare(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(packages, tmp_path_factory.mktemp("bare") / "venv", "")


def use(installed: Installed, script: str, *arguments: str) -> None:
    """Run a script of `uses`; -I keeps its folder and the user's own off the path."""
    finished = installed.run("python", "-I", "-W", "error", str(USES / script), *arguments)
    assert finished.returncode == 0, finished.stderr


def test_every_extra_is_tried(packages: Packages) -> None:
    with zipfile.ZipFile(packages.wheel) as wheel:
        name = next(each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
        extras = email.message_from_bytes(wheel.read(name)).get_all("Provides-Extra")
    assert set(extras or ()) == {*EXTRAS, "all", *FOR_DEVELOPERS}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_does_its_work_alone(packages: Packages, tmp_path: Path, extra: str) -> None:
    installed = install(packages, tmp_path / "venv", extra)
    use(installed, "import_all.py", EXTRAS[extra])
    use(installed, f"use_{extra}.py")


def test_the_contract_and_the_sweeper_work_without_any(bare: Installed) -> None:
    use(bare, "import_all.py", "ttl_odm.core", "ttl_odm.sweeper", "ttl_odm.inspection.proposals")
    use(bare, "use_nothing.py")


def test_the_command_line_says_which_extra_it_needs(bare: Installed) -> None:
    finished = bare.run("ttl-odm", "--help")
    assert finished.returncode == 1
    assert finished.stderr == (
        "ttl-odm: the command line needs click and rich; install it with: "
        "pip install 'ttl-odm[cli,sqlalchemy]'\n"
    )


def test_type_checkers_see_the_types_of_what_is_installed(bare: Installed) -> None:
    (bare.folder / "app.py").write_text(
        "from datetime import timedelta\n"
        "from ttl_odm import TTL\n"
        "from ttl_odm.sweeper import SweepReport\n"
        "seconds: int = TTL(timedelta(hours=1)).max_lifetime or 0\n"
        "wrong: str = SweepReport().deleted\n"
    )
    from mypy import api

    # The checker is ours, the packages that it sees are those of the environment.

    python = ["--python-executable", bare.program("python"), "--cache-dir", str(bare.folder / "m")]
    said, trouble, status = api.run(
        ["--strict", "--config-file", "", *python, str(bare.folder / "app.py")]
    )
    assert (status, trouble) == (1, "")
    assert "app.py:5: error: Incompatible types in assignment" in said
    assert said.count("error:") == 1, said
