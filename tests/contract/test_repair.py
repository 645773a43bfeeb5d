# SPDX-License-Identifier: Apache-2.0
"""`repair` restores the GPUs of a running container that lost them, as by a daemon-reload."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from gpuhook.kernel.mounts import MNT_DETACH, umount2
from gpuhook.kernel.namespaces import in_mount_namespace
from tests.contract.bundles import CGROUP
from tests.contract.device_side import evaluate
from tests.contract.installation import LIBRARIES, Installation, asks
from tests.contract.live import (
    WAIT,
    Live,
    OpenResults,
    open_repeatedly,
    prestart,
    sleeping,
    started,
    with_openable_gpu,
    wrapped,
)
from tests.contract.runtimes import BOTH, ENGINES, PAIRS
from tests.contract.test_integrations import LOOKED_UP, assert_found
from tests.contract.views import questions


def reset(live: Live) -> None:
    """Set the device rules to those of systemd, which allow no GPU.

    v1: each rule is denied; v2: a second program, which must allow as well, is attached.
    """
    (version,) = evaluate(live.container, "rules.version")
    if version == "v2":
        evaluate(
            live.container,
            "attach_program(rules.path, allow('c *:* m', 'c 1:* rwm', 'c 136:* rwm'))",
        )
        return
    (path,) = evaluate(live.container, "rules.path")
    for line in Path(path, "devices.list").read_text(encoding="utf-8").splitlines():
        if line.startswith(("c 195:", "c 10:229", "c 509:", "c 510:", "c 5")):
            Path(path, "devices.deny").write_text(line, encoding="utf-8")


@contextmanager
def with_gpu(
    route: str, installation: Installation, place: Path, args: list[str], engine: str, cgroup: str
) -> Iterator[Live]:
    """Yield a running container that has its GPU by an integration."""
    if route == "attach":
        with started(sleeping(place, args=args), installation, engine, cgroup) as live:
            live.attach("2")
            yield live
        return
    made = sleeping(place, env=asks("2"), args=args)
    runtime = [installation.runtime] if route == "wrapper" else []
    if route == "prestart":
        made.write({**made.config(), "hooks": prestart(installation)})
    with started(made, installation, engine, cgroup, *runtime) as live:
        yield live


@pytest.mark.parametrize(
    ("route", "engine", "cgroup"),
    [("wrapper", *pair) for pair in PAIRS]
    + [("prestart", *PAIRS[0]), ("prestart", *PAIRS[3]), ("attach", *PAIRS[1])],
)
def test_repair_after_a_daemon_reload(
    route: str, engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """A process that opens its GPU fails after the reload, and succeeds after the repair."""
    mine = with_openable_gpu(node8, tmp_path / "node")
    args = open_repeatedly(mine.device(2))
    with with_gpu(route, mine, tmp_path, args, engine, cgroup) as live:
        output = OpenResults(live)
        output.becomes("yes")
        assert live.report("repair")["steps"] == []
        before = live.seen()
        reset(live)
        output.becomes("no")
        lost = live.seen()
        planned = live.report("repair", "--dry-run")
        assert f"device rule: allow {mine.device(2)} (c 10:229 rw)" in planned["steps"]
        assert live.seen() == lost
        done = live.report("repair")
        assert done["steps"] == planned["steps"]
        assert all(step.startswith("device rule: allow ") for step in done["steps"])
        output.becomes("yes")
        assert output.pids() == {"1"}
        assert live.report("repair")["steps"] == []
        after = live.seen()
        assert (after.files, after.nodes, after.mounts) == (
            before.files,
            before.nodes,
            before.mounts,
        )


@pytest.mark.parametrize(
    ("route", "engine", "cgroup"),
    [("wrapper", *PAIRS[0]), ("prestart", *PAIRS[2]), ("attach", *PAIRS[3])],
)
def test_repair_restores_nodes_and_mounts(
    route: str, engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """A removed node and an unmounted library are restored, and nothing else changes."""
    version = node8.node.node.driver.version
    library = f"{LIBRARIES}/libcuda.so.{version}"
    with with_gpu(route, node8, tmp_path, WAIT, engine, cgroup) as live:
        before = live.seen()
        assert live.inside("/bin/rm", "/dev/nvidiactl", node8.device(2)).rc == 0
        unmount(live, library)
        done = live.report("repair")
        words = [step.split(" ")[:3] for step in done["steps"]]
        assert sorted(words) == [
            ["device", "node", "/dev/nvidia3"],
            ["device", "node", "/dev/nvidiactl"],
            ["mount", f"{node8.node.driver_root}{library}".replace("//", "/"), "at"],
        ]
        after = live.seen()
        assert (after.files, after.nodes, after.rules) == (
            before.files,
            before.nodes,
            before.rules,
        )
        paths = [
            {line.split()[4]: line.split()[5] for line in state.mounts} for state in (before, after)
        ]
        assert paths[0] == paths[1]
        view = live.view(questions(runs=[LOOKED_UP]))
        assert_found(view.runs[0], str(version))
        assert live.report("repair")["steps"] == []


def unmount(live: Live, path: str) -> None:
    """Unmount what is mounted at a path of the container, as an administrator may."""
    namespace = os.open(f"/proc/{live.pid}/ns/mnt", os.O_RDONLY)
    try:
        in_mount_namespace(namespace, lambda: umount2(path, MNT_DETACH))
    finally:
        os.close(namespace)


@ENGINES
def test_repair_after_the_engines_program_returns(
    engine: str, node8: Installation, tmp_path: Path
) -> None:
    """A process attached the engine's device program again, without gpuhook's rules."""
    mine = with_openable_gpu(node8, tmp_path / "node")
    with with_gpu("attach", mine, tmp_path, open_repeatedly(mine.device(2)), engine, "v2") as live:
        output = OpenResults(live)
        output.becomes("yes")
        evaluate(live.container, "rules.drop(rules.programs()[0].ours)")
        output.becomes("no")
        assert live.report("repair")["steps"] != []
        output.becomes("yes")


def test_repair_of_the_scopes_program(node8: Installation, tmp_path: Path) -> None:
    """crun's cgroup is below a scope, to which systemd attaches its device program."""
    scope = f"/{CGROUP}/libpod-{uuid4().hex[:12]}.scope"
    made = sleeping(tmp_path, env=asks("2"), linux={"cgroupsPath": f"{scope}/container"})
    tries = questions(tries=[node8.number(2)])
    with wrapped(made, node8, "crun", "v2") as live:
        evaluate(live.container, f"attach_program('/sys/fs/cgroup{scope}')")
        assert set(live.view(tries).tries.values()) == {"EPERM"}
        assert live.report("repair")["steps"] != []
        assert set(live.view(tries).tries.values()) == {"ENXIO"}
        live.detach("2")
        assert set(live.view(tries).tries.values()) == {"EPERM"}


