# SPDX-License-Identifier: Apache-2.0
"""`gpuhook attach` and `detach`: nodes, device rules, driver and loader cache of a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.loader import ld_cache_entries
from tests.contract import roots
from tests.contract.installation import CONTROL, Installation, asks
from tests.contract.live import Live, sleeping, started
from tests.contract.roots import with_ldconfig
from tests.contract.runtimes import BOTH, EVERY
from tests.contract.test_integrations import (
    CACHE,
    LINKS,
    LOOKED_UP,
    assert_found,
    assert_given,
    assert_nodes,
)
from tests.contract.views import questions

LOADER = "etc/ld.so.cache"


def gpu_questions(installation: Installation, *runs: list[str]) -> list[str]:
    """Return the questions for the probe: every GPU of the node, and commands to run."""
    return questions(*LINKS, tries=[installation.number(i) for i in range(8)], runs=runs)


def assert_as_before(root: Path, before: dict[str, tuple[object, ...]]) -> None:
    """Assert that an image is unchanged, except for the order of bytes in its loader cache."""
    assert_same_files(roots.listing(root), before)


def assert_same_files(
    now: dict[str, tuple[object, ...]], before: dict[str, tuple[object, ...]]
) -> None:
    """Assert that two listings are equal, except for the order of bytes in the loader cache."""
    assert now.keys() == before.keys()
    assert {path for path in now if now[path] != before[path]} <= {LOADER}
    if LOADER in now:
        assert cache_entries(now[LOADER]) == cache_entries(before[LOADER])


def cache_entries(facts: tuple[object, ...]) -> list[tuple[object, ...]]:
    """Return the entries of the loader cache in a listing."""
    content = facts[-1]
    assert isinstance(content, bytes)
    return [
        tuple(getattr(entry, name) for name in entry.__slots__)
        for entry in ld_cache_entries.parse(content)
    ]


@EVERY
def test_attach_and_detach_restore_the_container(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """attach provides a GPU as the wrapper does, detach removes it; a second call has no steps."""
    made = sleeping(tmp_path)
    with_ldconfig(made.root)
    files = roots.listing(made.root)
    with started(made, node8, engine, cgroup) as live:
        before, rules = live.seen(), live.rules()
        words = ["attach", "--device", "2"]
        planned = live.report(*words, "--dry-run")
        assert planned["dryRun"]
        assert live.seen() == before

        report = live.attach("2")
        assert report["steps"] == planned["steps"]
        assert report["skipped"] == planned["skipped"] == []
        view = live.view(gpu_questions(node8, LOOKED_UP, CACHE))
        assert_given(view, node8, 2)

        attached = live.seen()
        assert live.attach("2")["steps"] == []
        assert live.seen().nodes == attached.nodes
        assert live.seen().mounts == attached.mounts
        assert live.seen().rules == attached.rules
        assert live.seen().files == attached.files

        assert live.detach("2")["steps"] != []
        detached = live.seen()
        assert detached.nodes == before.nodes
        assert detached.mounts == before.mounts
        assert live.rules() == rules
        assert_as_before(made.root, files)
        view = live.view(questions(tries=[node8.number(2)]))
        assert view.tries == {node8.number(2): "EPERM"}
        assert live.detach("2")["steps"] == []
        assert live.attach("2")["steps"] == report["steps"]
        assert_nodes(live.view(gpu_questions(node8)), node8, CONTROL, 2)


@BOTH
def test_second_gpu_adds_its_node_alone(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """A second GPU adds its node only; control nodes and driver remain until the last one goes."""
    made = sleeping(tmp_path)
    files = roots.listing(made.root)
    with started(made, node8, engine, cgroup) as live:
        before = live.seen()
        live.attach("2")
        second = live.attach("3")
        assert len(second["steps"]) == 2, second  # the node and its rule
        assert_nodes(live.view(gpu_questions(node8)), node8, CONTROL, 2, 3)

        live.detach("2")
        view = live.view(gpu_questions(node8, LOOKED_UP))
        assert_nodes(view, node8, CONTROL, 3)
        assert_found(view.runs[0], str(node8.node.node.driver.version))
        live.detach("3")
        view = live.view(gpu_questions(node8))
        assert view.gpus() == {}
        assert set(view.tries.values()) == {"EPERM"}
        assert live.seen().mounts == before.mounts
        assert_as_before(made.root, files)


@pytest.mark.parametrize("kind", ["lib64", "distroless", "musl"])
def test_attach_in_each_kind_of_image(kind: str, node8: Installation, tmp_path: Path) -> None:
    """In other images the loader finds the driver, and detach restores the files."""
    args = ["/bin/busybox", "sleep", "900"] if kind == "musl" else ["/bin/sleep", "900"]
    made = sleeping(tmp_path, kind, args=args)
    if kind == "distroless":
        (made.root / "bin").mkdir(exist_ok=True)
        (made.root / "bin/sleep").write_bytes((roots.musl() / "bin/busybox").read_bytes())
        (made.root / "bin/sleep").chmod(0o755)
    files = roots.listing(made.root)
    with started(made, node8) as live:
        live.attach("2")
        view = live.view(gpu_questions(node8, LOOKED_UP))
        assert_nodes(view, node8, CONTROL, 2)
        assert_found(view.runs[0], str(node8.node.node.driver.version))
        live.detach("2")
        assert live.view().gpus() == {}
    assert_as_before(made.root, files)


def test_forms_of_a_name(node8: Installation, tmp_path: Path) -> None:
    """GPUs are found by five forms of names; containers by id, prefix, pid and pod name."""
    gpu = node8.gpu(2)
    devices = [str(gpu.uuid), str(gpu.pci_bus_id), f"nvidia.com/gpu={gpu.uuid}", f"{gpu.uuid}::1"]
    annotations = {
        "io.kubernetes.cri.sandbox-name": "pod",
        "io.kubernetes.cri.sandbox-namespace": "space",
        "io.kubernetes.cri.container-name": "one",
    }
    made = sleeping(tmp_path, annotations=annotations)
    with started(made, node8) as live:
        for device, name in zip(
            devices, [live.id[:-2], str(live.pid), "space/pod/one", "pod"], strict=True
        ):
            assert live.attach(device, name=name)["steps"] != []
            # The index would add the whole device, which remains after the replica is detached.
            assert live.attach(device if "::" in device else "2")["steps"] == []
            view = live.view()
            assert_nodes(view, node8, CONTROL, 2)
            assert live.detach(device, name=name)["steps"] != []
            assert live.view().gpus() == {}


def test_ps_lists_attached_gpus(node8: Installation, tmp_path: Path) -> None:
    """`gpuhook ps` lists attached GPUs, and no detached ones."""

    def listed_gpus(live: Live) -> list[str]:
        mine = [entry for entry in node8.holders() if entry["id"] == live.id]
        return [str(name) for entry in mine for name in entry["gpus"]]

    with started(sleeping(tmp_path), node8) as live:
        live.attach("2", "3")
        assert len(listed_gpus(live)) == 2
        live.detach("3")
        assert len(listed_gpus(live)) == 1
        live.detach("2")
        assert listed_gpus(live) == []


def test_refused_attach_changes_nothing(node8: Installation, tmp_path: Path) -> None:
    """Wrong names, missing privileges and stopped containers are errors."""
    with started(sleeping(tmp_path), node8) as live:
        before = live.seen()
        live.refused("GH1102", "attach", "--device", "17")
        live.refused("GH1735", "attach", "--device", "2", name="gpuhook-test-of-nobody")
        live.refused("GH1737", "attach", "--device", "2", name=str(os.getpid()))
        live.refused("GH1730", "attach", "--device", "2", name="4194305")
        assert live.seen() == before
        powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        result = live.gpuhook("attach", "--device", "2", name=str(live.pid), via=powerless)
        assert result.rc == 1
        assert result.stderr.startswith("Error GH"), result
        assert live.seen() == before
        assert live.container.call("kill", "KILL").rc == 0
        result = live.gpuhook("attach", "--device", "2")
        assert result.rc == 1
        assert "GH1738" in result.stderr or "GH1730" in result.stderr, result


def test_attach_uses_driver_capabilities(node8: Installation, tmp_path: Path) -> None:
    """Driver capabilities come from the container's variable, or from --driver-capabilities."""
    with started(sleeping(tmp_path, env=asks("void", "utility")), node8) as live:
        live.attach("2")
        assert_nodes(live.view(), node8, {"/dev/nvidiactl"}, 2)
        words = ["--device", "2", "--driver-capabilities", "graphics"]
        live.report("attach", *words)
        assert_nodes(live.view(), node8, {"/dev/nvidiactl", "/dev/nvidia-modeset"}, 2)
        profile = live.inside(
            "/bin/cat",
            "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf",
        )
        assert profile.rc == 0, profile
        assert f'"EGLVisibleDGPUDevices", {1 << (node8.gpu(2).minor or 0):#x}]' in profile.stdout
        live.detach("2")
        assert live.view().gpus() == {}


@BOTH
def test_attach_and_detach_in_a_paused_container(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """A paused container gets and loses a GPU."""
    with started(sleeping(tmp_path), node8, engine, cgroup) as live:
        assert live.container.call("pause").rc == 0
        live.attach("2")
        assert live.container.call("resume").rc == 0
        assert_nodes(live.view(gpu_questions(node8)), node8, CONTROL, 2)
        assert live.container.call("pause").rc == 0
        live.detach("2")
        assert live.container.call("resume").rc == 0
        assert live.view().gpus() == {}
