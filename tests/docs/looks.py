"""A browser that walks through the documentation site, and what it has seen there."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, Literal

from tests.browsers import faint_text, launched
from tests.guard import GUARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page, Response

WIDTHS: Final = {"a phone": 390, "a tablet": 820, "a laptop": 1440}
"""What pages are looked at on, in CSS pixels."""
HEIGHT: Final = 900
LOOKS: Final[tuple[tuple[str, Literal["light", "dark"]], ...]] = (
    *(("a laptop", "light"), ("a tablet", "light"), ("a phone", "light"), ("a phone", "dark")),
)
"""How pages are looked at. Dark pages have other colours and pictures, so one width is enough."""

# What goes over the page's edge, and is in no box of its own that scrolls. Below the width of
# 46 em the theme lets the whole text scroll, which would hide that.
_TOO_WIDE: Final = """() => {
  const width = document.documentElement.clientWidth
  const text = document.querySelector("article")
  const scrolls = (element) => {
    for (let box = element; box !== text; box = box.parentElement)
      if (getComputedStyle(box).overflowX !== "visible") return true
    return false
  }
  const wide = [...text.querySelectorAll("*")].filter((element) => {
    const { left, right, width: own } = element.getBoundingClientRect()
    return own && (right > width + 1 || left < -1) && !scrolls(element)
  })
  if (document.documentElement.scrollWidth > width) wide.unshift(document.documentElement)
  return wide.map((element) => element.outerHTML.slice(0, 200))
}"""
_UNLOADED: Final = """() => [...document.images].filter((image) => !image.naturalWidth)
  .map((image) => image.src)"""
_SCROLLED: Final = """(boxes) => boxes.filter((box) => box.scrollWidth > box.clientWidth)
  .map((box) => box.textContent.trim().slice(0, 200))"""
# Each word's colour against what lies below its word's middle, by WCAG's formula.
_FAINT_WORDS: Final = """() => {
  const light = (color) => {
    const [red, green, blue] = color.match(/[0-9.]+/g).map((part) => {
      const value = part / 255
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4
    })
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
  }
  const fill = (element) => getComputedStyle(element).fill
  const paints = (element) =>
    element.matches("rect, path") && fill(element) !== "none" && !element.closest("clipPath")
  return [...document.querySelectorAll("text")].flatMap((word) => {
    const { left, top, width, height } = word.getBoundingClientRect()
    const below = document.elementsFromPoint(left + width / 2, top + height / 2).find(paints)
    if (!below) return [`nothing is below ${word.textContent}`]
    const [dark, bright] = [light(fill(word)), light(fill(below))].sort((a, b) => a - b)
    const contrast = (bright + 0.05) / (dark + 0.05)
    return contrast < 4.5 ? [`${word.textContent}: ${contrast.toFixed(1)}`] : []
  })
}"""


@dataclass
class Seen:
    """What was found on a walk through all pages, as lines for a reader.

    Attributes:
        pages: How many there were.
        too_wide: What is wider than its page.
        unloaded: Images that are not there.
        from_elsewhere: Requests to another host.
        failed: Requests that failed.
    """

    pages: int = 0
    too_wide: list[str] = field(default_factory=list)
    unloaded: list[str] = field(default_factory=list)
    from_elsewhere: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class Reader:
    """Somebody with a browser, who looks at one page after the other."""

    def __init__(self, page: Page, address: str) -> None:
        """Look at a site.

        Args:
            page: The browser's.
            address: Where the site is served.
        """
        self.page = page
        self._address = address

    def open(self, name: str, *, width: int = WIDTHS["a laptop"], mode: str = "light") -> Page:
        """Open a page, or a picture.

        Args:
            name: Its path in the site.
            width: The window's, in CSS pixels.
            mode: What the system's colour scheme is.
        """
        self.page.set_viewport_size({"width": width, "height": HEIGHT})
        self.page.emulate_media(color_scheme=mode)  # type: ignore[arg-type]
        self.page.goto(f"{self._address}/{name}")
        return self.page

    def walk(self, names: Iterable[str]) -> Seen:
        """Open pages, and look at each in every width and mode.

        Args:
            names: Their paths in the site.
        """
        seen = Seen()

        def answered(response: Response) -> None:
            if response.status >= HTTPStatus.BAD_REQUEST:
                seen.failed.append(f"{response.status} {response.url}")

        def asked(url: str) -> None:
            if not url.startswith((self._address, "data:")):
                seen.from_elsewhere.append(url)

        self.page.on("request", lambda request: asked(request.url))
        self.page.on("response", answered)
        for name in names:
            self.open(name)
            seen.pages += 1
            seen.unloaded += [f"{name}: {image}" for image in self.page.evaluate(_UNLOADED)]
            for where, mode in LOOKS:
                self.page.emulate_media(color_scheme=mode)
                self.page.set_viewport_size({"width": WIDTHS[where], "height": HEIGHT})
                wide = self.page.evaluate(_TOO_WIDE)
                seen.too_wide += [f"{name} on {where}, {mode}: {what}" for what in wide]
        return seen

    def scrolled(self, selector: str) -> list[str]:
        """Which boxes of the page don't show all that is in them; there have to be some."""
        boxes = self.page.locator(selector)
        assert boxes.count(), f"the page has no {selector}"
        found: list[str] = boxes.evaluate_all(_SCROLLED)
        return found

    def faint_words(self) -> list[str]:
        """Words of a picture that are hard to tell from what is below them."""
        size = self.page.locator("svg").first.bounding_box()
        assert size is not None
        self.page.set_viewport_size({"width": 1200, "height": int(size["height"]) + 1})
        found: list[str] = self.page.evaluate(_FAINT_WORDS)
        return found

    def faint_text(self) -> list[str]:
        """Text of the page whose contrast is less than WCAG's level AA asks for."""
        return faint_text(self.page)


@contextlib.contextmanager
def reader(program: str, site: Path) -> Iterator[Reader]:
    """Serve the site to a browser.

    Args:
        program: The browser.
        site: The folder of the site.
    """
    with _served(site) as address, launched(program) as browser:
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        context.set_default_timeout(GUARD * 1000)
        yield Reader(context.new_page(), address)


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def _served(site: Path) -> Iterator[str]:
    handler = partial(_Silent, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
