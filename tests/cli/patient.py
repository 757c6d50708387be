"""An application that says where it is, and goes on when it reads ``go`` from standard input."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import click
from click import termui
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from tests.cli.shop import Base


def wait() -> None:
    """Wait, and answer every other line: who reads two answers knows that a signal was heard."""
    click.echo("waiting", err=True)
    for line in iter(sys.stdin.readline, "go\n"):
        click.echo(f"heard {line}", nl=False, err=True)
        if not line:
            raise SystemExit("nobody is there any more")


async def wait_async() -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    click.echo("waiting", err=True)
    while (line := await reader.readline()) not in (b"go\n", b""):
        click.echo(b"heard " + line, nl=False, err=True)


def blocking() -> Any:
    return create_engine(os.environ["SHOP_URL"]), Base, {"throttle": wait}


def blocking_in_a_loop() -> Any:
    url = os.environ["SHOP_URL"].replace("sqlite:", "sqlite+aiosqlite:")
    return create_async_engine(url), Base, {"throttle": wait}


def awaiting() -> Any:
    url = os.environ["SHOP_URL"].replace("sqlite:", "sqlite+aiosqlite:")
    return create_async_engine(url), Base, {"throttle": wait_async}


def interrupt_question(text: str) -> str:
    """What asks, in a terminal: here ^C and then ``y`` are typed.

    From outside nobody knows when the process reads, and a driver's thread may take the signal.
    """
    click.echo(text)
    signal.raise_signal(signal.SIGINT)
    return "y"


def answering() -> Any:
    termui.visible_prompt_func = interrupt_question
    return create_engine(os.environ["SHOP_URL"]), Base


def answering_async() -> Any:
    termui.visible_prompt_func = interrupt_question
    url = os.environ["SHOP_URL"].replace("sqlite:", "sqlite+aiosqlite:")
    return create_async_engine(url), Base


def interrupt_count(*call: Any) -> None:
    """What an engine executes: here ^C is typed while rows are counted."""
    if "count(" in call[2].lower():
        signal.raise_signal(signal.SIGINT)


def interrupted() -> Any:
    engine = create_engine(os.environ["SHOP_URL"])
    event.listen(engine, "before_cursor_execute", interrupt_count)
    return engine, Base


if os.environ.get("PATIENT") == "import":
    wait()
