# SPDX-License-Identifier: Apache-2.0
"""Which containers get which GPUs and parts of the driver, with real runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import ALL_CONTROL, CONTROL, Installation, asks, installation
from tests.contract.integrations import Integrations
from tests.contract.live import prestart, sleeping, started
from tests.contract.roots import Roots
from tests.contract.runtimes import Result, run
from tests.contract.test_mig import CAP, mig
from tests.contract.test_user_namespace import let_through, mapped
from tests.contract.views import View, questions

__all__ = ["mig"]

BELOW = "/var/run/nvidia-container-devices/"
CUDA_8 = "CUDA_VERSION=8.0"
MODESET = "/dev/nvidia-modeset"
INTEGRATIONS = ("runc", "crun-v2", "runc-prestart", "podman-runtime")
OLD_FORM = {"/dev/nvidia0", f"{CAP}75", f"{CAP}76"}  # of the instance 0:1


def through(
    integration: str,
    node: Installation,
    place: Path,
    root: Path,
    env: list[str],
    args: tuple[str, ...] = (),
) -> Result:
    """Run a container with these variables, by an integration that names no devices itself."""
    return Integrations(node, place).by_env(integration, root, ["/probe", *args], env)


def gpus(view: View) -> set[str]:
    """Return the nodes of GPUs in a container."""
    return {path for path in view.gpus() if path[len("/dev/nvidia") :].isdigit()}


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_legacy_image_gets_all_gpus(
    integration: str, node8: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """An image with CUDA_VERSION from before 2018 gets all GPUs and all driver capabilities."""
    view = through(integration, node8, tmp_path, root_of("debian"), [CUDA_8]).view
    assert gpus(view) == {node8.device(n) for n in range(8)}
    assert set(view.gpus()) >= ALL_CONTROL


def test_legacy_image_without_driver_or_setting(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """Without a driver it starts without GPUs; `legacyImages: false` disables the rule."""
    bundle = bundle_of("distroless", ["/probe"], [CUDA_8])
    before = bundle.file.read_bytes()
    started_without = node8.edit(bundle, env={"GPUHOOK_HOST_ROOT": str(tmp_path)})
    assert started_without.warned == ["GH1008"]
    young = node8.apart(tmp_path / "node", request={"legacyImages": False})
    silent = young.edit(bundle)
    assert (silent.rc, silent.stderr) == (0, "")
    assert bundle.file.read_bytes() == before


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_swarm_resource_variable(
    integration: str, node8: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """The variable that Docker sets for a service precedes that of the image."""
    node = node8.apart(tmp_path / "node", request={"swarmResources": ["DOCKER_RESOURCE_GPU"]})
    env = ["NVIDIA_VISIBLE_DEVICES=all", f"DOCKER_RESOURCE_GPU={node8.gpu(5).uuid}"]
    done = through(integration, node, tmp_path, root_of("debian"), env)
    assert gpus(done.view) == {node.device(5)}


def test_swarm_resource_for_an_unknown_gpu_is_refused(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The variable is a grant for this container, which does not start without it."""
    node = node8.apart(tmp_path / "node", request={"swarmResources": ["DOCKER_RESOURCE_GPU"]})
    bundle = bundle_of("distroless", ["/probe"], ["DOCKER_RESOURCE_GPU=GPU-1"])
    before = bundle.file.read_bytes()
    refused = node.edit(bundle)
    assert (refused.rc, "GH1102" in refused.log) == (1, True)
    assert bundle.file.read_bytes() == before


