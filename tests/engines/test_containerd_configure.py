# SPDX-License-Identifier: Apache-2.0
"""`gpuhook configure containerd`, a restart of containerd, pods, and undo, on each release."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from tests.contract.cri import Container, Cri
from tests.engines.containerd import (
    FORMS,
    SLEEP,
    Form,
    configuration,
    configured,
    containerd,
    gpus,
    holders,
    is_before,
    of_crun,
    of_docker,
    of_nvidia,
    packaged,
    refused,
    requests,
    version,
)
from tests.engines.engine_node import EngineNode, low_level_runtime

Covers = Callable[..., None]


@pytest.mark.parametrize("form", FORMS)
def test_handler_in_each_form_of_the_configuration(
    node: EngineNode, form: str, covers: Covers
) -> None:
    """A pod of the handler has its GPU, a pod of the default none; undo restores all files."""
    with configured(node, form=FORMS[form]), containerd(node) as server:
        assert assigned(server, "nvidia") == {node.device(2)}
        assert assigned(server, "") == set()
    covers("containerd", version(node), f"configuration file: {form}")


@pytest.mark.parametrize("form", [packaged, of_crun])
def test_route_hook(node: EngineNode, form: Form, covers: Covers) -> None:
    """The handler has runc or crun, and a base spec with the prestart hook."""
    with configured(node, "--route", "hook", form=form), containerd(node) as server:
        with server.pod("hooked") as pod:
            made = server.container(pod, SLEEP, requests("2"))
            assert gpus(server.exec(made, "/probe").view) == {node.device(2)}
            assert [one["route"] for one in holders(node, "hooked")] == ["prestart"]
        assert assigned(server, "") == set()
    program = "crun" if form is of_crun else "runc"
    with_ = f"{program} {node.version(program, '--version')}"
    covers("containerd", version(node), "configure --route hook", with_)


@pytest.mark.parametrize("form", [packaged, of_crun])
def test_route_cdi(node: EngineNode, form: Form, covers: Covers) -> None:
    """The handler has plain runc or crun, and containerd applies CDI names; 1.6 cannot."""
    if is_before(node, 1, 7):
        with configuration(node, form):
            assert "1.6" in refused(node, "GH2029", "--route", "cdi")
        return
    named = Allocation(cdi_devices=("nvidia.com/gpu=2",))
    noted = Allocation(annotations={"cdi.k8s.io/plugin": "nvidia.com/gpu=3"})
    with configured(node, "--route", "cdi", form=form), containerd(node) as server:
        assert assigned(server, "nvidia", named) == {node.device(2)}
        assert assigned(server, "nvidia", noted) == {node.device(3)}
        assert assigned(server, "nvidia") == set()
    program = "crun" if form is of_crun else "runc"
    with_ = f"{program} {node.version(program, '--version')}"
    covers("containerd", version(node), "configure --route cdi", with_)


def test_default_runtime_of_another_name(node: EngineNode) -> None:
    options = ("--runtime-name", "gpuhook", "--set-as-default")
    with configured(node, *options), containerd(node) as server:
        for handler in ("", "gpuhook"):
            assert assigned(server, handler) == {node.device(2)}
        with pytest.raises(grpc.RpcError, match="nvidia"):
            server.start_pod("unknown", "nvidia")


def test_handler_of_nvidia_is_taken_over(node: EngineNode) -> None:
    """Without --take-over it is refused, and another name is possible; undo restores it."""
    with configuration(node, of_nvidia):
        assert "--take-over" in refused(node, "GH2000")
    with configured(node, "--take-over", form=of_nvidia), containerd(node) as server:
        assert assigned(server, "nvidia") == {node.device(2)}
        assert assigned(server, "") == set()
    options = ("--runtime-name", "gpuhook")
    with configured(node, *options, form=of_nvidia), containerd(node) as server:
        assert assigned(server, "gpuhook") == {node.device(2)}


def test_cri_plugin_of_docker_is_enabled(node: EngineNode) -> None:
    with configuration(node, of_docker):
        assert "--enable-cri" in refused(node, "GH2020")
    with configured(node, "--enable-cri", form=of_docker), containerd(node) as server:
        assert assigned(server, "nvidia") == {node.device(2)}


def test_restart_without_systemd_is_refused(node: EngineNode) -> None:
    """No unit starts this containerd: it is neither changed nor stopped."""
    with configuration(node), containerd(node) as server:
        for how in ("auto", "signal", "systemd"):
            refused(node, "GH2007", f"--restart={how}")
        assert assigned(server, "") == set()


def assigned(server: Cri, handler: str, given: Allocation | None = None) -> set[str]:
    """Return the nodes of GPUs in a pod that requests GPU 2, or that has another allocation."""
    with server.pod("assigned", handler) as pod:
        return gpus(server.view(pod, given or requests("2")))


@pytest.fixture(params=["runc", "crun"])
def restarted(request: pytest.FixtureRequest, node: EngineNode) -> Iterator[tuple[Cri, Container]]:
    """Yield a containerd that was restarted while a container with GPU 2 runs, and that one."""
    with low_level_runtime(node, request.param), configured(node):
        with containerd(node) as first:
            pod = first.start_pod("lasting")
            running = first.container(pod, SLEEP, requests("2"))
        with containerd(node) as second:
            try:
                yield second, running
            finally:
                second.remove_pod(pod)


def test_live_commands_after_a_restart_of_containerd(
    node: EngineNode, restarted: tuple[Cri, Container]
) -> None:
    """Commands that name the pod work as before: attach, detach, inspect, repair, compare."""
    server, running = restarted

    def seen() -> set[str]:
        return gpus(server.exec(running, "/probe").view)

    name = "default/lasting/main"
    assert [one["id"] for one in holders(node, "lasting")] == [running.id]
    node.check("gpuhook", "attach", "default/lasting", "--device", "4")
    assert seen() == {node.device(2), node.device(4)}
    node.check("gpuhook", "detach", name, "--device", "4")
    assert seen() == {node.device(2)}
    node.check("gpuhook", "inspect", name, "--exit-code")
    assert "nothing to do" in node.check("gpuhook", "repair", name)
    assert "0 differences" in node.check("gpuhook", "compare", name)
    deny(node, running, node.device(2))
    assert node.run("gpuhook", "inspect", name, "--exit-code").rc == 1
    node.check("gpuhook", "repair", name)
    assert seen() == {node.device(2)}


def deny(node: EngineNode, container: Container, device: str) -> None:
    """Take a device from the container's cgroup (v1), as `systemctl daemon-reload` does."""
    status = node.path(device).stat()
    numbers = f"c {os.major(status.st_rdev)}:{os.minor(status.st_rdev)} rwm"
    (cgroup,) = Path("/sys/fs/cgroup/devices/gpuhook-tests").glob(f"*{container.id}*")
    (cgroup / "devices.deny").write_text(numbers, encoding="ascii")