@BOTH
def test_repair_keeps_a_detached_gpu_away(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    with with_gpu("wrapper", node8, tmp_path, WAIT, engine, cgroup) as live:
        live.detach("2")
        before = live.seen()
        assert live.report("repair")["steps"] == []
        reset(live)
        live.report("repair")
        assert node8.device(2) not in live.view().gpus()
        assert live.view(questions(tries=[node8.number(2)])).tries == {node8.number(2): "EPERM"}
        assert live.seen().nodes == before.nodes


@BOTH
def test_repair_all(engine: str, cgroup: str, apart: Installation, tmp_path: Path) -> None:
    """--all repairs each container that has GPUs, and does not change the others."""
    places = [tmp_path / name for name in ("one", "two", "none")]
    with (
        with_gpu("wrapper", apart, places[0], WAIT, engine, cgroup) as one,
        with_gpu("attach", apart, places[1], WAIT, engine, cgroup) as two,
        started(sleeping(places[2]), apart, engine, cgroup) as none,
    ):
        for live in (one, two):
            reset(live)
        before = none.seen()
        done = one.gpuhook("repair", name="--all")
        assert done.rc == 0, done
        assert f"{one.id}: done" in done.stdout
        assert f"{two.id}: done" in done.stdout
        assert none.id not in done.stdout
        assert none.seen() == before
        tries = questions(tries=[apart.number(2)])
        for live in (one, two):
            assert live.view(tries).tries[apart.number(2)] == "ENXIO"
        again = one.gpuhook("repair", name="--all")
        for live in (one, two):  # the machine may have other containers
            assert f"{live.id}: nothing to do" in again.stdout
