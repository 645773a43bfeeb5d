# SPDX-License-Identifier: Apache-2.0
"""What a container has of its GPUs, seen from inside, by each integration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract import integrations, roots
from tests.contract.bundles import Bundles
from tests.contract.installation import (
    ALL_CONTROL,
    CONTROL,
    DRIVER_LIBRARIES,
    LIBRARIES,
    MAJOR,
    Installation,
    asks,
)
from tests.contract.integrations import Integrations
from tests.contract.roots import Roots
from tests.contract.runtimes import run
from tests.contract.views import Ran, View, questions

INTEGRATIONS = pytest.mark.parametrize("integration", integrations.ALL)
LINKS = tuple(f"{LIBRARIES}/{name}" for name in (*DRIVER_LIBRARIES, "libcuda.so"))
LOOKED_UP = ["/dlprobe", *DRIVER_LIBRARIES]
CACHE = ["/ldconfig", "-p"]


def assert_found(ran: Ran, version: str) -> None:
    """Assert that the dynamic loader found the driver's libraries, in this version."""
    assert ran.rc == 0, ran
    for name, answer in ran.found().items():
        assert answer.get("real") == f"{LIBRARIES}/{name.rpartition('.')[0]}.{version}", answer


def assert_cached(ran: Ran) -> None:
    """Assert that `ldconfig -p` lists the driver's libraries first.

    An image with a merged /usr can list the directory as /lib/x86_64-linux-gnu.
    """
    listed = [line.split() for line in ran.output.splitlines() if "=>" in line]
    for name in DRIVER_LIBRARIES:
        first = next((line for line in listed if line[0] == name), None)
        assert first is not None, ran.output
        assert first[-1] in (f"{LIBRARIES}/{name}", f"{LIBRARIES}/{name}".removeprefix("/usr"))


def assert_nodes(view: View, installation: Installation, control: set[str], *indexes: int) -> None:
    """Assert that the container has exactly these nodes and can open exactly these GPUs."""
    gpus = {installation.device(index) for index in indexes}
    assert set(view.gpus()) == control | gpus
    assert all(node.allowed for node in view.gpus().values()), view.gpus()
    for index in range(len(installation.node.node.gpus)):
        if installation.number(index) in view.tries:
            allowed = view.tries[installation.number(index)] != "EPERM"
            assert allowed == (index in indexes), view.tries


def assert_mounts(view: View) -> None:
    """Assert that each file of the driver is read-only, without set-uid bits and devices."""
    driver_mounts = [m for m in view.mounts.values() if "nvidia" in m.target]
    assert len(driver_mounts) > 10
    for mount in driver_mounts:
        wanted = {"noexec"} if mount.target.endswith("/socket") else {"ro"}
        assert wanted | {"nosuid", "nodev"} <= mount.options, mount
        assert not mount.optional, mount


def assert_given(view: View, installation: Installation, index: int) -> None:
    """Assert that a container with a glibc has one GPU, and all that belongs to it.

    The probe must have the questions LINKS, and the runs LOOKED_UP and CACHE.
    """
    assert_nodes(view, installation, CONTROL, index)
    node = view.gpus()[installation.device(index)]
    assert (node.major, node.minor, node.mode) == (MAJOR, installation.gpu(index).minor, 0o666)
    assert_found(view.runs[0], str(installation.node.node.driver.version))
    assert_cached(view.runs[1])
    assert [view.paths[path].kind for path in LINKS] == ["link"] * 3
    assert_mounts(view)


