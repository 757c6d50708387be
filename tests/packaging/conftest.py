"""Builds the packages once, and makes an environment for each extra: what a user would install.

`uv` does both, in a second where pip takes ten. It is asked without the network first: what another
run has fetched is in its cache, and these tests then work on a train. Only `.venv` has it, so they
run once, not for each set of versions.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.guard import GUARD

ROOT = Path(__file__).resolve().parents[2]
HAS_UV = importlib.util.find_spec("uv") is not None

# Nothing of the developer's: no path to the source tree, no environment that is active.
OUTSIDE = {
    key: value
    for key, value in os.environ.items()
    if not key.startswith(("PYTHON", "VIRTUAL_ENV", "TTL_ODM", "DJANGO", "FLASK"))
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave it to `.venv`."""
    if not HAS_UV:
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="packages are built in .venv only"))


def uv(*arguments: str) -> None:
    """Run uv, with the network only if it has to."""
    from uv import find_uv_bin

    command = [find_uv_bin(), *arguments]
    for offline in (["--offline"], []):
        finished = subprocess.run(
            [*command, *offline],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env=OUTSIDE,
        )
        if finished.returncode == 0:
            return
    raise AssertionError(f"uv {' '.join(arguments)}:\n{finished.stderr}")


@dataclass(frozen=True)
class Packages:
    """What a release uploads."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Build the sdist, and the wheel out of the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--out-dir", str(folder), str(ROOT))
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Packages(sdist, wheel)


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, away from the source tree."""

    folder: Path

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs in a folder that has nothing in it."""
        return subprocess.run(
            [self.program(program), *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD,
            env=OUTSIDE,
        )


def install(packages: Packages, folder: Path, extra: str) -> Installed:
    """Make an environment with the wheel and one extra ("" for none)."""
    uv("venv", "--quiet", "--python", sys.executable, str(folder))
    wanted = f"ttl-odm[{extra}] @ {packages.wheel.as_uri()}" if extra else str(packages.wheel)
    uv("pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), wanted)
    return Installed(folder)
