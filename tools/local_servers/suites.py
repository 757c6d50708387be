"""Programs out of another of Debian's suites, beside the machine's own packages.

Some servers are in no stable Debian, or in a newer one than this. Their packages come from the
mirror that the machine's own apt uses, with their signatures checked, are unpacked into a cache,
and start through the loader and the libraries that came with them. Nothing is installed, no root
and no chroot is needed, and what is there already stays as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from local_servers.children import ServerError
from terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PATIENCE_SECONDS = 20
_TARGETS = (
    "apt-get",
    "indextargets",
    "--format",
    "$(COMPONENT) $(REPO_URI)",
    "Identifier: Packages",
)

# Below lib/*-linux-gnu: of libraries with alternatives, and of PulseAudio's own.
_FURTHER = ("blas", "lapack", "pulseaudio")

_ELF = b"\x7fELF"

# In place of each program, so that a program that it starts itself (initdb starts postgres) works
# too, and so does a Python in a virtual environment, which is a link to the launcher.
_LAUNCHER = """\
#!/bin/sh
{variables}exec {loader} --library-path {libraries} --argv0 "$0" {program}.elf "$@"
"""
_NATIVE_LAUNCHER = """\
#!/bin/sh
{variables}LD_LIBRARY_PATH={libraries} exec {program}.elf "$@"
"""


def own_release() -> str:
    """Return the code name of the machine's Debian, such as `bookworm`; empty elsewhere."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    return release.get("VERSION_CODENAME", "") if release["ID"] == "debian" else ""


