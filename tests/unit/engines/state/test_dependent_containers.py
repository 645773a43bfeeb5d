# SPDX-License-Identifier: Apache-2.0
"""Containers that need gpuhook, found in the state of each engine."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

import gpuhook
from gpuhook.cli.engines.configure_users import users
from gpuhook.engines.state import dependent_containers
from tests.unit.configuring import HOOK, RUNTIME, Tree

DAEMON = json.dumps({"runtimes": {"nvidia": {"path": RUNTIME}, "kata": {"path": "/kata"}}})
DOCKER = "/var/lib/docker/containers"
TASKS = "/run/containerd/io.containerd.runtime.v2.task"
STORAGE = "/var/lib/containers/storage"
RUN = "/run/containers/storage"
PODMAN = f'[engine.runtimes]\nnvidia = ["{RUNTIME}"]\n'
HOOKED = {"hooks": {"prestart": [{"path": "/bin/a"}, {"path": HOOK}]}}


def tree(files: dict[str, Any]) -> Tree:
    """Return files; a dict becomes a JSON document."""
    made = {}
    for path, content in files.items():
        text = json.dumps(content) if isinstance(content, dict) else content
        made[path] = text if isinstance(text, bytes) else text.encode()
    return Tree(made)


def dependents(
    files: dict[str, Any], home: str | None = None
) -> list[tuple[str, str, str, str, bool]]:
    found = dependent_containers.dependent_containers(tree(files), home)
    return [(one.engine, one.id, one.name, one.why, one.is_running) for one in found]


def docker(identity: str, host: dict[str, Any], *, runs: bool = False, at: str = DOCKER) -> Any:
    about = {"Name": f"/{identity}-name", "State": {"Running": runs}}
    return {
        f"{at}/{identity}/hostconfig.json": host,
        f"{at}/{identity}/config.v2.json": about,
    }


def test_docker_containers_by_the_name_of_the_runtime() -> None:
    """daemon.json resolves the name; other runtimes and broken files are ignored."""
    files = {
        "/etc/docker/daemon.json": DAEMON,
        **docker("a", {"Runtime": "nvidia"}, runs=True),
        **docker("b", {"Runtime": "runc"}),
        **docker("c", {"Runtime": "kata"}),
        **docker("e", {"Runtime": "nvidia"}),
        f"{DOCKER}/d/hostconfig.json": "{",
        f"{DOCKER}/f/hostconfig.json": "[]",
    }
    why = "its runtime is nvidia"
    assert dependents(files) == [
        ("docker", "a", "a-name", why, True),
        ("docker", "e", "e-name", why, False),
    ]
    files["/etc/docker/daemon.json"] = DAEMON.replace(RUNTIME, "/usr/bin/nvidia-container-runtime")
    assert dependents(files) == []


def test_containers_with_nvidias_names_for_gpuhook() -> None:
    """If gpuhook has the names of NVIDIA's toolkit, containers with those names need gpuhook."""
    config = {"hooks": {"createContainer": [{"path": "/usr/bin/nvidia-cdi-hook"}]}}
    files = {
        "/etc/docker/daemon.json": DAEMON.replace(RUNTIME, "nvidia-container-runtime"),
        **docker("a", {"Runtime": "nvidia"}),
        f"{TASKS}/k8s.io/b/config.json": config,
    }
    for path in ("/usr/bin/nvidia-container-runtime", "/usr/bin/nvidia-cdi-hook"):
        files[path] = b"\x7fELF gpuhook"
    assert dependents(files) == []
    for path in ("/usr/bin/nvidia-container-runtime", "/usr/bin/nvidia-cdi-hook"):
        files[path] = b"#!/bin/sh\n# gpuhook-runtime: a front\n"
    programs = [one.program for one in dependent_containers.dependent_containers(tree(files))]
    assert programs == ["/usr/bin/nvidia-cdi-hook", "nvidia-container-runtime"]


