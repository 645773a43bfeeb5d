# SPDX-License-Identifier: Apache-2.0
"""Finding containers by the names that Docker, podman, nerdctl and Compose give them."""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers import rootless_state
from gpuhook.containers.find import everything, find, visible
from gpuhook.containers.stores import docker_store, libpod
from gpuhook.containers.stores.store_files import OwnFiles, UserFiles
from gpuhook.containers.warm import runtime_state, state_roots
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state
from gpuhook.kernel import mountinfo
from tests.unit.containers.state_node import Node
from tests.unit.other_user import AS_ROOT, NOBODY

DOCKER, PODMAN, OTHER = "1" * 64, "2" * 64, "3" * 64
MOBY = "docker/runtime-runc/moby"
COMPOSE = {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"}
LIBPOD = {"io.container.manager": "libpod"}


def store_docker(root: Path, identity: str, name: str, **labels: str) -> Path:
    """Store a container in a data root of Docker, and return its config.v2.json."""
    place = root / "containers" / identity
    place.mkdir(parents=True)
    config = {"Image": "cuda:13", "Labels": labels}
    file = place / "config.v2.json"
    file.write_text(json.dumps({"ID": identity, "Name": f"/{name}", "Config": config}))
    return file


def store_podman(storage: Path, **names: str) -> None:
    """Store containers in podman's database by their ids."""
    for identity in names.values():
        (storage / f"overlay-containers/{identity}/userdata").mkdir(parents=True)
    with closing(sqlite3.connect(storage / "db.sql")) as database, database:
        database.execute("CREATE TABLE ContainerConfig (ID TEXT, JSON TEXT)")
        for name, identity in names.items():
            row = {"id": identity, "name": name, "rootfsImageName": "localhost/cuda:13"}
            values = identity, json.dumps(row).encode()
            database.execute("INSERT INTO ContainerConfig VALUES (?, ?)", values)


def bundle(storage: Path, identity: str) -> dict[str, Any]:
    """Return the state of runc with podman's bundle."""
    place = storage / f"overlay-containers/{identity}/userdata"
    (place / "config.json").write_text(json.dumps({"annotations": LIBPOD}))
    return {"config": {"labels": [f"bundle={place}"]}}


@pytest.fixture
def engines(node: Node) -> Node:
    """Run `trainer` of Docker's Compose and `learner` of podman; both engines have a `both`."""
    node.roots.append(str(node.place / MOBY))
    storage = node.place / "storage"
    store_docker(node.place / "docker", DOCKER, "trainer", **COMPOSE)
    store_docker(node.place / "docker", "1a" * 32, "both")
    store_docker(node.place / "docker", "1e" * 32, "ended")
    store_podman(storage, learner=PODMAN, both="2b" * 32, over="2e" * 32)
    for identity in (DOCKER, "1a" * 32):
        node.runc(identity, root=MOBY)
    for identity in (PODMAN, "2b" * 32):
        node.runc(identity, **bundle(storage, identity))
    return node


def refused(text: str, node: Node) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        find(text, node.roots)
    return caught.value


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ("trainer", DOCKER),
        ("web", DOCKER),
        ("shop/web", DOCKER),
        ("learner", PODMAN),
        (DOCKER, DOCKER),
        (PODMAN[:12], PODMAN),
    ],
)
def test_name_of_an_engine(engines: Node, text: str, identity: str) -> None:
    found = find(text, engines.roots)
    assert found.id == identity
    assert (found.engine, found.name, found.image) == {
        DOCKER: ("docker", "trainer", "cuda:13"),
        PODMAN: ("podman", "learner", "localhost/cuda:13"),
    }[identity]


def test_names_of_all_containers(engines: Node) -> None:
    names = ["both", "both", "learner", "trainer"]
    assert sorted(found.name for found in visible(engines.roots)[0]) == names
    assert sorted(found.name for found in everything(engines.roots)[0]) == names


def test_name_in_two_engines_is_ambiguous(engines: Node) -> None:
    """The error lists engine, name, id and state of each."""
    error = refused("both", engines)
    assert error.code == "GH1736"
    assert f"{'1a' * 32} (docker both, running)" in error.message
    assert f"{'2b' * 32} (podman both, running)" in error.message