@pytest.mark.parametrize("integration", ["runc", "crun-v2", "runc-prestart"])
@pytest.mark.parametrize("strategy", ["index", "uuid"])
def test_short_forms_of_names(
    integration: str, strategy: str, apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """A range, the beginning of a UUID, a bus id without its domain, leading zeros."""
    apart.generate("--device-name-strategy", strategy)
    slot = str(apart.gpu(6).pci_bus_id).partition(":")[2]
    value = f"1-2,{str(apart.gpu(4).uuid)[:12]},{slot},07"
    done = through(integration, apart, tmp_path, root_of("debian"), asks(value))
    assert gpus(done.view) == {apart.device(n) for n in (1, 2, 4, 6, 7)}


@pytest.mark.parametrize("integration", [*INTEGRATIONS, "podman-cdi"])
def test_driver_capabilities_are_limited_by_the_setting(
    integration: str, node8: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """No integration adds a capability that request.driverCapabilities excludes."""
    node = node8.apart(tmp_path / "node", request={"driverCapabilities": ["utility"]})
    env = ["NVIDIA_DRIVER_CAPABILITIES=all"]
    integrations = Integrations(node, tmp_path)
    view = integrations.through(integration, root_of("debian"), ["/probe"], "1", env).view
    assert set(view.gpus()) == {"/dev/nvidiactl", node.device(1)}


@pytest.mark.parametrize("integration", ["runc", "runc-prestart"])
def test_default_driver_capabilities(
    integration: str, node8: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """A container that names none gets those of the node's settings."""
    settings = {"defaultDriverCapabilities": ["all"], "onUnknownCapability": "ignore"}
    node = node8.apart(tmp_path / "node", request=settings)
    view = through(integration, node, tmp_path / "a", root_of("debian"), asks("1")).view
    assert set(view.gpus()) == {*ALL_CONTROL, node.device(1)}
    done = through(
        integration, node, tmp_path / "b", root_of("debian"), asks("1", "Graphics,utility")
    )
    assert set(done.view.gpus()) == {"/dev/nvidiactl", node.device(1)}
    hook_log = node.state / "hook.log"
    assert "GH1061" in done.log + (
        hook_log.read_text(encoding="utf-8") if hook_log.exists() else ""
    )


def test_default_driver_capabilities_of_attach(node8: Installation, tmp_path: Path) -> None:
    node = node8.apart(tmp_path / "node", request={"defaultDriverCapabilities": ["graphics"]})
    with started(sleeping(tmp_path), node) as live:
        live.attach("1")
        assert set(live.view().gpus()) == {"/dev/nvidiactl", MODESET, node.device(1)}


@pytest.mark.parametrize("integration", ["runc", "runc-prestart"])
def test_excluded_driver_capability_is_refused(
    integration: str, node8: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """A container that names the capability does not start."""
    node = node8.apart(tmp_path / "node", request={"driverCapabilities": ["utility"]})
    done = through(integration, node, tmp_path, root_of("debian"), asks("1", "utility,compute"))
    assert done.rc != 0
    assert "GH1027" in done.stderr + done.log


def test_driver_capabilities_of_attach(node8: Installation, tmp_path: Path) -> None:
    """`attach` adds only allowed capabilities, and refuses a request for others."""
    node = node8.apart(tmp_path / "node", request={"driverCapabilities": ["utility", "graphics"]})
    made = sleeping(tmp_path, env=["NVIDIA_DRIVER_CAPABILITIES=compute"])
    with started(made, node) as live:
        words = ("--device", "0", "--driver-capabilities")
        assert "compute" in live.refused("GH1027", "attach", *words, "utility,compute")
        live.attach("1")
        assert set(live.view().gpus()) == {"/dev/nvidiactl", node.device(1)}
        live.report("attach", *words, "all")
        assert set(live.view().gpus()) == {
            "/dev/nvidiactl", MODESET, node.device(0), node.device(1),
        }  # fmt: skip


@pytest.mark.parametrize("integration", ["runc", "runc-prestart"])
def test_on_refusal_fail_stops_the_container(
    integration: str, node8: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """The error names the refused request and the setting."""
    closed = {"acceptEnvWhenUnprivileged": False, "onRefusal": "fail"}
    node = node8.apart(tmp_path / "node", request=closed)
    done = through(integration, node, tmp_path, root_of("debian"), asks("1"))
    messages = done.stderr + done.log
    assert done.rc != 0
    for word in ("GH1026", "NVIDIA_VISIBLE_DEVICES", "request.acceptEnvWhenUnprivileged"):
        assert word in messages
    root = root_of("distroless")
    assert through(integration, node, tmp_path / "void", root, asks("void")).rc == 0


SOURCES = ("variable", "annotation", "mount", "CDI mount")


def with_source(made: Bundle, source: str, name: str) -> Bundle:
    """Add a request for `name` to a bundle, by one source."""
    config = made.config()
    mount = {"source": "/dev/null", "type": "bind", "options": ["bind", "ro"]}
    if source == "variable":
        config["process"]["env"] += asks(name)
    elif source == "annotation":
        config["annotations"] = {"cdi.k8s.io/x": f"nvidia.com/gpu={name}"}
    elif source == "mount":
        config["mounts"].append({**mount, "destination": BELOW + name})
    else:
        config["mounts"].append({**mount, "destination": f"{BELOW}cdi/nvidia.com/gpu/{name}"})
    made.write(config)
    return made


@pytest.mark.parametrize("route", ["wrapper", "prestart"])
@pytest.mark.parametrize("source", SOURCES)
def test_old_form_of_a_mig_name(
    source: str, route: str, mig: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """MIG-GPU-<uuid>/<gi>/<ci> is accepted from each source, without the state of generate-cdi."""
    node = mig.apart(tmp_path / "node", request={"acceptVolumeMounts": True})
    (node.state / "node.json").unlink()
    name = f"MIG-{mig.gpu(0).uuid}/8/0"
    if route == "wrapper":
        made = bundle_of("debian")
        view = node.run(with_source(made, source, name)).view
    else:
        hooks = prestart(node)
        made = bundle_of("debian", hooks=hooks)
        view = run(with_source(made, source, name), ["runc"]).view
    assert set(view.gpus()) == CONTROL | OLD_FORM


def test_attach_by_name_without_an_inventory(mig: Installation, tmp_path: Path) -> None:
    """The old form of a MIG name and a bus id are resolved."""
    node = mig.apart(tmp_path / "node")
    (node.state / "node.json").unlink()
    made = sleeping(tmp_path)
    with started(made, node) as live:
        live.attach(f"MIG-{mig.gpu(0).uuid}/8/0")
        assert set(live.view().gpus()) == CONTROL | OLD_FORM
        live.attach(str(mig.gpu(2).pci_bus_id))
        assert node.device(2) in live.view().gpus()


def test_invalid_device_mount_is_reported(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The devices of other mounts are assigned."""
    node = node8.apart(tmp_path / "node", request={"acceptVolumeMounts": True})
    bundle = bundle_of("distroless", ["/probe"], [])
    with_source(with_source(bundle, "mount", "cdi/gpu0"), "mount", "3")
    done = node.edit(bundle)
    assert done.warned == ["GH1028"]
    assert done.log.count("cdi/gpu0") == 1
    paths = [device["path"] for device in bundle.config()["linux"]["devices"]]
    assert node.device(3) in paths


def add_idmapped_mount(node: Installation, tmp_path: Path) -> str:
    """Add a mount with idmap of root's file to the node's spec; return its path in containers."""
    let_through(tmp_path / "any")
    own = tmp_path / "owned"
    own.write_text("root's\n", encoding="utf-8")
    text = node.spec.read_text(encoding="utf-8")
    entry = "\n".join((
        "  mounts:",
        f"  - hostPath: {own}",
        "    containerPath: /owned",
        "    options: [ro, nosuid, nodev, bind, idmap]",
        "",
    ))  # fmt: skip
    assert text.count("\n  mounts:\n") == 1
    node.spec.write_text(text.replace("\n  mounts:\n", "\n" + entry, 1), encoding="utf-8")
    return "/owned"


# runc 1.1 cannot map mounts: gpuhook must not pass it the option.
MAPPED = [("crun", True), ("crun", False), ("prestart", True), ("prestart", False), ("runc", False)]


@pytest.mark.parametrize(("integration", "has_namespace"), MAPPED)
def test_idmapped_mount_keeps_its_owner(
    integration: str, has_namespace: bool, node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """Root's file on the host is root's in the container, with and without a user namespace."""
    node = installation(tmp_path / "own", "t4", node8.bindir)
    let_through(Path(node.node.driver_root) / "any")
    path = add_idmapped_mount(node, tmp_path)
    hooks = prestart(node) if integration == "prestart" else {}
    args = ["/probe", *questions(path)]
    made = bundle_of("debian", args, asks("0"), hooks=hooks)
    if has_namespace:
        mapped(made)
    done = run(made) if integration == "prestart" else node.run(made, integration)
    assert done.view.paths[path].uid == 0
