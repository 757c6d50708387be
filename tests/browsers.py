"""The browser of the tests: Chromium, which `tools/programs.py` finds or downloads.

Only `.venv` has what drives it.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import sqlalchemy

from tests.guard import GUARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

TOOLS: Final = Path(__file__).parents[1] / "tools"

in_venv_only = pytest.mark.skipif(
    sqlalchemy.__version__.startswith("2.0."), reason="a browser is driven in .venv only"
)
"""By the version, not by whether Playwright can be imported: in .venv its absence is a failure."""


def program(name: str = "BROWSER") -> str:
    """Return the path of a program of `tools/programs.py`.

    Skips the test if the program was left out on purpose.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(TOOLS)
        import programs
    wanted: programs.Program = getattr(programs, name)
    if wanted.is_left_out():
        pytest.skip(f"{wanted.option}=none leaves out what needs {wanted.title}")
    try:
        return wanted.path()
    except programs.NoProgramError as error:
        pytest.fail(str(error))


@contextmanager
def launched(path: str) -> Iterator[Browser]:
    """Start a browser, and close it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its sandbox wants a user that is not root, and we open no page of others.
        browser = playwright.chromium.launch(
            executable_path=path, chromium_sandbox=False, timeout=GUARD * 1000
        )
        try:
            yield browser
        finally:
            browser.close()


def faint_text(page: Page) -> list[str]:
    """Text of a page whose contrast is less than WCAG's level AA asks for."""
    # Colours of the other mode fade out in a moment, and no moment is long enough for all.
    page.add_style_tag(content="* { transition: none !important }")
    return violations(page, "color-contrast")


def violations(page: Page, *rules: str) -> list[str]:
    """What axe finds on a page by some of its rules, or by all."""
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    options = {"runOnly": list(rules)} if rules else {}
    found: Any = page.evaluate("(options) => axe.run(options)", options)
    assert found["passes"], "nothing was looked at"
    return [
        f"{node['html']}: {node['failureSummary']}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]