@pytest.mark.parametrize(
    ("text", "name"),
    [("ended", "ended"), ("over", "over"), ("1e" * 32, "ended"), ("1e1e", "ended")],
)
def test_stopped_container_is_not_unknown(engines: Node, text: str, name: str) -> None:
    """Its engine has it, and no runtime has a state of it."""
    found = find(text, engines.roots)
    assert (found.status, found.name) == ("stopped", name)
    with pytest.raises(GpuhookError) as caught:
        found.process()
    assert caught.value.code == "GH1738"
    assert f"container {name} is not running: it is stopped" in caught.value.message


def test_store_behind_a_link(engines: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines name the place, and their defaults are a link to it: a container is found once."""
    for name in ("docker", "storage"):
        (engines.place / f"{name}-link").symlink_to(engines.place / name)
    config = engines.place / "bundles" / DOCKER / "config.json"
    source = f"{engines.place}/docker/containers/{DOCKER}/hostname"
    config.write_text(json.dumps({"mounts": [{"source": source}]}))
    monkeypatch.setattr(docker_store, "ROOT", str(engines.place / "docker-link"))
    monkeypatch.setattr(libpod, "STORAGE", str(engines.place / "storage-link"))
    for name in ("ended", "over"):
        found = find(name, engines.roots)
        assert (found.name, found.status) == (name, "stopped")


def test_running_container_is_preferred(engines: Node) -> None:
    """The name of a stopped container of another engine does not make a name ambiguous."""
    store_docker(engines.place / "docker", OTHER, "learner")
    assert find("learner", engines.roots).id == PODMAN


def test_name_that_is_an_id_of_another_container(engines: Node) -> None:
    """An id comes first, whatever the name is."""
    store_docker(engines.place / "docker", OTHER, PODMAN)
    engines.runc(OTHER, root=MOBY)
    assert find(PODMAN, engines.roots).id == PODMAN


def test_name_that_is_the_beginning_of_another_id(engines: Node) -> None:
    store_docker(engines.place / "docker", OTHER, PODMAN[:12])
    engines.runc(OTHER, root=MOBY)
    assert refused(PODMAN[:12], engines).code == "GH1736"


def test_name_that_is_a_pid(engines: Node) -> None:
    """The container of the process and that of the name are both meant."""
    pid, _ = engines.runc("alone")
    store_docker(engines.place / "docker", OTHER, str(pid))
    engines.runc(OTHER, root=MOBY)
    assert refused(str(pid), engines).code == "GH1736"


def test_mistyped_name(engines: Node) -> None:
    """The hint begins with the name that is most alike, of a container without one with its id."""
    engines.runc("alone")
    assert refused("lerner", engines).hint.startswith("there are learner, ")
    assert refused("alnoe", engines).hint.startswith("there are alone, ")


def test_exact_id_reads_no_whole_store(engines: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the file of that container only."""
    for name in ("containers", "data_roots"):
        monkeypatch.setattr(docker_store, name, None)
    engines.runc("alone")
    assert find("alone", engines.roots).id == "alone"


def test_data_root_of_an_option(node: Node) -> None:
    """dockerd --data-root: the mounts of a container show it, also for the names of others."""
    node.roots.append(str(node.place / MOBY))
    root = node.place / "elsewhere"
    store_docker(root, DOCKER, "trainer")
    store_docker(root, OTHER, "ended")
    node.runc(DOCKER, root=MOBY)
    source = str(root / f"containers/{DOCKER}/hostname")
    config = node.place / "bundles" / DOCKER / "config.json"
    config.write_text(json.dumps({"mounts": [{"source": source}]}))
    assert find("trainer", node.roots).image == "cuda:13"
    assert find("ended", node.roots).status == "stopped"


def test_data_root_of_daemon_json(node: Node) -> None:
    node.roots.append(str(node.place / MOBY))
    Path(docker_store.CONFIG).write_text(json.dumps({"data-root": str(node.place / "data")}))
    store_docker(node.place / "data", DOCKER, "trainer")
    node.runc(DOCKER, root=MOBY)
    assert find("trainer", node.roots).id == DOCKER


def test_podman_with_another_storage(node: Node) -> None:
    """podman --root: the bundle shows it."""
    storage = node.place / "elsewhere"
    store_podman(storage, learner=PODMAN)
    node.runc(PODMAN, **bundle(storage, PODMAN))
    assert find("learner", node.roots).id == PODMAN


@pytest.mark.parametrize(
    ("annotations", "name", "image"),
    [
        ({"nerdctl/name": "trainer"}, "trainer", ""),
        ({"nerdctl/name": "a b"}, "", ""),
        (
            {
                "io.kubernetes.cri.sandbox-name": "train-0",
                "io.kubernetes.cri.container-name": "main",
                "io.kubernetes.cri.image-name": "docker.io/library/cuda:13",
                "nerdctl/name": "forged",
            },
            "main",
            "docker.io/library/cuda:13",
        ),
        (
            {
                "io.kubernetes.cri-o.Annotations": "{}",
                "io.kubernetes.cri.image-name": "forged",
                "io.kubernetes.cri-o.ImageName": "quay.io/cuda:13",
                "io.kubernetes.pod.name": "train-0",
                "io.kubernetes.container.name": "main",
            },
            "main",
            "quay.io/cuda:13",
        ),
        ({"io.kubernetes.pod.name": "train-0", "io.kubernetes.container.name": "POD"}, "", ""),
    ],
    ids=["nerdctl", "hostile", "containerd", "cri-o", "sandbox"],
)
def test_names_of_annotations(
    node: Node, annotations: dict[str, str], name: str, image: str
) -> None:
    node.runc("abc", annotations)
    found = find("abc", node.roots)
    assert (found.name, found.image) == (name, image)


def test_name_of_nerdctl(node: Node) -> None:
    node.runc("abc", {"nerdctl/name": "trainer"})
    assert find("trainer", node.roots).id == "abc"


def test_name_of_a_container_in_a_pod_is_not_enough(node: Node) -> None:
    """Every pod has a `main`: the pod's name is needed."""
    pod = {"io.kubernetes.cri.sandbox-name": "a", "io.kubernetes.cri.container-name": "main"}
    node.runc("abc", pod)
    assert refused("main", node).code == "GH1735"
    assert find("a/main", node.roots).id == "abc"


@pytest.mark.parametrize("kind", ["link", "huge", "fifo", "writable", "directory"])
def test_hostile_file_of_docker(engines: Node, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The container has no name, and is found by its id; the others keep theirs."""
    file = engines.place / "docker/containers" / DOCKER / "config.v2.json"
    if kind == "huge":
        monkeypatch.setattr(OwnFiles, "MOST", 1 << 16)
        file.write_text(file.read_text() + " " * (1 << 16))
    elif kind == "writable":
        file.chmod(0o666)
    elif kind == "link":
        file.symlink_to(file.rename(file.with_name("other")))
    else:
        file.unlink()
        (os.mkfifo if kind == "fifo" else os.mkdir)(file)
    assert find(DOCKER, engines.roots).name == ""
    assert refused("trainer", engines).code == "GH1735"
    assert find("learner", engines.roots).id == PODMAN


@pytest.fixture
def user(engines: Node, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of another user, who has a container `ours` and one named as root's."""
    home = engines.place / "home"
    runtime = engines.place / f"user/{NOBODY}/runc"
    store_docker(home / docker_store.OF_A_USER, OTHER, "ours")
    store_podman(home / libpod.OF_A_USER, trainer="4" * 64)
    for identity in (OTHER, "4" * 64, "learner", f"{PODMAN[:12]}0"):
        engines.runc(identity, root=f"user/{NOBODY}/runc", init_process_pid=0)
    for place in (home, runtime):
        for path in (place, *place.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    monkeypatch.setattr(state_roots, "_USERS", str(engines.place / "user"))
    entry = pwd.struct_passwd(("user", "x", NOBODY, NOBODY, "", str(home), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    return home


@AS_ROOT
def test_container_of_another_user(engines: Node, user: Path) -> None:
    """Root finds it by its name, as the user's container."""
    assert user.is_dir()
    found = find("ours", engines.roots)
    assert (found.id, found.owner, found.engine) == (OTHER, NOBODY, "docker")
    assert (found.name, found.image, found.status) == ("ours", "cuda:13", "stopped")
    assert found.state_root.endswith(f"/user/{NOBODY}/runc")


@AS_ROOT
def test_name_and_id_of_another_user_replace_none_of_root(engines: Node, user: Path) -> None:
    """The user has a container of root's name `trainer`, and one with the id `learner`."""
    assert user.is_dir()
    assert find("trainer", engines.roots).id == DOCKER
    assert find("learner", engines.roots).id == PODMAN
    assert find(PODMAN[:12], engines.roots).id == PODMAN
    engines.write(f"user/{NOBODY}/runc", PODMAN, "state.json", '{"init_process_pid": 0}')
    assert find(PODMAN, engines.roots).owner == 0


def run_as_user(node: Node, identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a container of the other user, who chooses its id."""
    monkeypatch.setattr(runtime_state, "_owner_of_user_namespace", lambda _: NOBODY)
    node.runc(identity, root=f"user/{NOBODY}/runc")
    place = node.place / f"user/{NOBODY}/runc" / identity
    for path in (place, *place.iterdir()):
        os.chown(path, NOBODY, NOBODY)


@AS_ROOT
def test_pid_of_root_is_no_id_of_another_user(
    engines: Node, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert user.is_dir()
    pid, _ = engines.runc("numbered")
    for identity in (f"{pid}", f"{pid}0"):
        run_as_user(engines, identity, monkeypatch)
    assert find(f"{pid}0", engines.roots).owner == NOBODY
    assert find(str(pid), engines.roots).id == "numbered"


@AS_ROOT
def test_id_of_another_user_is_listed_before_that_of_root(
    engines: Node, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a table by id has the container of root."""
    assert user.is_dir()
    run_as_user(engines, PODMAN, monkeypatch)
    living, _ = visible(engines.roots)
    assert [found.owner for found in living if found.id == PODMAN] == [NOBODY, 0]


def test_many_candidates_are_counted(node: Node) -> None:
    ids = [f"{number:x}".rjust(64, "a") for number in range(16)]
    for identity in ids:
        node.write("runc", identity, "state.json", '{"init_process_pid": 0}')
    words = refused("aa", node).message.partition(": ")[2].split(", ")
    assert [word.partition(" ")[0] for word in words[:-1]] == ids[: len(words) - 1]
    assert words[-1] == f"{len(ids) - len(words) + 1} more"


@AS_ROOT
@pytest.mark.parametrize("kind", ["link", "directory", "owner", "fifo", "huge", "home"])
def test_hostile_store_of_another_user(
    engines: Node, user: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No link is followed, and only regular files of that user are read, up to a size."""
    place = user / docker_store.OF_A_USER / "containers" / OTHER
    file = place / "config.v2.json"
    if kind == "owner":
        os.chown(file, 0, 0)
    elif kind == "huge":
        monkeypatch.setattr(UserFiles, "MOST", 100)
    elif kind == "home":
        user.rename(user.with_name("moved"))
    elif kind == "directory":
        place.symlink_to(place.rename(user / "moved"))
    elif kind == "link":
        file.symlink_to(file.rename(file.with_name("other")))
    else:
        file.unlink()
        os.mkfifo(file)
    assert refused("ours", engines).code == "GH1735"


@AS_ROOT
def test_sum_of_a_users_files(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UserFiles, "SUM", 10)
    assert user.is_dir()
    assert [one.name for one in rootless_state.stored()[0]] == []


@AS_ROOT
def test_home_that_is_not_read(engines: Node, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for an unknown name has the file systems that gpuhook does not enter."""
    mount = f"30 20 0:40 / {user} rw - nfs4 server:/home rw\n".encode()
    mounts = [*mountinfo.parse(mount)]
    monkeypatch.setattr(mountinfo, "parse", lambda _: mounts)
    assert f"not read: {user} (nfs4, which may never answer)" in refused("ours", engines).message


@AS_ROOT
def test_user_without_a_home(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of /run/user may have no entry in passwd."""
    assert user.is_dir()
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert rootless_state.stored() == ([], {})


def test_store_of_this_user(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without root has the stores of the home directory."""
    node.roots.append(str(node.place / MOBY))
    store_docker(node.place / docker_store.OF_A_USER, DOCKER, "trainer")
    monkeypatch.setenv("HOME", str(node.place))
    monkeypatch.setattr(state, "is_rootless", lambda: True)
    node.runc(DOCKER, root=MOBY)
    assert find("trainer", node.roots).id == DOCKER