def test_docker_with_another_data_root() -> None:
    files = {
        "/etc/docker/daemon.json": DAEMON.replace("{", '{"data-root": "/data",', 1),
        **docker("a", {"Runtime": "nvidia"}, at="/data/containers"),
        **docker("b", {"Runtime": "nvidia"}),
    }
    assert [one[1] for one in dependents(files)] == ["a"]
    own = {
        "/home/me/.config/docker/daemon.json": DAEMON,
        **docker("c", {"Runtime": "nvidia"}, at="/home/me/.local/share/docker/containers"),
    }
    assert [one[1] for one in dependents(own, "/home/me")] == ["c"]
    assert dependents(own) == []


def test_docker_containers_with_gpus() -> None:
    """--gpus needs gpuhook if Docker finds gpuhook's hook."""
    gpus = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}
    files = docker("a", gpus)
    assert dependents(files) == []
    hook = "/usr/local/bin/nvidia-container-runtime-hook"
    (one,) = dependents({**files, hook: '#!/bin/sh\nexec "/usr/bin/gpuhook-prestart" "$@"\n'})
    assert one[3] == "it was created with --gpus, for which Docker runs gpuhook's hook"


def test_containerd_tasks() -> None:
    """Tasks whose shim uses gpuhook's runtime, or whose config.json has its hook."""
    named = {"annotations": {"io.kubernetes.cri.container-name": "cuda"}}
    files = {
        f"{TASKS}/k8s.io/a/config.json": named,
        f"{TASKS}/k8s.io/a/runtime": RUNTIME,
        f"{TASKS}/k8s.io/b/config.json": {},
        f"{TASKS}/k8s.io/b/runtime": "/usr/bin/runc",
        f"{TASKS}/default/c/config.json": HOOKED,
        f"{TASKS}/moby/d/config.json": HOOKED,
    }
    assert dependents(files) == [
        ("containerd", "c", "", f"its hook is {HOOK}", True),
        ("containerd", "a", "cuda", f"its runtime is {RUNTIME}", True),
    ]


def crio_config(name: str, sandbox: str, handler: str | None = None) -> dict[str, Any]:
    """Return a config.json of CRI-O: only that of a sandbox has the handler."""
    keys = {"Name": name, "SandboxID": sandbox}
    keys |= {} if handler is None else {"RuntimeHandler": handler}
    return {"annotations": {f"io.kubernetes.cri-o.{key}": value for key, value in keys.items()}}


@pytest.mark.parametrize("default", ["crun", "nvidia"])
def test_crio_containers(default: str) -> None:
    """A container has the handler of its pod's sandbox; without one, the default runtime."""
    text = f'[crio.runtime]\ndefault_runtime = "{default}"\n'
    text += f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{RUNTIME}"\n'
    place = "overlay-containers/{}/userdata"
    kept = {
        "a": crio_config("gpu pod", "a", "nvidia"),
        "b": crio_config("cuda", "a"),
        "c": crio_config("other pod", "c", ""),
        "d": crio_config("other", "c"),
        "e": {**crio_config("hooked", "c"), **HOOKED},
    }
    files: dict[str, Any] = {"/etc/crio/crio.conf.d/99-gpuhook.conf": text}
    files |= {f"{STORAGE}/{place.format(one)}/config.json": made for one, made in kept.items()}
    files[f"{RUN}/{place.format('b')}/pidfile"] = "1"
    why = "its runtime is nvidia"
    own = [("crio", "b", "cuda", why, True), ("crio", "a", "gpu pod", why, False)]
    if default == "nvidia":
        others = [("d", "other"), ("c", "other pod"), ("e", "hooked")]
        own += [("crio", one, name, why, False) for one, name in others]
    else:
        own.append(("crio", "e", "hooked", f"its hook is {HOOK}", False))
    assert dependents(files) == sorted(own, key=lambda one: (one[2], one[1]))


def database(place: Path, *containers: dict[str, Any]) -> bytes:
    """Return a database with the schema of podman 5."""
    path = place / "db.sql"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE ContainerConfig (ID TEXT, JSON TEXT)")
        rows = [(one["id"], json.dumps(one).encode()) for one in containers]
        made.executemany("INSERT INTO ContainerConfig VALUES (?, ?)", rows)
    return path.read_bytes()


