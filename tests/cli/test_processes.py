"""What holds for every command: own processes, JSON, completion, and no password anywhere."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.exc import DBAPIError

from tests.cli import shop
from tests.cli.running import CliRunner, as_json, command, complaints, run, variables
from tests.guard import GUARD
from ttl_odm.cli.commands import cli
from ttl_odm.cli.errors import in_one_line
from ttl_odm.cli.progress import ProgressDisplay
from ttl_odm.cli.run import log_to
from ttl_odm.cli.urls import public_url
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sweeper import Progress
from ttl_odm.sweeper.command_line import due_rows, without_passwords
from ttl_odm.sweeper.report import Ending

if TYPE_CHECKING:
    from sqlalchemy import Engine

PROGRAM = Path(sys.executable).with_name("ttl-odm")


@pytest.mark.slow
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
        (["status", "--json"], 2, "Specify what to work on"),
        (["inspect", "--json", "postgresql://u:secret@127.0.0.1:1/d"], 1, "the database says: "),
    ],
)
def test_an_error_is_json_where_json_is_asked_for(words: list[str], status: int, said: str) -> None:
    finished = CliRunner().invoke(cli, words, env={"TTL_ODM_APP": None, "TTL_ODM_URL": None})
    error = json.loads(finished.stdout)["error"]
    assert (finished.exit_code, error["status"]) == (status, status)
    assert said in error["message"]
    assert "secret" not in finished.output


@pytest.mark.parametrize("words", [["--max-rows", "many"], ["--url", "postgresql://127.0.0.1:1/d"]])
def test_an_error_is_json_where_a_variable_asks_for_it(words: list[str]) -> None:
    asked = {"TTL_ODM_SWEEP_AS_JSON": "1", "TTL_ODM_APP": "tests.cli.shop:Base"}
    finished = CliRunner().invoke(cli, ["sweep", *words], env=asked)
    assert json.loads(finished.stdout)["error"]["status"] == finished.exit_code


@pytest.mark.databases("sqlite")
def test_a_forced_color_makes_no_terminal_of_a_pipe(engine: Engine) -> None:
    shop.fill(engine)
    url = engine.url.render_as_string(hide_password=False)
    app = {"TTL_ODM_APP": "tests.cli.shop:Base", "TTL_ODM_URL": url}
    forced = {**app, "FORCE_COLOR": "1", "COLUMNS": "40"}
    checked, plain = run("check", **forced), run("check", **app)
    assert "\x1b[" in checked.stdout
    assert re.sub(r"\x1b\[[0-9;]*m", "", checked.stdout) == plain.stdout
    assert complaints(run("sweep", **forced)) == ""


@pytest.mark.slow
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
            timeout=GUARD,
            env=variables(_TTL_ODM_COMPLETE=f"{shell}_{mode}", **environment),
        ).stdout

    assert "_TTL_ODM_COMPLETE" in told("source")
    assert offered in told("complete", **typed)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_takes_the_script_and_completes_with_it() -> None:
    typing = (
        'eval "$(_TTL_ODM_COMPLETE=bash_source ttl-odm)";'
        "COMP_WORDS=(ttl-odm insp) COMP_CWORD=1; _ttl_odm_completion ttl-odm;"
        'echo "${COMPREPLY[@]}"'
    )
    finished = subprocess.run(
        [str(shutil.which("bash")), "-c", typing],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
        env=variables(PATH=f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"),
    )
    assert finished.stdout == "inspect\n", finished.stderr


def test_a_long_sweep_says_in_a_log_now_and_then_how_far_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressDisplay(seconds=0.0) as watched:
        watched(Progress("carts\x1b[2J", 1_000, 25_000, 1_000, elapsed=0.5))
    told = capsys.readouterr().err
    assert told.startswith("carts\\x1b[2J: 25,000 rows, ")
    assert told.endswith("/s\n")
    with ProgressDisplay() as watched:
        watched(Progress("carts", 1_000, 25_000, 1_000, elapsed=0.5))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("batches", "bar"),
    [
        ([], "0/432,054 looking for expired rows -:--:--"),
        ([(5, "carts", 0)], "0/432,054 looking for expired rows -:--:--"),
        ([(5, "carts", 0), (10, "carts", 200_000)], "200,000/432,054 20,000 rows/s 0:00:12"),
        ([(9, "carts", 1_000), (18, "carts", 432_054)], "432,054/432,054 24,003 rows/s 0:00:00"),
        ([(18, "carts", 432_054), (20, "tokens", 1_000)], "1,000/2,000 500 rows/s 0:00:02"),
        ([(18, "carts", 432_054), (20, "logs", 1_000)], "1,000/? 500 rows/s -:--:--"),
    ],
)
def test_a_bar_counts_the_search_for_the_first_row_in(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    batches: list[tuple[float, str, int]],
    bar: str,
) -> None:
    """Where half of the time goes by before the first row, rich's own rate is twice the real one.

    A batch is the second at which it ended, its table, and the rows deleted by then.
    """
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"}.items():
        monkeypatch.setenv(name, value)
    now = 0.0
    with ProgressDisplay({"carts": 432_054, "tokens": 2_000}, clock=lambda: now) as shown:
        for second, table, rows in batches:
            now = second
            shown(Progress(table, min(rows, 1_000), rows, 1_000, elapsed=0.1))
    screen = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert bar in re.sub(r" +", " ", screen)


def test_a_line_counts_it_in_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    with ProgressDisplay(seconds=5.0, clock=lambda: now) as shown:
        now = 110.0
        shown(Progress("carts", 1_000, 20_000, 1_000, elapsed=1.0))
    assert capsys.readouterr().err == "carts: 20,000 rows, 2,000/s\n"


def test_a_bar_ends_where_the_limit_does() -> None:
    targets = [
        SimpleNamespace(table=table, due=due, error=None)
        for table, due in {"a": 30, "b": 20, "c": 5, "d": 0}.items()
    ]
    targets.append(SimpleNamespace(table="e", due=7, error=RuntimeError("the fuse")))
    count: Any = SimpleNamespace(ended=Ending.FINISHED, targets=targets)
    assert due_rows(count, 40) == {"a": 30, "b": 10, "c": 0}
    assert due_rows(count, None) == {"a": 30, "b": 20, "c": 5}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["status", "--app", "tests.cli.shop:Base", "--url", "sqlite://", "--json"],
        ["--version"],
        ["sweep", "--help"],
    ],
)
def test_a_full_standard_output_is_one_line_and_no_error_of_the_database(words: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        finished = subprocess.run(
            command(*words),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=GUARD,
            env=variables(),
        )
    said = "Error: Standard output can't be written: No space left on device.\n"
    assert (finished.returncode, finished.stderr) == (1, said)


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_a_closed_standard_error_is_no_terminal(engine: Engine) -> None:
    shop.fill(engine)
    url = engine.url.render_as_string(hide_password=False)
    words = command("sweep", "--app", "tests.cli.shop:Base", "--url", url, "--json")
    finished = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" 2>&-', "-", *words],
        stdout=subprocess.PIPE,
        check=True,
        timeout=GUARD,
        env=variables(),
    )
    assert json.loads(finished.stdout)["deleted"] == 20


@pytest.mark.slow
def test_a_reader_that_goes_ends_a_run_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "shop.sqlite3").touch()
    url = f"sqlite:///{tmp_path / 'shop.sqlite3'}"
    words = ["--app", "tests.cli.shop:Base", "--url", url, "--json", "--interval", "0.01"]
    with subprocess.Popen(
        command("run", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["ended"] == "finished"
        process.stdout.close()
        log = process.stderr.read()
    assert process.returncode == 1
    assert "database says" not in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_a_working_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    # A file, as the command is: by -c Python 3.13.0 fails where there is no working directory.
    program, gone = tmp_path / "program.py", tmp_path / "gone"
    program.write_text(
        "import os, sys; from ttl_odm.cli import main; os.rmdir(os.getcwd()); "
        "sys.argv[1:] = ['inspect', '--models', 'a:b']; main()"
    )
    gone.mkdir()
    finished = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
        cwd=gone,
        env=variables(PYTHONPATH=str(Path(__file__).parents[2])),
    )
    assert finished.returncode == 2
    assert "The working directory no longer exists" in finished.stderr


@pytest.mark.databases("sqlite")
def test_a_lease_holder_reaches_no_terminal_as_it_is(engine: Engine) -> None:
    shop.fill(engine)
    assert SQLAlchemyStore(engine, shop.Base).leases.acquire("ttl_odm", "me\x1b[2J\x9b\n", 60)
    url = engine.url.render_as_string(hide_password=False)
    for name in ("status", "sweep", "pause"):
        for form in ([], ["--json"]):
            words = [name, "--app", "tests.cli.shop:Base", "--url", url, *form]
            shown = CliRunner().invoke(cli, words).stdout
            assert "me\\x1b[2J\\x9b\\x0a" in shown or json.loads(shown)
            assert not set(shown) & {"\x1b", "\x9b"}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:SECRET", "postgresql://u:***"),
        ("postgresql://u:SECRET/d", "postgresql://u:***/d"),
        ("postgresql://u:123456/d", "postgresql://u:***/d"),
        ("postgresql://u:SECRET@h:5432/d", "postgresql://u:***@h:5432/d"),
        ("postgresql://:SECRET@h/d", "postgresql://:***@h/d"),
        ("postgresql://u:SEC RET@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:SEC/RE@T@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u%3ASECRET@h/d", "postgresql://u:***@h/d"),
        ("mongodb://u:SECRET@a:27017,b:27018/d", "mongodb://u:***@a:27017,b:27018/d"),
        ("u:SECRET@h/d", "u:***@h/d"),
        ("postgresql:u:SECRET@h/d", "postgresql:***@h/d"),
        ("host=h user=u password='SEC RET' port=1", "host=h user=u password=*** port=1"),
        ("postgresql://h:5432/d", "postgresql://h:5432/d"),
        ("mysql://u@h:3306/d", "mysql://u@h:3306/d"),
        ("postgresql+asyncpg://[::1]:5432/d", "postgresql+asyncpg://[::1]:5432/d"),
        ("mongodb://a:27017,b:27018/d", "mongodb://a:27017,b:27018/d"),
        ("mongodb://a,b:27018/d", "mongodb://a,b:27018/d"),
        ("sqlite:///shop.sqlite3", "sqlite:///shop.sqlite3"),
        ("sqlite:///a@b.sqlite3", "sqlite:///a@b.sqlite3"),
    ],
)
def test_what_is_no_port_is_a_password(url: str, shown: str) -> None:
    assert public_url(url) == shown
    assert without_passwords(f'no such thing: "{url}"') == f'no such thing: "{shown}"'


@pytest.mark.parametrize(
    "query",
    [
        "password=SECRET",
        "user=u&PASSWD=SECRET&x=1",
        "ssl_key_password=SECRET",
        "tlsCertificateKeyFilePassword=SECRET",
        "authMechanismProperties=AWS_SESSION_TOKEN:SECRET",
        "authToken=SECRET",
        "odbc_connect=UID%3Du%3BPWD%3DSECRET",
    ],
)
def test_a_query_is_not_shown_where_it_has_a_password(query: str) -> None:
    assert public_url(f"postgresql://u@h/d?{query}") == "postgresql://u@h/d"
    assert "SECRET" not in without_passwords(f"lost postgresql://u@h/d?{query} (twice)")


def test_no_password_gets_into_a_log_or_a_message() -> None:
    handler = log_to(sys.stderr)
    record = logging.makeLogRecord({"msg": "lost %s", "args": ("postgresql://u:secret@host/d",)})
    assert handler.format(record).endswith("lost postgresql://u:***@host/d")
    assert "hidden" not in in_one_line(ValueError("can't open db?password=hidden"))


def test_an_error_of_pg8000_is_the_servers_message_without_a_rows_values() -> None:
    error = ValueError({"C": "23505", "M": "duplicate key", "D": "Key (name)=(hidden)"})
    assert in_one_line(DBAPIError("INSERT", {}, error)) == "duplicate key"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "mongodb://u:secret@127.0.0.1:1,127.0.0.1:2/d?serverSelectionTimeoutMS=9",
            r".*127\.0\.0\.1:2: .*refused$",
        ),
        ("mongodb+srv://u:secret@nowhere.invalid/d", "(?!.*is not a MongoDB URL)"),
        ("mysql://u:secret@127.0.0.1:1/d?charset=zz", ""),
    ],
)
def test_a_driver_that_fails_is_quoted_in_a_line(url: str, said: str) -> None:
    finished = CliRunner().invoke(cli, ["inspect", url])
    assert finished.exit_code == 1
    assert re.match(f"Error: the database says: {said}", finished.stderr)
    assert "secret" not in finished.output
