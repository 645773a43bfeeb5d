# SPDX-License-Identifier: Apache-2.0
"""Containers of real runtimes and engines are found, and so are the processes that use a device."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from gpuhook.containers.find import everything, find
from gpuhook.containers.warm import open_devices
from gpuhook.containers.warm.host_mounts import own_mounts
from gpuhook.containers.warm.membership import members
from gpuhook.containers.warm.runtime_state import Found
from gpuhook.errors import GpuhookError
from tests.contract import engines
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import Installation, asks
from tests.contract.roots import Roots
from tests.contract.runtimes import ENGINES, EVERY, Container, lifecycle
from tests.contract.test_user_namespace import MAPPED, mapped
from tests.waiting import eventually

ZERO, NULL = (1, 5), (1, 3)
WAIT = "while :; do sleep 60; done"


@dataclass(frozen=True)
class FoundContainer:
    """A container, and the state root in which it is found."""

    container: Container
    roots: list[str]

    @property
    def pid(self) -> int:
        """Return its first process."""
        return find(self.container.id, self.roots).pid


@contextmanager
def running(
    bundle: Bundle, engine: str = "runc", cgroup: str = "host", *, started: bool = True
) -> Iterator[FoundContainer]:
    """Yield a container of a plain runtime, created and, by default, started."""
    with lifecycle(bundle, [engine], engine, cgroup) as container:
        created = container.create()
        assert created.rc == 0, created
        if started:
            assert container.call("start").rc == 0
        yield FoundContainer(container, [str(bundle.path / "state")])


def found_with_status(name: str, roots: list[str], status: str) -> Found:
    """Return the found container once it has this status: crun's pause does not wait."""
    eventually(lambda: find(name, roots).status == status, f"{name} to be {status}")
    return find(name, roots)


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(GpuhookError) as caught:
        call()
    return caught.value.code


@EVERY
def test_status_follows_the_runtime(
    engine: str, cgroup: str, root_of: Roots, bundle_of: Bundles
) -> None:
    """Created, running, paused, running, stopped, deleted: the status is that of the runtime."""
    root = root_of("debian")
    bundle = bundle_of(root, ["/bin/sh", "-c", WAIT])
    with running(bundle, engine, cgroup, started=False) as it:
        name, roots = it.container.id, it.roots
        created = find(name, roots)
        assert (created.status, created.runtime) == ("created", engine)
        assert (created.bundle, created.root_path) == (str(bundle.path), str(root))
        for verb, status in (("start", "running"), ("pause", "paused"), ("resume", "running")):
            assert it.container.call(verb).rc == 0
            found = found_with_status(name[:-2], roots, status)
            assert (found.pid, found.started) == (created.pid, created.started)
            assert find(str(found.pid), roots).id == name
            assert name in [one.id for one in everything(roots)[0]]
        with created.process() as process:
            assert it.container.call("kill", "KILL").rc == 0
            found_with_status(name, roots, "stopped")
            assert code_of(process.require_alive) == "GH1732"
        assert code_of(created.process) in ("GH1730", "GH1732")
        assert name not in [one.id for one in everything(roots)[0]]
    assert code_of(lambda: find(name, roots)) == "GH1735"


def test_process_has_the_containers_namespaces_and_mounts(bundle_of: Bundles) -> None:
    """Namespaces, variables and own mounts are the container's, without mounts of the host."""
    bundle = bundle_of("debian", ["/bin/sh", "-c", WAIT], ["NAME=value"])
    bundle.mount(bundle.path, "/mnt")
    with running(bundle) as it, find(it.container.id, it.roots).process() as process:
        eventually(lambda: "NAME=value" in process.environment())
        host = os.stat("/proc/self/ns/mnt")
        assert process.namespace("mnt") != (host.st_dev, host.st_ino)
        assert process.in_initial_user_namespace()
        own = own_mounts(process.pid, process.mounts())
        mounted = {}
        for line in process.read("mountinfo").decode().splitlines():
            mounted[line.split()[4]] = int(line.split()[0])
        assert {mounted[path] for path in ("/dev", "/run")} <= own.keys()
        assert not {mounted[path] for path in ("/", "/mnt", "/proc")} & own.keys()


def test_mapped_root_user_is_read(bundle_of: Bundles) -> None:
    """In a user namespace the container's root is the user that it is mapped to."""
    bundle = mapped(bundle_of("debian", ["/bin/sh", "-c", WAIT]))
    with running(bundle) as it, find(it.container.id, it.roots).process() as process:
        assert not process.in_initial_user_namespace()
        assert process.mapped_root() == (MAPPED, MAPPED)