def test_podman_containers(tmp_path: Path) -> None:
    """Rows have any size; rows of removed containers are skipped."""
    large = {"spec": {"args": ["x" * 20_000]}, "id": "a", "name": "one", "runtime": "nvidia"}
    others = [
        {"id": "b", "name": "two", "runtime": "crun"},
        {"id": "c", "name": "three", "runtime": RUNTIME},
        {"id": "gone", "name": "four", "runtime": "nvidia"},
        {"id": "d", "name": "five", "runtime": "crun"},
    ]
    files = {
        "/etc/containers/containers.conf": PODMAN,
        f"{STORAGE}/db.sql": database(tmp_path, large, *others),
        f"{RUN}/overlay-containers/a/userdata/pidfile": "1",
        f"{STORAGE}/overlay-containers/d/userdata/config.json": HOOKED,
        **{f"{STORAGE}/overlay-containers/{one}/userdata/x": "" for one in "abc"},
    }
    assert dependents(files) == [
        ("podman", "d", "five", f"its hook is {HOOK}", False),
        ("podman", "a", "one", "its runtime is nvidia", True),
        ("podman", "c", "three", f"its runtime is {RUNTIME}", False),
    ]


COUNTING = "WITH RECURSIVE n(JSON) AS (SELECT '{}' UNION ALL SELECT JSON FROM n)"
ENDLESS = (
    # A view with the table's name, a generated column, another table.
    f"CREATE VIEW ContainerConfig AS {COUNTING} SELECT JSON FROM n",
    "CREATE TABLE ContainerConfig (ID TEXT, JSON TEXT AS (hex(zeroblob(99000000))) VIRTUAL)",
    "CREATE TABLE Other (ID TEXT, JSON TEXT)",
)


@pytest.mark.parametrize("made", ENDLESS)
def test_views_and_computed_columns_of_a_database_are_not_read(made: str, tmp_path: Path) -> None:
    """A hostile database could make the query expensive."""
    path = tmp_path / "db.sql"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(made)
        if "TABLE" in made:
            table = made.split()[2]
            database.execute(f"INSERT INTO {table} (ID) VALUES ('a')")
    code = (
        "import sys; from gpuhook.containers.stores import libpod;"
        "print([*libpod._sqlite(sys.stdin.buffer.read())])"
    )
    bounded = 'ulimit -t 5; ulimit -v 1000000; exec "$0" -c "$1"'
    command = ["sh", "-c", bounded, sys.executable, code]
    done = subprocess.run(command, input=path.read_bytes(), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"[]\n"), done.stderr


def test_broken_databases_are_reported() -> None:
    there = {f"{STORAGE}/overlay-containers/a/userdata/x": ""}
    for content in (b"SQLite format 3\x00 and no more", b"", b"{" * 5000):
        for name in ("db.sql", "libpod/bolt_state.db"):
            assert dependents({**there, f"{STORAGE}/{name}": content}) == []


def test_command_lists_dependent_containers(tmp_path: Path) -> None:
    """It reads below the given root, and reports if it finds nothing."""
    called = ["--host-root", str(tmp_path)]
    none = CliRunner().invoke(users, called)
    assert none.exit_code == 0
    assert none.stdout == ""
    assert "no container" in none.stderr
    files = {"/etc/docker/daemon.json": DAEMON, **docker("a" * 64, {"Runtime": "nvidia"})}
    for path, content in tree(files).files.items():
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    shown = CliRunner().invoke(users, called).stdout.splitlines()
    assert shown[0].split() == ["ENGINE", "ID", "NAME", "RUNS", "WHY"]
    assert shown[1].split()[:2] == ["docker", "a" * 12]
    assert CliRunner().invoke(users, ["docker", *called, "-o", "name"]).stdout == "a" * 64 + "\n"
    assert CliRunner().invoke(users, ["podman", *called, "-o", "name"]).stdout == ""
    document = json.loads(CliRunner().invoke(users, [*called, "-o", "json"]).stdout)
    schema = Path(gpuhook.__file__).parent / "schemas/configure-users.json"
    jsonschema.validate(document, json.loads(schema.read_text(encoding="utf-8")))
    (one,) = document["containers"]
    assert one["why"] == "its runtime is nvidia"
    assert one["path"].endswith("/hostconfig.json")
