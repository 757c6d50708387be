"""What holds for every command: own processes, JSON, completion, and no password anywhere."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli import shop
from tests.cli.running import TIMEOUT, CliRunner, as_json, run, variables
from ttl_odm.cli.commands import cli
from ttl_odm.cli.errors import in_one_line
from ttl_odm.cli.run import log_to
from ttl_odm.cli.sweep import ProgressDisplay, within
from ttl_odm.sweeper import Progress

if TYPE_CHECKING:
    from sqlalchemy import Engine

PROGRAM = Path(sys.executable).with_name("ttl-odm")


@pytest.mark.databases("sqlite")
def test_each_command_works_in_a_process_of_its_own_and_prints_json(engine: Engine) -> None:
    shop.fill(engine)
    url = engine.url.render_as_string(hide_password=False)
    app = {"TTL_ODM_APP": "tests.cli.shop:Base", "TTL_ODM_URL": url}

    def told(*words: str) -> Any:
        return as_json(run(*words, "--json", **app))

    assert told("pause")["paused"] is True
    assert told("sweep")["ended"] == "paused"
    assert told("status")["lease"]["paused"] is True
    assert told("resume")["paused"] is False
    assert told("sweep")["deleted"] == 20
    assert {each["expired"] for each in told("status")["targets"]} == {0, None}
    assert "findings" in told("check")
    assert told("plan", "Cart")["rows"] == 5
    assert {each["table"] for each in told("inspect")["tables"]} >= {"carts", "wishes"}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["sweep", "--json", "--bogus"], 2, "No such option"),
        (["status", "--json"], 2, "Say what to work on"),
        (["inspect", "--json", "postgresql://u:secret@127.0.0.1:1/d"], 1, "the database says: "),
    ],
)
def test_an_error_is_json_where_json_is_asked_for(words: list[str], status: int, said: str) -> None:
    finished = CliRunner().invoke(cli, words, env={"TTL_ODM_APP": None, "TTL_ODM_URL": None})
    error = json.loads(finished.stdout)["error"]
    assert (finished.exit_code, error["status"]) == (status, status)
    assert said in error["message"]
    assert "secret" not in finished.output


@pytest.mark.parametrize(
    ("shell", "typed", "offered"),
    [
        ("bash", {"COMP_WORDS": "ttl-odm st", "COMP_CWORD": "1"}, "plain,status"),
        ("bash", {"COMP_WORDS": "ttl-odm sweep --dry", "COMP_CWORD": "2"}, "plain,--dry-run"),
        ("zsh", {"COMP_WORDS": "ttl-odm res", "COMP_CWORD": "1"}, "plain\nresume\n"),
        ("fish", {"COMP_WORDS": "ttl-odm pau", "COMP_CWORD": "pau"}, "plain,pause\t"),
    ],
)
def test_a_shell_completes_commands_and_options(
    shell: str, typed: dict[str, str], offered: str
) -> None:
    def told(mode: str, **environment: str) -> str:
        return subprocess.run(
            [PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT,
            env=variables(_TTL_ODM_COMPLETE=f"{shell}_{mode}", **environment),
        ).stdout

    assert "_TTL_ODM_COMPLETE" in told("source")
    assert offered in told("complete", **typed)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_takes_the_script_and_completes_with_it() -> None:
    typing = (
        'eval "$(_TTL_ODM_COMPLETE=bash_source ttl-odm)";'
        "COMP_WORDS=(ttl-odm ins) COMP_CWORD=1; _ttl_odm_completion ttl-odm;"
        'echo "${COMPREPLY[@]}"'
    )
    finished = subprocess.run(
        [str(shutil.which("bash")), "-c", typing],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        env=variables(PATH=f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"),
    )
    assert finished.stdout == "inspect\n", finished.stderr


def test_a_long_sweep_says_in_a_log_now_and_then_how_far_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressDisplay(seconds=0.0) as watched:
        watched(Progress("carts", 1_000, 25_000, 1_000, elapsed=0.5))
    told = capsys.readouterr().err
    assert told.startswith("carts: 25,000 rows, ")
    assert told.endswith("/s\n")
    with ProgressDisplay() as watched:
        watched(Progress("carts", 1_000, 25_000, 1_000, elapsed=0.5))
    assert capsys.readouterr().err == ""


def test_a_bar_ends_where_the_limit_does() -> None:
    assert within({"a": 30, "b": 20, "c": 5}, 40) == {"a": 30, "b": 10, "c": 0}
    assert within({"a": 30}, None) == {"a": 30}


def test_no_password_gets_into_a_log_or_a_message() -> None:
    handler = log_to(sys.stderr)
    record = logging.makeLogRecord({"msg": "lost %s", "args": ("postgresql://u:secret@host/d",)})
    assert handler.format(record).endswith("lost postgresql://u:***@host/d")
    assert "hidden" not in in_one_line(ValueError("can't open db?password=hidden"))
