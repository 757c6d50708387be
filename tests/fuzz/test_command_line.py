"""Whatever stands in a command line, it ends in a documented status, and no traceback is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine

from tests.cli import shop
from tests.cli.running import CliRunner
from tests.fuzz.words import share, text
from ttl_odm.cli.commands import cli
from ttl_odm.cli.urls import public_url
from ttl_odm.sweeper.command_line import Status, without_passwords

if TYPE_CHECKING:
    from click.testing import Result

# Not "demo" and "run", which take their time. Not what would write a file, never end, or set up
# the export of the whole process.
COMMANDS = ["inspect", "sweep", "status", "check", "plan", "pause", "resume"]
APART = {"--html", "--watch", "--otel"}

values = st.one_of(
    text,
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["", "-1", "0", "1e400", "nan", "22:00-04:00", "tests.cli.shop:Base", "Cart"]),
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = f"sqlite:///{tmp_path_factory.mktemp('fuzz')}/shop.sqlite3"
    engine = create_engine(made)
    shop.Base.metadata.create_all(engine)
    engine.dispose()
    return made


def options_of(command: str) -> list[str]:
    return sorted(
        opt
        for parameter in cli.commands[command].params
        for opt in parameter.opts
        if opt.startswith("-") and opt not in APART
    )


def flags_of(command: str) -> set[str]:
    return {
        opt
        for parameter in cli.commands[command].params
        for opt in parameter.opts
        if getattr(parameter, "is_flag", False)
    }


@st.composite
def lines(draw: Any) -> list[str]:
    command = draw(st.sampled_from(COMMANDS))
    line = [command]
    for option in draw(st.lists(st.sampled_from(options_of(command)), max_size=3)):
        line += [option] if option in flags_of(command) else [option, draw(values)]
    return line + draw(st.lists(values, max_size=2))


def call(line: list[str], **environment: str | None) -> Result:
    result = CliRunner().invoke(cli, line, env={"TTL_ODM_URL": None, **environment})
    output = result.stdout + result.stderr
    assert result.exit_code in set(Status), (line, output, result.exception)
    assert isinstance(result.exception, (SystemExit, type(None))), (line, result.exception)
    assert "Traceback" not in output
    return result


@pytest.mark.slow
@share(2)
@given(lines())
def test_any_command_line_ends_in_a_documented_status(line: list[str]) -> None:
    call(line)


@pytest.mark.slow
@share(2)
@given(lines())
def test_any_options_before_a_real_database_do_as_well(url: str, line: list[str]) -> None:
    place = [url] if line[0] == "inspect" else ["--app", "tests.cli.shop:Base", "--url", url]
    call([*line, *place])


@pytest.mark.slow
@given(text, st.sampled_from(["sweep", "status", "check", "inspect"]))
def test_any_url_in_the_environment_does_as_well(given_url: str, command: str) -> None:
    app = [] if command == "inspect" else ["--app", "tests.cli.shop:Base"]
    call([command, *app], TTL_ODM_URL=given_url)


SCHEMES = ["postgresql", "postgres", "mysql", "mariadb+pymysql", "mongodb", "sqlite", "x9", ""]
odd = st.text(st.sampled_from("abz09:/@?#%&=+ '\"\\[](){}<>!*;,.~^|`$é漢\u202e"), max_size=12)


@st.composite
def with_password(draw: Any) -> str:
    password = f"s3cr3t{draw(odd)}t0k3n"
    user = draw(st.text("abz%2", max_size=5))
    scheme = draw(st.sampled_from(SCHEMES))
    separator = draw(st.sampled_from(["://", "://", ":/", ":", "//", ""]))
    login = f"{scheme}{separator}{user}:{password}"
    return f"{login}@127.0.0.1:1/shop{draw(st.sampled_from(['', '?a=b']))}"


@given(with_password())
def test_a_url_is_shown_without_its_password_whatever_that_has_in_it(secret: str) -> None:
    for word in ("s3cr3t", "t0k3n"):
        assert word not in public_url(secret)


@pytest.mark.slow
@share(2)
@given(with_password())
def test_no_command_prints_a_password_that_it_was_given_in_a_url(secret: str) -> None:
    if secret.startswith("mongodb"):  # it would wait for the server
        secret = secret.replace("/shop", "/", 1)
    result = call(["inspect", secret])
    for word in ("s3cr3t", "t0k3n"):
        assert word not in result.stdout + result.stderr


MISPLACED = ["", "status", "plan", "status --app", "run --interval", "sweep --model"]
MISPLACED += ["inspect --models", "plan Cart --default-ttl", "plan Cart --html"]


@pytest.mark.parametrize("place", MISPLACED)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_no_command_prints_a_password_of_a_url_in_the_wrong_place(
    place: str, more: list[str], url: str
) -> None:
    app = {"TTL_ODM_APP": "tests.cli.shop:Base", "TTL_ODM_URL": url}
    result = call([*place.split(), "postgresql://me:s3cr3t/t0k3n@host/db", *more], **app)
    assert result.exit_code == Status.USAGE
    for word in ("s3cr3t", "t0k3n"):
        assert word not in result.stdout + result.stderr


@given(st.text("abz09-_.~%"))
def test_what_drivers_quote_loses_its_password(middle: str) -> None:
    output = without_passwords(f"could not open postgresql://me:s3cr3t{middle}@host/db now")
    assert output == "could not open postgresql://me:***@host/db now"
