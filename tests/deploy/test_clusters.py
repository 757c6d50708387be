"""deploy/clusters/: as far as it can be judged without Docker, the files say what the pages say."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "deploy" / "clusters").iterdir())
CLUSTERS: dict[str, Any] = {file.stem: yaml.safe_load(file.read_text()) for file in FILES}
SERVICES = [
    pytest.param(service, id=f"{name}-{service_name}")
    for name, cluster in CLUSTERS.items()
    for service_name, service in cluster["services"].items()
]
REPLICAS = (ROOT / "docs" / "replicas.md").read_text()

WITHOUT_FILE = {
    "documentdb",  # one server, not a cluster
    "mysql-group-multi",  # as mysql-group, with another setting
    "mysql-replica-statement",  # as mysql-replica, with another setting
}

# What the page names, and how a service of a file has it.
ANY_OF = "synchronous_standby_names = 'ANY 1 (db1, db2, db3)'"
SETTINGS = (
    ("postgres-standby", "db1", ANY_OF, "--synchronous_standby_names=ANY 1 (db1, db2, db3)"),
    ("postgres-standby", "db3", ANY_OF, "--synchronous_standby_names=ANY 1 (db1, db2, db3)"),
    ("postgres-standby", "db3", "hot_standby_feedback = on", "--hot_standby_feedback=on"),
    ("pgbouncer", "pgbouncer", "`transaction`", "pool_mode=transaction"),
    ("mariadb-replica", "db1", "binlog_format", "--binlog-format=ROW"),
    ("mariadb-replica", "db2", "read_only", "--read-only=ON"),
    ("mariadb-replica", "db2", 'throttle="replication"', "--report-host=127.0.0.1"),
    ("mysql-replica", "db1", "binlog_format", "--binlog-format=ROW"),
    ("mysql-replica", "db2", "super_read_only", "SET PERSIST super_read_only = ON"),
    ("mysql-replica", "db2", 'throttle="replication"', "--report-host=127.0.0.1"),
    ("galera", "db3", "wsrep_sync_wait = 15", "--wsrep-sync-wait=15"),
    ("mongodb-members", "db3", "replicaSet=rs0", "--replSet rs0"),
)


def header(name: str) -> list[str]:
    """The commands at the top of a file."""
    text = (ROOT / "deploy" / "clusters" / f"{name}.yaml").read_text()
    return re.findall(r"^#   (.+)$", text.partition("\nname:")[0], re.MULTILINE)


def ports(cluster: Any) -> Iterator[int]:
    """The ports of this machine that a cluster uses, all on the loopback address."""
    for service in cluster["services"].values():
        for port in service.get("ports", []):
            published = re.fullmatch(r"127\.0\.0\.1:(\d+)(?:-(\d+))?:[\d-]+", port)
            assert published, port
            first, last = published.groups()
            yield from range(int(first), int(last or first) + 1)


def texts(value: Any) -> Iterator[str]:
    """All strings in a part of a file."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)


def started_with(name: str, service: str) -> str:
    """The words and the files that a service is started with."""
    cluster = CLUSTERS[name]
    own = cluster["services"][service]
    files = [cluster["configs"][config["source"]] for config in own.get("configs", [])]
    return " ".join(texts([own.get("entrypoint", []), own["command"], files]))


def test_every_kind_of_cluster_has_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    lifetime = importlib.import_module("local_servers.lifetime")
    kinds = {kind.name for kind in lifetime.ON_REQUEST}
    assert kinds >= WITHOUT_FILE
    assert {file.name for file in FILES} == {f"{name}.yaml" for name in kinds - WITHOUT_FILE}
    for file in FILES:
        assert f"(../deploy/clusters/{file.name})" in REPLICAS


def test_all_can_run_at_once_and_are_for_this_machine_only() -> None:
    ours = yaml.safe_load((ROOT / "compose.yaml").read_text())
    used = Counter(port for cluster in (ours, *CLUSTERS.values()) for port in ports(cluster))
    assert set(used.values()) == {1}
    # By default the name would be that of the folder: one project for all files.
    assert [cluster["name"] for cluster in CLUSTERS.values()] == [
        f"ttl-odm-{name}" for name in CLUSTERS
    ]


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_file_begins_with_commands_for_it(name: str) -> None:
    begin, up, *others = header(name)
    assert begin == f"export COMPOSE_FILE=deploy/clusters/{name}.yaml"
    assert up == "docker compose up --wait"
    services = CLUSTERS[name]["services"]
    urls = [line for line in others if line.startswith("export TTL_ODM_URL=")]
    assert urls
    for line in urls:
        addressed = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", line)}
        assert addressed
        assert addressed <= {*ports(CLUSTERS[name])}
    for line in set(others) - set(urls):
        program, _, verb, service = line.split()[:4]
        assert program == "docker"
        assert verb in {"kill", "exec"}
        assert service in services


@pytest.mark.parametrize("service", SERVICES)
def test_a_server_is_healthy_once_it_takes_part_and_keeps_its_data_in_memory(service: Any) -> None:
    if service.get("entrypoint") == ["sleep", "infinity"]:  # has the network of all members
        assert service["ports"]
        return
    assert service["healthcheck"]["test"]
    assert ("tmpfs" in service) is ("build" not in service)
    for dependency in service.get("depends_on", {}):
        assert dependency in {"postgres", "db1", "db2", "db3"}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_dollar_is_for_the_shell_in_the_container(name: str) -> None:
    """Compose would replace a single one by a variable of the machine."""
    for text in texts(CLUSTERS[name]):
        assert "$" not in text.replace("$$", ""), text


@pytest.mark.parametrize("service", SERVICES)
def test_bash_understands_the_scripts(service: Any) -> None:
    entrypoint = service.get("entrypoint", [])
    scripts = [word for word in entrypoint if "exec docker-entrypoint.sh" in word]
    scripts += texts(service.get("healthcheck", {}).get("test"))
    for script in scripts:
        finished = subprocess.run(
            ["/bin/bash", "-n", "-c", script.replace("$$", "$")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (finished.returncode, finished.stderr) == (0, ""), script


@pytest.mark.parametrize(("name", "service", "recommended", "words"), SETTINGS)
def test_a_server_has_what_the_page_recommends(
    name: str, service: str, recommended: str, words: str
) -> None:
    assert recommended in REPLICAS
    assert words in started_with(name, service)