@INTEGRATIONS
@pytest.mark.parametrize("kind", roots.KINDS)
def test_each_integration_assigns_one_gpu(
    integration: str, kind: str, node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """By each integration, in each kind of image, a container has its GPU and the driver only."""
    root = roots.with_ldconfig(root_of(kind))
    numbers = [node8.number(index) for index in range(8)]
    command = ["/probe", *questions(*LINKS, tries=numbers, runs=[LOOKED_UP, CACHE])]
    control = ALL_CONTROL if integration == "podman-cdi" else CONTROL
    view = enter.through(integration, root, command, "2", env=["KEPT=a=b"]).view

    assert_nodes(view, node8, control, 2)
    node = view.gpus()[node8.device(2)]
    assert (node.major, node.minor, node.mode) == (MAJOR, node8.gpu(2).minor, 0o666)
    assert view.values("NVIDIA_VISIBLE_DEVICES") == [integrations.visible_devices(integration, "2")]
    assert view.values("KEPT") == ["a=b"]
    looked_up, cached = view.runs
    assert_found(looked_up, str(node8.node.node.driver.version))
    if kind != "musl":
        assert_cached(cached)
    assert [view.paths[path].kind for path in LINKS] == ["link"] * 3


@INTEGRATIONS
def test_driver_files_are_mounted_read_only(
    integration: str, node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """Each file of the driver is mounted read-only, without set-uid bits and devices."""
    version = node8.node.node.driver.version
    view = enter.through(integration, root_of("debian"), ["/probe"]).view
    tree = str(Path(node8.node.driver_root).name)
    driver_mounts = [
        m for m in view.mounts.values() if f"/{tree}/" in m.root and "nvidia" in m.target
    ]
    assert f"{LIBRARIES}/libcuda.so.{version}" in view.mounts
    assert "/usr/bin/nvidia-smi" in view.mounts
    assert len(driver_mounts) > 10
    for mount in driver_mounts:
        wanted = {"nosuid", "nodev"} | ({"noexec"} if mount.target.endswith("/socket") else {"ro"})
        assert wanted <= mount.options, mount
        assert not mount.optional, mount


@pytest.mark.parametrize("form", ["index", "uuid", "pci", "short pci", "cdi", "replica"])
def test_gpu_is_found_by_each_form_of_its_name(
    form: str, node8: Installation, bundle_of: Bundles
) -> None:
    """A GPU is found by its index, UUID, PCI bus id, CDI name, and as a replica."""
    gpu = node8.gpu(2)
    bus = str(gpu.pci_bus_id)
    value = {
        "index": "2",
        "uuid": str(gpu.uuid),
        "pci": bus,
        "short pci": bus[4:].lower(),
        "cdi": f"nvidia.com/gpu={gpu.uuid}",
        "replica": f"{gpu.uuid}::1",
    }[form]
    command = ["/probe", *questions(tries=[node8.number(2), node8.number(3)])]
    bundle = bundle_of("distroless", command, asks(value))
    view = node8.run(bundle).view
    assert_nodes(view, node8, CONTROL, 2)


@pytest.mark.parametrize(
    ("value", "indexes"),
    [("0,2", (0, 2)), ("3,GPU-5c9a1f7e-2f0b-4d35-a1c8-0b6d9e4f7a21", (3, 0)), ("all", range(8))],
)
def test_list_and_all_assign_several_gpus(
    value: str, indexes: tuple[int, ...], node8: Installation, bundle_of: Bundles
) -> None:
    """A list assigns each of its GPUs, `all` assigns every GPU."""
    bundle = bundle_of("distroless", ["/probe"], asks(value))
    assert_nodes(node8.run(bundle).view, node8, CONTROL, *indexes)


def test_none_provides_the_driver_without_gpus(node8: Installation, bundle_of: Bundles) -> None:
    """`none` provides the driver's files and control nodes, and no GPU."""
    command = ["/probe", *questions(tries=[node8.number(0)], runs=[LOOKED_UP])]
    bundle = bundle_of("debian", command, asks("none"))
    view = node8.run(bundle).view
    assert_nodes(view, node8, CONTROL)
    assert view.tries == {node8.number(0): "EPERM"}
    assert_found(view.runs[0], str(node8.node.node.driver.version))


@pytest.mark.parametrize("value", ["void", ""])
def test_void_and_empty_value_change_nothing(
    value: str, node8: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    root = root_of("debian")
    bundle = bundle_of(root, ["/probe"], asks(value))
    before, files = bundle.file.read_bytes(), roots.listing(root)
    view = node8.run(bundle).view
    assert bundle.file.read_bytes() == before
    assert view.gpus() == {}
    assert view.values("NVIDIA_VISIBLE_DEVICES") == [value]
    assert {p for p in roots.listing(root) if "nvidia" in p} == {p for p in files if "nvidia" in p}


@pytest.mark.parametrize(
    ("capabilities", "control", "libraries"),
    [
        ("utility", {"/dev/nvidiactl"}, {"libnvidia-ml.so.1"}),
        ("compute", CONTROL, {"libcuda.so.1"}),
        ("graphics", {"/dev/nvidiactl", "/dev/nvidia-modeset"}, {"libGLX_nvidia.so.0"}),
        ("video", CONTROL, {"libcuda.so.1", "libnvcuvid.so.1"}),
        (
            "all",
            ALL_CONTROL,
            {"libcuda.so.1", "libnvidia-ml.so.1", "libGLX_nvidia.so.0", "libnvcuvid.so.1"},
        ),
    ],
)
def test_driver_capabilities_select_nodes_and_libraries(
    capabilities: str,
    control: set[str],
    libraries: set[str],
    node8: Installation,
    bundle_of: Bundles,
) -> None:
    """NVIDIA_DRIVER_CAPABILITIES selects the control nodes and libraries of a container."""
    names = ["libcuda.so.1", "libnvidia-ml.so.1", "libGLX_nvidia.so.0", "libnvcuvid.so.1"]
    command = ["/probe", *questions(runs=[["/dlprobe", *names]])]
    bundle = bundle_of("debian", command, asks("0", capabilities))
    view = node8.run(bundle).view
    assert_nodes(view, node8, control, 0)
    assert {n for n, answer in view.runs[0].found().items() if "real" in answer} == libraries


def test_annotations_override_the_variable(node8: Installation, bundle_of: Bundles) -> None:
    """CDI names in annotations override the variable, which has the value `void` inside."""
    names = {"cdi.k8s.io/plugin_1": "nvidia.com/gpu=1,nvidia.com/gpu=3"}
    bundle = bundle_of("debian", ["/probe"], asks("0"), names)
    view = node8.run(bundle).view
    assert_nodes(view, node8, CONTROL, 1, 3)
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]


@pytest.mark.parametrize("integration", ["runc", "podman-cdi"])
@pytest.mark.parametrize("kind", ["debian", "lib64"])
def test_later_ldconfig_keeps_the_driver(
    integration: str, kind: str, node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """An ldconfig in the container keeps the driver in the loader cache."""
    command = ["/probe", *questions(runs=[["/sbin/ldconfig"], LOOKED_UP, CACHE])]
    ran = enter.through(integration, roots.with_ldconfig(root_of(kind)), command).view.runs
    assert ran[0].rc == 0, ran[0]
    assert_found(ran[1], str(node8.node.node.driver.version))
    assert_cached(ran[2])


def test_modify_device_files_is_masked(apart: Installation, bundle_of: Bundles) -> None:
    """If the host's driver can make device nodes, its parameters in the container deny that."""
    path = "/proc/driver/nvidia/params"
    bundle = bundle_of("debian", ["/probe", *questions(path)], asks("0"))
    config = bundle.config()
    shown = {"destination": "/proc", "type": "bind", "source": "/proc"}
    shown["options"] = ["rbind", "rprivate"]  # type: ignore[assignment]  # a list, as OCI has it
    config["mounts"] = [shown, *(m for m in config["mounts"] if m["destination"] != "/proc")]
    bundle.write(config)
    driver = Path(apart.node.host_root, "proc/driver")
    script = f'mount --rbind {driver} /proc/driver && exec "$@"'
    runtime = ["unshare", "--mount", "sh", "-c", script, "sh", apart.runtime]
    view = run(bundle, runtime, env=apart.on("runc")).view
    assert b"ModifyDeviceFiles: 0\n" in view.paths[path].content
    assert b"ModifyDeviceFiles: 1" in (driver / "nvidia/params").read_bytes()
    assert view.paths[path].content.count(b"\n") == 6
