# SPDX-License-Identifier: Apache-2.0
"""Attach and detach with a read-only root, a mapped user, or a container that an engine made."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

from tests.contract import engines, roots
from tests.contract.installation import ALL_CONTROL, CONTROL, KIND, LIBRARIES, Installation
from tests.contract.live import sleeping, started
from tests.contract.runtimes import (
    BOTH,
    ENGINES,
    EVERY,
    SECONDS,
    Result,
    run_gpuhook,
    runtime_environment,
)
from tests.contract.test_attach import assert_as_before, gpu_questions
from tests.contract.test_integrations import LINKS, LOOKED_UP, assert_found, assert_nodes
from tests.contract.test_user_namespace import MAPPED, let_through, mapped
from tests.contract.views import questions
from tests.waiting import eventually


@BOTH
def test_attach_to_a_read_only_root(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """The container cannot write to its root, but attach and detach can."""
    made = sleeping(tmp_path)
    made.write({**made.config(), "root": {"path": str(made.root), "readonly": True}})
    files = roots.listing(made.root)
    with started(made, node8, engine, cgroup) as live:
        before = live.seen()
        live.attach("2")
        view = live.view(gpu_questions(node8, LOOKED_UP))
        assert_nodes(view, node8, CONTROL, 2)
        assert_found(view.runs[0], str(node8.node.node.driver.version))
        assert "ro" in view.mounts["/"].options
        assert live.inside("/bin/sh", "-c", "echo >/etc/mine").rc != 0
        live.detach("2")
        after = live.seen()
        assert (after.nodes, after.mounts) == (before.nodes, before.mounts)
    assert_as_before(made.root, files)


def test_attach_to_a_read_only_file_system_is_refused(node8: Installation, tmp_path: Path) -> None:
    """The error states that the file system is read-only, and nothing changes."""
    made = sleeping(tmp_path)
    aside = made.root.rename(tmp_path / "held")
    made.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(made.root)], check=True)
    try:
        subprocess.run(["cp", "-a", f"{aside}/.", str(made.root)], check=True)
        subprocess.run(["mount", "-o", "remount,ro", str(made.root)], check=True)
        made.write({**made.config(), "root": {"path": str(made.root), "readonly": True}})
        with started(made, node8) as live:
            before = live.seen()
            error = live.refused("GH1305", "attach", "--device", "2")
            assert "read-only" in error
            assert live.seen() == before
            assert live.detach("2")["steps"] == []
    finally:
        subprocess.run(["umount", "-l", str(made.root)], check=True)


@EVERY
def test_attach_in_a_user_namespace(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """Device nodes are bind mounts, and new files belong to the container's root."""
    let_through(Path(node8.node.driver_root) / "any")
    made = mapped(sleeping(tmp_path))
    files = roots.listing(made.root)
    with started(made, node8, engine, cgroup) as live:
        before, rules = live.seen(), live.rules()
        live.attach("2")
        view = live.view(questions(*LINKS, "/etc/ld.so.cache", runs=[LOOKED_UP]))
        assert_nodes(view, node8, CONTROL, 2)
        assert node8.device(2) in view.mounts
        assert_found(view.runs[0], str(node8.node.node.driver.version))
        owners = {(entry.kind, entry.uid, entry.gid) for entry in view.paths.values()}
        assert owners == {("link", 0, 0), ("file", 0, 0)}
        library = Path(f"{made.root}{LIBRARIES}/libcuda.so.{node8.node.node.driver.version}")
        assert (library.stat().st_uid, library.stat().st_gid) == (MAPPED, MAPPED)
        live.attach("3")
        assert_nodes(live.view(), node8, CONTROL, 2, 3)
        live.detach("2")
        assert_nodes(live.view(), node8, CONTROL, 3)
        live.detach("3")
        after = live.seen()
        assert (after.nodes, after.mounts) == (before.nodes, before.mounts)
        assert live.rules() == rules
    assert_as_before(made.root, files)


@ENGINES
def test_container_of_podman(engine: str, node8: Installation, tmp_path: Path) -> None:
    """Repair, attach and detach work on a container that podman gave a GPU by CDI."""
    root = roots.copy("debian", tmp_path / "root")
    mark = f"podman-{tmp_path.name}-{engine}"
    args = ["/bin/sh", "-c", f": {mark}; while :; do sleep 1; done"]
    options = ["--device", f"{KIND}=2", "--cap-add", "MKNOD"]
    words = (tmp_path / "podman", root, args, options, f"/usr/bin/{engine}", engine, node8.specs)
    thread = threading.Thread(target=lambda: engines.podman(*words, state=node8.state))
    thread.start()
    try:
        eventually(lambda: init_of(mark) != 0)
        pid = init_of(mark)
        assert gpuhook(node8, engine, "repair", str(pid)).stdout.endswith("nothing to do\n")
        remove_device(pid, node8)
        done = gpuhook(node8, engine, "repair", str(pid))
        assert done.rc == 0, done
        assert f"device node {node8.device(2)}" in done.stdout
        assert f"device rule: allow {node8.device(2)} (c {node8.number(2)} rw)" in done.stdout
        done = gpuhook(node8, engine, "attach", str(pid), "--device", "3")
        assert done.rc == 0, done
        nodes = {path.name for path in Path(f"/proc/{pid}/root/dev").glob("nvidia*")}
        wanted = {*ALL_CONTROL, node8.device(2), node8.device(3)}
        assert nodes == {path.rpartition("/")[2] for path in wanted}
        done = gpuhook(node8, engine, "detach", str(pid), "--device", "2,3")
        assert done.rc == 0, done
        assert "config.json" in done.stderr
    finally:
        if init_of(mark):
            subprocess.run(["kill", "-9", str(init_of(mark))], check=False)
        thread.join(SECONDS)


def init_of(mark: str) -> int:
    """Return the pid of the container's first process, 0 if there is none yet."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == b"/bin/sh" and words[-2].startswith(f": {mark};".encode()):
            return int(process.name)
    return 0


def remove_device(pid: int, installation: Installation) -> None:
    """Remove a GPU's node and, on cgroup v1, its rule from a container, without gpuhook."""
    Path(f"/proc/{pid}/root{installation.device(2)}").unlink()
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    (name,) = [line.split(":")[2] for line in lines if ":devices:" in line]
    Path(f"/sys/fs/cgroup/devices{name}/devices.deny").write_text(f"c {installation.number(2)} rw")


def gpuhook(installation: Installation, engine: str, *words: str) -> Result:
    """Run the command line where the engine's cgroups are."""
    env = {**os.environ, **installation.env}
    return run_gpuhook(installation.bindir / "gpuhook", words, env, runtime_environment(engine))