@dataclass(frozen=True)
class Suite:
    """Packages of one suite, as they are kept here.

    Attributes:
        name: the suite's name on the mirror, such as `sid`.
        packages: what is wanted of it; what these depend on comes with them.
        programs: the paths of the programs to start, inside the packages, by their short names.
        libraries: further folders of libraries inside the packages.
        links: links that a package makes when it is installed, and what each leads to beside it.
        native: whether to start the programs with the machine's own loader, for programs that
            start themselves by `/proc/self/exe`. The suite must be the machine's own release.
        files: files to add, by their paths, with their texts. A script may name its `{loader}` and
            `{libraries}`.
        variables: environment variables of the programs; the values are paths in here.
    """

    name: str
    packages: tuple[str, ...]
    programs: tuple[tuple[str, str], ...]
    libraries: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    native: bool = False
    files: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        """Where its files are once it is here."""
        paths = (*(path for _, path in self.programs), *self.libraries, *sum(self.links, ()))
        added = (*sum(self.files, ()), *sum(self.variables, ()))
        words = " ".join((_LAUNCHER, _NATIVE_LAUNCHER, self.name, *self.packages, *paths, *added))
        digest = hashlib.sha256(words.encode()).hexdigest()[:8]
        return _cache() / f"{self.name}-{self.packages[0]}-{digest}"

    def find(self) -> dict[str, str] | None:
        """The programs, if it is here already."""
        if not self.folder.exists():
            return None
        return {name: str(self.folder / path) for name, path in self.programs}

    def obstacle(self) -> str:
        """Return why it can't be downloaded; empty if nothing is known to prevent it."""
        try:
            _mirror()
        except ServerError as error:
            return str(error)
        return ""

    def bring(self) -> None:
        """Download and unpack it, unless it is here; the next run finds it.

        Raises:
            ServerError: this is not Debian, or the mirror has no such suite or packages; with the
                errors that apt-get printed.
        """
        mirror = _mirror()
        _cache().mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            _cache().chmod(0o755)  # whatever the umask is
        with (_cache() / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.folder.exists():
                return
            say(f"servers: downloading {' '.join(self.packages)} of Debian's {self.name}")
            with _scratch() as scratch:
                archives = self._download(mirror, scratch)
                root = scratch / "root"
                _unpack(archives, root)
                for name, target in self.links:
                    (root / name).symlink_to(target)
                self._put_launchers(root)
                root.chmod(0o755)
                root.rename(self.folder)

    def _put_launchers(self, root: Path) -> None:
        """Replace each program by a script that starts it with the packages' own libraries.

        Args:
            root: where the files are now; the scripts name `folder`, where they will be.
        """
        place = self.folder
        folders = [*_library_folders(root), *(root / name for name in self.libraries)]
        paths = ":".join(str(place / path.relative_to(root)) for path in folders)
        words = {"libraries": quote(paths)}
        if not self.native:
            words["loader"] = quote(str(place / _loader(root).relative_to(root)))
        for name, text in self.files:
            file = root / name
            file.write_text(text.format(**words) if text.startswith("#!") else text)
            file.chmod(0o755)
        exports = [f"export {name}={quote(str(place / path))}\n" for name, path in self.variables]
        words["variables"] = "".join(exports)
        launcher = _NATIVE_LAUNCHER if self.native else _LAUNCHER
        for _, name in self.programs:
            program = root / name
            if not _is_machine_code(program):
                continue  # a script, which the machine's own shell runs
            program.rename(f"{program}.elf")
            program.write_text(launcher.format(**words, program=quote(str(place / name))))
            program.chmod(0o755)

    def _download(self, mirror: str, scratch: Path) -> list[Path]:
        """Fetch the packages with all that they depend on, as if nothing were installed."""
        for name in ("lists/partial", "archives/partial"):
            (scratch / name).mkdir(parents=True)
        sources = scratch / "sources.list"
        sources.write_text(f"deb [signed-by={_KEYRING}] {mirror} {self.name} main\n")
        settings = {
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": scratch / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": scratch,
            "Dir::Cache::archives": scratch / "archives",
            "APT::Install-Recommends": "false",
            "APT::Update::Error-Mode": "any",  # by itself it would only warn of a silent mirror
            "Acquire::Retries": 1,
            "Acquire::http::Timeout": _PATIENCE_SECONDS,
            "Acquire::https::Timeout": _PATIENCE_SECONDS,
            "Debug::NoLocking": "true",
        }
        if os.geteuid() == 0:
            settings["APT::Sandbox::User"] = "root"  # its own user may not enter our folder
        words = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        for action in (("update",), ("install", "--download-only", "--yes", *self.packages)):
            _run(["apt-get", *words, *action])
        return sorted((scratch / "archives").glob("*.deb"))


def _cache() -> Path:
    """Where packages are kept: servers that run as other users have to be able to go there."""
    if os.geteuid() == 0:
        return Path("/var/cache/ttl-odm")
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ttl-odm"


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for one download, on the cache's own disk, so that a rename completes it."""
    with tempfile.TemporaryDirectory(prefix="download-", dir=_cache()) as folder:
        yield Path(folder)


def _mirror() -> str:
    """The address of the Debian mirror that the machine's apt is set to."""
    for name in ("apt-get", "dpkg-deb", str(_KEYRING)):
        if shutil.which(name) is None and not Path(name).is_file():
            message = f"this is not Debian ({name} is missing)"
            raise ServerError(message)
    for line in _run([*_TARGETS]).splitlines():
        component, _, address = line.partition(" ")
        if component == "main" and address.rstrip("/").endswith("/debian"):
            return address
    message = "apt's sources name no mirror of Debian"
    raise ServerError(message)


def _unpack(archives: list[Path], root: Path) -> None:
    """Lay the files of the packages out, without running any script of theirs."""
    root.mkdir()
    for archive in archives:
        _run(["dpkg-deb", "--extract", str(archive), str(root)])
        archive.unlink()


def _loader(root: Path) -> Path:
    """Find the loader that came with the packages."""
    # Older suites have a link in /lib64 that leads to the machine's own.
    loaders = (
        loader
        for folder in ("usr/lib64", "lib64", "usr/lib", "lib", "usr/lib/*", "lib/*")
        for loader in sorted(root.glob(f"{folder}/ld-linux-*.so.*"))
        if loader.resolve().is_relative_to(root.resolve())
    )
    if (found := next(loaders, None)) is None:
        message = "the packages have no loader"
        raise ServerError(message)
    return found


def _is_machine_code(program: Path) -> bool:
    with program.open("rb") as file:
        return file.read(len(_ELF)) == _ELF


def _library_folders(root: Path) -> Iterator[Path]:
    """The folders of libraries, also those that packages link or name in their programs."""
    for folder in (*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu")):
        yield folder
        yield from (folder / name for name in _FURTHER if (folder / name).exists())


def _run(arguments: Sequence[str]) -> str:
    finished = subprocess.run(
        arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        lines = (finished.stdout + finished.stderr).splitlines()
        reasons = [line for line in lines if line.startswith("E:")] or lines[-1:]
        message = f"{arguments[0]} failed: {' '.join(reasons)}"
        raise ServerError(message)
    return finished.stdout
