"""django-oauth-toolkit's own tests pass through Django's gate as they do without it.

They come from the source distribution of the version that is installed, and run once with the
policy for access tokens that docs/django.md shows, and once without any. Chosen are the tests of
what asks for tokens: every grant by code and its refresh, introspection, revocation, and the
command that clears tokens. On SQLite: tests/django_app has the gate on every database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import oauth2_provider
import pytest

from tests.other_suites import failures, unpacked

pytestmark = [pytest.mark.slow, pytest.mark.in_turns]

PLUGIN: Final = Path(__file__).with_name("tokens_through_the_gate.py")
CHOSEN: Final = (
    "tests/test_auth_backends.py",
    "tests/test_authorization_code.py",
    "tests/test_introspection_view.py",
    "tests/test_models.py::TestAccessTokenModel",
    "tests/test_models.py::TestClearExpired",
    "tests/test_models.py::TestClearRevoked",
    "tests/test_models.py::TestRefreshTokenModel",
    "tests/test_password.py",
    "tests/test_token_revocation.py",
    "tests/test_token_view.py",
)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder with the tests, as a package: they import each other's helpers."""
    folder = tmp_path_factory.mktemp("oauth")
    version = oauth2_provider.__version__
    suite = unpacked("django-oauth-toolkit", version, "oauth2_provider", folder)
    (suite / "tests" / "__init__.py").touch()
    return suite


@pytest.mark.parametrize("policy", ["none", "hour"])
def test_nothing_fails(policy: str, suite: Path) -> None:
    words = [*CHOSEN, "-o", "addopts=", "-W", "ignore"]
    assert not failures(suite, words, PLUGIN, {"TTL_ODM_POLICY": policy}, least=170)
