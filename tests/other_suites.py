"""Running other projects' own tests through the gate, in processes of their own.

They come from the source distribution on the package index, and run against what is installed, so
the package itself is taken out of what was unpacked. What fails is asked of pytest's own report.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import ttl_odm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def unpacked(name: str, version: str, package: str, folder: Path) -> Path:
    """Give the folder with a project's tests, without its package."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    download += ["--no-binary", name, "--dest", str(folder), f"{name}=={version}"]
    subprocess.run(download, check=True, timeout=300)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        # Python 3.13 wants to be told, and the first 3.10s can't be.
        packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        packed.extractall(folder)  # noqa: S202 - from the package index, like all that runs here
    (suite,) = (path for path in folder.iterdir() if path.is_dir())
    shutil.rmtree(suite / package)
    return suite


def failures(
    suite: Path, words: Sequence[str], plugin: Path, variables: Mapping[str, str], *, least: int
) -> set[str]:
    """Run a suite with a plugin of ours, and return the names of the tests that fail.

    So many have to pass, at least: a suite that was not found would fail in nothing.
    """
    report = suite / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", *words, "--quiet", "--tb=short"]
    command += ["-p", plugin.stem, "-p", "no:cacheprovider", f"--junitxml={report}"]
    places = [str(plugin.parent), str(Path(ttl_odm.__file__).parents[1])]
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(places)}
    finished = subprocess.run(
        command, cwd=suite, env=environment, capture_output=True, text=True, check=False
    )
    assert report.exists(), finished.stdout[-4000:] + finished.stderr[-4000:]
    cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - pytest wrote it just now
    failed = {
        f"{case.get('classname')}.{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    assert len(cases) - len(failed) >= least, finished.stdout[-20_000:]
    if failed:
        sys.stdout.write(finished.stdout[-20_000:])
    return failed
