"""deploy/: the commands in it are the command line's, and the files agree with each other."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml

import ttl_odm
from tests.cli.running import CliRunner
from ttl_odm.cli.commands import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

SYSTEMD = shutil.which("systemd-analyze")
DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = ["ttl-odm.service", "ttl-odm-sweep.service", "ttl-odm-sweep.timer"]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = (DEPLOY / "kubernetes.yaml").read_text()
DEPLOYMENT, CRON_JOB = yaml.safe_load_all(KUBERNETES)
PODS = [DEPLOYMENT["spec"]["template"], CRON_JOB["spec"]["jobTemplate"]["spec"]["template"]]


def instruction(name: str) -> Any:
    """What the Dockerfile has for an instruction, as JSON."""
    (found,) = re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)
    return json.loads(found)


def commands() -> Iterator[list[str]]:
    """Every command line of ``ttl-odm``, without that."""
    yield [*instruction("ENTRYPOINT"), *instruction("CMD")][1:]
    for pod in PODS:
        for container in pod["spec"]["containers"]:
            yield container.get("args", instruction("CMD"))
    for name in UNITS:
        for line in re.findall(
            r"^ExecStart=\S+/ttl-odm (.+)$", (DEPLOY / name).read_text(), re.MULTILINE
        ):
            yield shlex.split(line)


@pytest.mark.parametrize("words", [*commands()], ids=" ".join)
def test_a_command_line_is_one_of_ours(words: list[str]) -> None:
    name, *options = words
    # The options of help, which the command remembers, are told by the group.
    above = click.Context(cli, **{**cli.context_settings, "auto_envvar_prefix": "NOTHING"})
    context = cli.commands[name].make_context(name, options, parent=above)
    assert context.params


def test_an_environment_variable_is_read_by_an_option() -> None:
    known = {"TTL_ODM_APP", "TTL_ODM_CONFIG", "TTL_ODM_URL"}
    for name, command in cli.commands.items():
        known |= {f"TTL_ODM_{name}_{each.name}".upper() for each in command.params}
    for file in filter(Path.is_file, DEPLOY.rglob("*")):
        for variable in re.findall(r"\bTTL_ODM_\w+", file.read_text()):
            assert variable in known, file.name


def test_a_settings_file_may_stand_in_place_of_models(tmp_path: Path) -> None:
    for name in ("compose.yaml", "kubernetes.yaml", "ttl-odm.service"):
        assert "TTL_ODM_CONFIG" in (DEPLOY / name).read_text(), name
    assert "${TTL_ODM_CONFIG:-}" in COMPOSE["services"]["sweeper"]["environment"].values()
    (configured,) = set(re.findall(r"TTL_ODM_CONFIG, value: (.+)/ttl.toml", KUBERNETES))
    for pod in PODS:
        assert pod["spec"]["volumes"] == [
            {"name": "config", "configMap": {"name": "ttl-odm", "optional": True}}
        ]
        (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
        assert mount == {"name": "config", "mountPath": configured, "readOnly": True}
    # What of the two isn't set is passed as an empty text by compose.
    database, file = tmp_path / "a.db", tmp_path / "ttl.toml"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE logins (id INTEGER PRIMARY KEY, expires DATETIME)")
    file.write_text("[tool.ttl_odm.tables]\nlogins = 'ExpireAt(\"expires\")'\n")
    variables = {
        "TTL_ODM_APP": "",
        "TTL_ODM_URL": f"sqlite:///{database}",
        "TTL_ODM_CONFIG": str(file),
    }
    status = CliRunner().invoke(cli, ["status"], env=variables)
    assert status.exit_code == 0, status.output
    assert "logins" in status.output


def test_the_image_installs_what_is_released_or_the_wheel_that_is_named() -> None:
    assert "\nARG TTL_ODM=ttl-odm\n" in DOCKERFILE
    assert '"${TTL_ODM}[' in DOCKERFILE
    assert f"TTL_ODM=./ttl_odm-{ttl_odm.__version__}-py3-none-any.whl" in DOCKERFILE
    assert COMPOSE["services"]["sweeper"]["build"]["args"] == {"TTL_ODM": "${TTL_ODM:-ttl-odm}"}


def test_metrics_are_served_where_they_are_looked_for() -> None:
    words = instruction("CMD")
    port = words[words.index("--metrics-port") + 1]
    assert f"\nEXPOSE {port}\n" in DOCKERFILE
    (container,) = PODS[0]["spec"]["containers"]
    assert container["ports"] == [{"name": "metrics", "containerPort": int(port)}]
    assert PODS[0]["metadata"]["annotations"]["prometheus.io/port"] == port
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/metrics", "port": "metrics"}


def test_nobody_is_root_and_nothing_is_writable() -> None:
    (user,) = re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)
    for pod in PODS:
        context = pod["spec"]["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"]) == (True, int(user))
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
    (service,) = COMPOSE["services"].values()
    assert service["read_only"] is True


def test_the_files_that_manifests_name_are_there() -> None:
    (service,) = COMPOSE["services"].values()
    context = (DEPLOY / service["build"]["context"]).resolve()
    assert (context / service["build"]["dockerfile"]).is_file()
    for volume in service.get("volumes", []):
        assert (DEPLOY / volume.partition(":")[0]).exists()
    labels = DEPLOYMENT["spec"]["selector"]["matchLabels"]
    assert labels.items() <= PODS[0]["metadata"]["labels"].items()
    timer = (DEPLOY / "ttl-odm-sweep.timer").read_text()
    assert "Unit=" not in timer  # so that it starts the service of its name


@pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd here")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for name in UNITS:
        # What is to be started isn't installed here.
        lines = (DEPLOY / name).read_text().splitlines(keepends=True)
        runs = [re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", line) for line in lines]
        (tmp_path / name).write_text("".join(runs))
    finished = subprocess.run(
        [str(SYSTEMD), "verify", *(f"./{name}" for name in UNITS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in finished.stderr.splitlines() if "ttl-odm" in line]
    assert (finished.returncode, said) == (0, [])
