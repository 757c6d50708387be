"""An integration brings in its own framework and no other, and is imported only when used."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORKS = {
    *("flask", "fastapi", "starlette", "litestar", "celery", "apscheduler", "dramatiq"),
    *("procrastinate", "langgraph", "sqlalchemy", "beanie", "pymongo", "django", "rich"),
}
IN_DJANGO = (
    "django; django.conf.settings.configure(INSTALLED_APPS=['ttl_odm.django']); django.setup(); "
    "from ttl_odm.django.management.commands import ttl_check, ttl_pause, ttl_plan, ttl_status"
)
PROBE = "import sys, {}; print(*sorted(name for name in sys.modules if '.' not in name))"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "brings"),
    [
        ("ttl_odm.integrations, ttl_odm.integrations.fastapi, ttl_odm.sweeper", set()),
        ("ttl_odm.integrations.flask", {"flask", "sqlalchemy"}),
        (f"django.conf, {IN_DJANGO}", {"django"}),
        ("ttl_odm.integrations.celery", set()),
        ("ttl_odm.integrations.apscheduler", {"apscheduler"}),
        ("ttl_odm.integrations.dramatiq", {"dramatiq"}),
        ("ttl_odm.integrations.procrastinate", set()),
        ("ttl_odm.integrations.langgraph", {"langgraph", "sqlalchemy"}),
    ],
)
def test_an_integration_imports_its_own_framework_only(module: str, brings: set[str]) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROBE.format(module)], capture_output=True, text=True, check=True
    )
    assert FRAMEWORKS & set(found.stdout.split()) == brings