def test_container_is_found_by_any_pid(root_of: Roots, bundle_of: Bundles) -> None:
    """A container is found by a child, by a process of exec, and by one in another mount namespace;
    without a state directory, the pid itself is a container.
    """
    root = root_of("debian")
    bundle = bundle_of(root, ["/bin/sh", "-c", f"({WAIT}) & {WAIT}"])
    with running(bundle) as it, find(it.container.id, it.roots).process() as init:
        assert it.container.call("exec", "/bin/sh", "-c", "sleep 60 >/dev/null 2>&1 &").rc == 0
        apart = ["nsenter", "-t", str(init.pid), "-p", "unshare", "-m", "sleep", "60"]
        with subprocess.Popen(apart) as started:
            try:
                eventually(lambda: len([*members(init)]) >= 6)
                pids = {member.pid for member in members(init)}
                seen = {os.readlink(f"/proc/{pid}/ns/mnt") for pid in pids}
                assert len(seen) == 2
                assert started.pid not in pids  # nsenter is not a process of the container
                for pid in pids:
                    assert find(str(pid), it.roots).id == it.container.id
                alone = find(str(init.pid))
                assert (alone.id, alone.pid) == (f"pid-{init.pid}", init.pid)
            finally:
                started.kill()  # its child is released with the container


@pytest.mark.parametrize("engine", ["containerd", "podman"])
def test_container_of_an_engine_is_found(
    engine: str, root_of: Roots, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A container is found in the state directory that its engine chose, with its config.json."""
    root = root_of("debian")
    args = ["/bin/sh", "-c", "while [ ! -e /done ]; do sleep 0.1; done"]
    mark = f"NAME={tmp_path}"
    if engine == "podman":
        call = partial(engines.podman, tmp_path / "podman", root, args, ["--env", mark])
    else:
        call = partial(request.getfixturevalue("containerd").run, root, args, env=[mark])

    def marked_containers() -> list[Found]:
        return [one for one in everything()[0] if one.engine == engine and is_marked(one)]

    def is_marked(one: Found) -> bool:
        try:
            return mark in one.config()["process"]["env"]
        except FileNotFoundError:  # a container of another test, which has exited since
            return False

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(call)
        try:
            eventually(lambda: [one.status for one in marked_containers()] == ["running"])
            (one,) = marked_containers()
            assert find(one.id).pid == one.pid
            assert one.runtime == "runc"
            with one.process() as process:
                assert mark in process.environment()
        finally:
            (root / "done").write_text("")
        assert ended.result().rc == 0


@ENGINES
def test_processes_with_an_open_device_are_found(engine: str, bundle_of: Bundles) -> None:
    """A process that has the node open is found under any name of the node; processes of other
    containers and of the host are not.
    """
    script = f"mv /dev/zero /dev/other; (exec 5</dev/other; {WAIT}) & {WAIT}"
    bundle = bundle_of("debian", ["/bin/sh", "-c", script])
    with (
        running(bundle, engine) as it,
        find(it.container.id, it.roots).process() as init,
        open("/dev/zero", "rb"),
    ):

        def used() -> list[tuple[str, str]]:
            return sorted(
                (command, how) for _, command, how in open_devices.processes_with(init, {ZERO})
            )

        eventually(lambda: used() == [("sh", "open"), ("sleep", "open")])  # once sleep is executed
        assert init.pid not in {pid for pid, _, _ in open_devices.processes_with(init, {ZERO})}
        assert open_devices.processes_with(init, {(195, 0)}) == []
        assert init.pid in {pid for pid, _, _ in open_devices.processes_with(init, {NULL, ZERO})}


def test_process_with_a_mapped_device_is_found(root_of: Roots, bundle_of: Bundles) -> None:
    """A mapping outlives its descriptor, and is found."""
    root = root_of("debian")
    bundle = bundle_of(root, ["/bin/sh", "-c", WAIT])
    mapping = (
        "import mmap, os, sys\n"
        "fd = os.open('/dev/zero', os.O_RDWR)\n"
        "kept = mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ)\n"
        "os.closerange(3, 64); print('ready', flush=True); sys.stdin.read()\n"
    )
    with running(bundle) as it, find(it.container.id, it.roots).process() as init:
        command = ["nsenter", "-t", str(init.pid), "-p", "unshare", "-m"]
        with subprocess.Popen(
            [*command, "/usr/bin/python3", "-c", mapping],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as program:
            assert program.stdout is not None
            assert program.stdin is not None
            assert program.stdout.readline() == b"ready\n"
            used = open_devices.processes_with(init, {ZERO})
            program.stdin.close()
        assert [(command, how) for _, command, how in used] == [("python3", "mapped")]


def test_second_create_of_an_id_keeps_the_ledger_entry(
    apart: Installation, bundle_of: Bundles
) -> None:
    """A create that the runtime refuses, as the container exists, keeps its ledger entry."""
    bundle = bundle_of("debian", ["/bin/sh", "-c", WAIT], asks("1"))
    again = bundle_of("distroless", ["/probe"], asks("2"))
    with apart.lifecycle(bundle) as container:
        second = replace(container, bundle=again.path)
        container.start()
        (entry,) = (apart.state / "containers").iterdir()
        before = entry.read_bytes()
        assert second.create().rc != 0
        assert entry.read_bytes() == before
        container.delete()
        assert second.create().rc == 0
        assert json.loads(entry.read_bytes())["bundle"] == str(again.path)
