"""The environment variables that tests see: the same on every machine.

A variable that Python, pip, git, a database's client, a framework or a terminal obeys would make a
test fail for one developer only. Which ones there are is more than anybody can list, so those that
are needed are listed instead, as tox does it: all others are removed.
"""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEPT: Final = frozenset(
    {
        # Where programs, libraries, people and their files are.
        *("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "NIX_LD", "NIX_LD_LIBRARY_PATH"),
        *("HOME", "USER", "LOGNAME", "SHELL", "PYENV_ROOT"),
        *("TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"),
        # How packages are downloaded.
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("NODE_EXTRA_CA_CERTS", "NETRC"),
        *("PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"),
        *("PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY"),
        *("PIP_CACHE_DIR", "PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES"),
        *("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"),
        *(
            "UV_CACHE_DIR",
            "UV_NATIVE_TLS",
            "UV_SYSTEM_CERTS",
            "UV_INSECURE_HOST",
            "UV_HTTP_TIMEOUT",
        ),
        *("DEBIAN_FRONTEND", "TTL_ODM_DURABLE_SERVERS"),
    }
)
_KEPT_PREFIX: Final = "TTL_ODM_TEST_"
_LOCAL: Final = "127.0.0.1,localhost"
_UMASK: Final = 0o022
_ENCODING: Final = ("PYTHONIOENCODING", "PYTHONUTF8")

_SET: Final = {
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
}


def controlled(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to run everything with.

    Args:
        environment: The variables that the command was called with.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIX)
    }
    proxies = {
        name: ",".join(filter(None, (environment.get(name), _LOCAL)))
        for name in ("NO_PROXY", "no_proxy")
    }
    return {"PATH": os.defpath, "HOME": _home(), **kept, **proxies, **_SET}


def _home() -> str:
    """Return the home of the user that we are; a user without an entry has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/nonexistent"


def take_control() -> None:
    """Give this process, and so all that it starts, controlled variables and a plain umask."""
    variables = controlled(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    os.umask(_UMASK)


def forget_python() -> None:
    """Remove what would change how Python works in this process's children, but for their encoding.

    For a command that otherwise respects people's variables: with PYTHONWARNINGS=error pip fails.
    """
    for name in [*os.environ]:
        if name.startswith("PYTHON") and name not in _ENCODING:
            del os.environ[name]
