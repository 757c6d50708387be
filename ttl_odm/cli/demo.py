"""``ttl-odm demo``: shows what the library does, in about eight seconds.

Nothing is staged: it uses the public API on a real SQLite file. Counts called "in the file" are
read by the standard library's sqlite3 on a separate connection, which ttl_odm doesn't see.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.syntax import Syntax
from rich.table import Table
from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm import NEVER, ExpiredError
from ttl_odm.cli.output import picture
from ttl_odm.cli.progress import Rows
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ttl_odm.sweeper import Progress as SweepProgress

_WATCH_SECONDS: Final = 5.0
_REFRESH_SECONDS: Final = 0.2
_CROWD: Final = 10_000
"""Anonymous carts, so that the sweep has something to do."""

_DRAWN_WIDTH: Final = 96
"""Columns of a drawing, which fit on a page and are enough for each line."""

_LONG: Final = 3_600
"""Seconds; a row that lives so long is live at the end, however slow the machine is."""

_SOURCE: Final = """\
class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = 3  # seconds after the last write

    owner: Mapped[str] = mapped_column(primary_key=True)
    items: Mapped[int] = mapped_column(default=1)
"""


class Base(DeclarativeBase):
    """The demo's declarative base."""


class Cart(TTLMixin, Base):
    """The model that `_SOURCE` shows."""

    __tablename__ = "carts"
    __ttl__ = 3

    owner: Mapped[str] = mapped_column(primary_key=True)
    items: Mapped[int] = mapped_column(default=1)


def show(svg: Path | None = None) -> None:
    """Run the demo, and draw it into a file if one is named."""
    console = Console(record=svg is not None, width=None if svg is None else _DRAWN_WIDTH)
    with tempfile.TemporaryDirectory(prefix="ttl-odm-demo-") as folder:
        file = Path(folder) / "demo.sqlite3"
        engine = create_engine(f"sqlite:///{file}")
        try:
            _Demo(console, engine, file).run()
        finally:
            engine.dispose()
    if svg is not None:
        svg.write_text(picture(console, "ttl-odm demo"), encoding="utf-8")


class _Demo:
    def __init__(self, console: Console, engine: Engine, file: Path) -> None:
        self._console = console
        self._engine = engine
        self._file = file

    def run(self) -> None:
        self._say("1. A model declares how long its rows live.")
        # The terminal's own colours are readable on a light and on a dark background.
        code = Syntax(_SOURCE.rstrip(), "python", theme="ansi_dark", background_color="default")
        self._console.print(Panel(code, expand=False))
        self._console.print()
        Base.metadata.create_all(self._engine)
        with Session(self._engine, expire_on_commit=False) as session:
            self._expire(session)
        self._sweep()

    def _expire(self, session: Session) -> None:
        self._say(
            "2. Insert rows: ann and bob with the default, cyd with a ttl of 1 s, dee with 1 h,\n"
            f"   eve with -1 (never), and {_CROWD:,} guests with 2 s. Watch a plain select(Cart):"
        )
        ann = Cart(owner="ann")
        session.add_all([ann, Cart(owner="bob"), Cart(owner="cyd", ttl=1)])
        session.add_all([Cart(owner="dee", ttl=_LONG), Cart(owner="eve", ttl=NEVER)])
        session.add_all([Cart(owner=f"guest {number:04}", ttl=2) for number in range(_CROWD)])
        session.commit()
        start = monotonic()
        with Live(console=self._console, auto_refresh=False) as live:
            passed = 0.0
            while passed < _WATCH_SECONDS:  # the last refresh is after that, however slow each is
                passed = monotonic() - start
                live.update(self._screen(session, passed), refresh=True)
                sleep(_REFRESH_SECONDS)
        self._console.print()

        self._say("3. A session still holds ann's expired cart, and changes it:")
        session.add(ann)
        ann.items = 2
        try:
            session.commit()
        except ExpiredError as error:
            session.rollback()
            self._console.print(f"   [red]ExpiredError:[/] {error}\n", highlight=False)

        self._say("4. The key is free, although the old row is still in the file:")
        session.expunge_all()
        session.add(Cart(owner="ann", items=7, ttl=_LONG))
        session.commit()
        again = session.get_one(Cart, "ann")
        self._console.print(
            f"   session.add(Cart(owner='ann', items=7, ttl={_LONG})) is stored: "
            f"items = {again.items}\n",
            highlight=False,
        )

    def _screen(self, session: Session, passed: float) -> Group:
        rows = session.scalar(select(func.count()).select_from(Cart))
        table = Table("owner", "ttl", "time left")
        people = select(Cart).where(Cart.owner.not_like("guest%")).order_by(Cart.owner)
        for cart in session.scalars(people):
            time_left = cart.time_left
            table.add_row(
                cart.owner,
                "default" if cart.ttl is None else str(cart.ttl),
                "for ever" if time_left is None else f"{time_left.total_seconds():8.1f} s",
            )
        session.rollback()  # the next refresh begins a transaction
        session.expunge_all()
        return Group(
            f"   after {passed:.1f} s, select(Cart) finds [bold]{rows:,}[/] rows"
            f" ({self._in_file():,} are in the file)",
            Padding(table, (0, 0, 0, 3)),
        )

    def _sweep(self) -> None:
        self._say("5. Sweeper(engine, Base).run_once() deletes the expired rows in small batches:")
        before = self._in_file()
        bar_column = BarColumn(finished_style="green")
        columns = (TextColumn("   deleting"), bar_column, Rows())
        with Session(self._engine) as session:
            expired = before - (session.scalar(select(func.count()).select_from(Cart)) or 0)
        with Progress(*columns, console=self._console) as bar:
            task = bar.add_task("rows", total=expired)

            def show(progress: SweepProgress) -> None:
                bar.update(task, completed=progress.deleted_so_far)

            report = Sweeper(self._engine, Base, on_progress=show).run_once()
        report.raise_for_failures()
        self._console.print(Padding(str(report), (1, 0, 0, 3)), highlight=False)
        self._console.print(
            f"\n   In the file: {before:,} rows before, [bold]{self._in_file():,}[/] after.",
            highlight=False,
        )

    def _in_file(self) -> int:
        with closing(sqlite3.connect(self._file)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM carts").fetchone()
        return int(count)

    def _say(self, text: str) -> None:
        self._console.print(f"[bold]{text}[/]\n", highlight=False)
