# SPDX-License-Identifier: Apache-2.0
"""The answer to Allocate, by each strategy, assigns its GPU and no other to a container."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuhook.device_plugin.allocate import allocation_context as contexts
from gpuhook.device_plugin.allocate import host_paths, plugin_specs
from gpuhook.device_plugin.allocate.allocate import allocate
from gpuhook.device_plugin.allocate.allocation_context import Specs
from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.device_plugin.config.configuration import Configuration, Flags, PluginFlags
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.inventory.inventory import Node
from gpuhook.vendors.nvidia.plugin import nvidia_part
from tests.contract import engines
from tests.contract.bundles import Bundles
from tests.contract.cri import cri_of
from tests.contract.installation import ALL_CONTROL, CONTROL, DRIVER_LIBRARIES, Installation
from tests.contract.kubelet_side import apply_allocation, podman_options
from tests.contract.roots import Roots
from tests.contract.runtimes import ENGINES, run
from tests.contract.views import View, questions

REPLICAS = 4
LIB64 = "/usr/local/nvidia/lib64"
SMI = "/usr/local/nvidia/bin/nvidia-smi"
WRAPPED = pytest.mark.parametrize(
    ("strategy", "id_strategy"),
    [
        ("envvar", "uuid"),
        ("envvar", "index"),
        ("volume-mounts", "uuid"),
        ("volume-mounts", "index"),
        ("cdi-annotations", "uuid"),
        ("cdi-annotations", "index"),
    ],
)


@dataclass(frozen=True)
class PluginNode:
    """What the device plugin knows of an installation's node."""

    installation: Installation
    resource: Resource
    node: Node

    def allocate_replicas(self, ids: list[str], *strategies: str, **flags: object) -> Allocation:
        """Return the answer to Allocate by these strategies, after writing the CDI specs."""
        own = PluginFlags(device_list_strategy=strategies, **flags)  # type: ignore[arg-type]
        configuration = Configuration(Flags(plugin=own))
        specs = Specs()
        if any(strategy.startswith("cdi-") for strategy in strategies):
            specs = self.write_specs()
        part = nvidia_part.part(self.node)
        return allocate(self.resource, ids, contexts.context(configuration, part, specs))

    def write_specs(self, *, has_hooks: bool = True) -> Specs:
        """Write the plugin's CDI specs to the directory of the node's own spec."""
        path = str(self.installation.bindir / "gpuhook-hook")
        hook = plugin_specs.Hook(path if has_hooks else None)
        root = self.installation.node.host_root
        place = str(self.installation.specs)
        part = nvidia_part.part(self.node)
        devices = self.resource.devices
        specs = plugin_specs.update(part, devices, (), hook, directory=place, host_root=root)
        assert specs.trouble == ""
        return specs

    def replica(self, index: int, number: int) -> str:
        """Return the id of a replica of the GPU of this index."""
        return f"{self.installation.gpu(index).uuid}::{number}"


@pytest.fixture(scope="module")
def node_by_host_paths(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Return the node with host paths, discovered below another path as in a plugin's container."""
    node = node8.node
    mounted = tmp_path_factory.mktemp("plugin") / "driver-root"
    mounted.symlink_to(node.driver_root)
    own = PluginFlags(container_driver_root=str(mounted))
    where = host_paths.places(Flags(driver_root=node.driver_root, plugin=own), node.host_root)
    assert where.driver == where.dev == str(mounted)
    discovered = discover.node(discover.Roots(where.driver, where.dev, node.host_root))
    translated = nvidia_part.at_host(discovered, where)
    assert str(mounted) in repr((discovered.device_nodes, discovered.files))
    assert str(mounted) not in repr((translated.device_nodes, translated.files))
    return translated


@pytest.fixture
def plugin(apart: Installation, node_by_host_paths: Node) -> PluginNode:
    """Return the plugin of a node with eight GPUs, each with four replicas."""
    apart.settings["request"] = {"acceptVolumeMounts": True}
    apart.configure()
    paths = {device.path: device.host_path for device in node_by_host_paths.device_nodes}
    units = []
    for gpu in node_by_host_paths.gpus:
        path, uuid = f"/dev/nvidia{gpu.minor}", str(gpu.uuid)
        device = Device(uuid, str(gpu.index), uuid, gpu.index, (path,), (paths[path],))
        units += [Unit(f"{uuid}::{n}", device, n) for n in range(REPLICAS)]
    return PluginNode(
        apart, Resource("nvidia.com/gpu", tuple(units), "time-slicing"), node_by_host_paths
    )


def probe_command(installation: Installation, *loaded: str) -> list[str]:
    """Return the command of the probe: it opens each GPU's node and loads libraries."""
    numbers = [installation.number(index) for index in range(8)]
    names = loaded or DRIVER_LIBRARIES
    paths = (SMI, f"{LIB64}/libcuda.so.1")
    return ["/probe", *questions(*paths, tries=numbers, runs=[["/dlprobe", *names]])]


def assert_gpu(
    view: View, installation: Installation, index: int, control: set[str] = CONTROL
) -> None:
    """Assert that the container has one GPU and can open it, and can open no other GPU."""
    assert set(view.gpus()) == {*control, installation.device(index)}
    assert all(node.open == "ENXIO" for node in view.gpus().values()), view.gpus()
    denied = {number for number, error in view.tries.items() if error == "EPERM"}
    assert denied == {installation.number(other) for other in range(8) if other != index}


def assert_driver(view: View, installation: Installation, directory: str = "") -> None:
    """Assert that the loader finds the driver's libraries, below `directory`."""
    (ran,) = view.runs
    assert ran.rc == 0, ran
    for name, answer in ran.found().items():
        assert "real" in answer, (name, answer)
        assert answer["real"].startswith(directory), (name, answer)


@WRAPPED
@pytest.mark.parametrize("kind", ["debian", "musl"])
def test_wrapper_assigns_the_allocated_gpu(
    kind: str, strategy: str, id_strategy: str, plugin: PluginNode, bundle_of: Bundles
) -> None:
    """gpuhook-runtime reads the answer's variables, mounts and annotations."""
    installation = plugin.installation
    allocation = plugin.allocate_replicas(
        [plugin.replica(2, 1)], strategy, device_id_strategy=id_strategy
    )
    bundle = bundle_of(kind, probe_command(installation), ["NVIDIA_VISIBLE_DEVICES=all"])
    apply_allocation(allocation, bundle)
    view = installation.run(bundle).view
    assert_gpu(view, installation, 2)
    assert_driver(view, installation)
    assert view.values("GPUHOOK_REPLICAS") == [plugin.replica(2, 1)]


@WRAPPED
def test_ps_lists_the_replica_of_each_container(
    strategy: str, id_strategy: str, plugin: PluginNode, bundle_of: Bundles
) -> None:
    """`gpuhook ps` lists two containers on one GPU, each with its replica."""
    installation = plugin.installation
    with ExitStack() as stack:
        for number in (0, 3):
            ids = [plugin.replica(5, number)]
            allocation = plugin.allocate_replicas(ids, strategy, device_id_strategy=id_strategy)
            bundle = bundle_of("distroless")
            apply_allocation(allocation, bundle)
            made = installation.lifecycle(bundle)
            created = stack.enter_context(made).create()
            assert created.rc == 0, created
        holders = sorted((one["gpus"], one["replicas"]) for one in installation.holders())
    uuid = installation.gpu(5).uuid
    assert holders == [([uuid], [f"{uuid}::0"]), ([uuid], [f"{uuid}::3"])]


def test_all_strategies_assign_two_gpus(plugin: PluginNode, bundle_of: Bundles) -> None:
    """With all strategies at once, a container has two replicas on two GPUs, and no node twice."""
    installation = plugin.installation
    ids = [plugin.replica(6, 0), plugin.replica(1, 2)]
    strategies = ("envvar", "cdi-annotations")
    allocation = plugin.allocate_replicas(ids, *strategies, pass_device_specs=True)
    bundle = bundle_of("debian", probe_command(installation))
    apply_allocation(allocation, bundle)
    with installation.lifecycle(bundle) as container:
        assert container.create().rc == 0
        (holder,) = installation.holders()
    assert sorted(holder["gpus"]) == sorted(str(installation.gpu(n).uuid) for n in (1, 6))
    assert holder["replicas"] == [plugin.replica(1, 2), plugin.replica(6, 0)]
    nodes = [node["path"] for node in bundle.config()["linux"]["devices"]]
    assert len(nodes) == len(set(nodes))
    view = installation.run(bundle).view
    assert set(view.gpus()) == {*ALL_CONTROL, installation.device(1), installation.device(6)}


def test_replica_of_an_unassigned_gpu_is_not_recorded(
    plugin: PluginNode, bundle_of: Bundles
) -> None:
    """A variable of an image cannot claim a replica of a GPU that is not assigned."""
    installation = plugin.installation
    claimed = f"GPUHOOK_REPLICAS={plugin.replica(3, 0)},{plugin.replica(2, 0)}"
    bundle = bundle_of("distroless", ["/probe"], ["NVIDIA_VISIBLE_DEVICES=2", claimed])
    with installation.lifecycle(bundle) as container:
        assert container.create().rc == 0
        (holder,) = installation.holders()
    assert holder["replicas"] == [plugin.replica(2, 0)]


def test_empty_allocation_assigns_no_gpu(plugin: PluginNode, bundle_of: Bundles) -> None:
    """The answer to an empty allocation overrides an image's NVIDIA_VISIBLE_DEVICES=all."""
    installation = plugin.installation
    bundle = bundle_of("distroless", ["/probe"], ["NVIDIA_VISIBLE_DEVICES=all"])
    apply_allocation(plugin.allocate_replicas([], "envvar"), bundle)
    assert installation.run(bundle).view.gpus() == {}


@pytest.mark.parametrize("hooks", ["gpuhook", "none"])
@pytest.mark.parametrize("kind", ["debian", "lib64"])
def test_podman_resolves_the_cdi_names(
    kind: str, hooks: str, plugin: PluginNode, tmp_path: Path, root_of: Roots
) -> None:
    """podman resolves the CDI names with the plugin's spec, with a hook or without."""
    installation = plugin.installation
    installation.spec.unlink()
    allocation = plugin.allocate_replicas([plugin.replica(4, 2)], "cdi-cri")
    plugin.write_specs(has_hooks=hooks == "gpuhook")
    view = engines.podman(
        tmp_path / "podman",
        root_of(kind),
        probe_command(installation),
        ["--cap-add", "MKNOD", *podman_options(allocation)],
        cdi=installation.specs,
        state=installation.state,
    ).view
    assert_gpu(view, installation, 4, ALL_CONTROL)
    assert_driver(view, installation)
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_replica_of_a_cdi_name_is_recorded(
    is_wrapped: bool, plugin: PluginNode, tmp_path: Path, root_of: Roots
) -> None:
    """If podman applied the plugin's spec, the ledger has the assigned replica only."""
    installation = plugin.installation
    claimed = allocate(plugin.resource, [plugin.replica(3, 1)], contexts.Context()).envs
    allocation = plugin.allocate_replicas([plugin.replica(4, 2)], "cdi-cri")
    replicas = f"{allocation.envs['GPUHOOK_REPLICAS']},{claimed['GPUHOOK_REPLICAS']}"
    ended = engines.podman(
        tmp_path / "podman",
        root_of("distroless"),
        ["/probe"],
        podman_options(replace(allocation, envs={"GPUHOOK_REPLICAS": replicas})),
        installation.runtime if is_wrapped else "runc",
        cdi=installation.specs,
        env=installation.on("runc") if is_wrapped else None,
        state=installation.state,
    )
    assert installation.device(4) in ended.view.gpus()
    entry = installation.entry()
    assert entry["route"] == ("cdi+wrapper" if is_wrapped else "cdi")
    assert entry["replicas"] == [plugin.replica(4, 2)]
    assert installation.device(4) in entry["nodes"]


@ENGINES
@pytest.mark.parametrize("kind", ["debian", "lib64", "distroless"])
def test_host_files_work_without_gpuhook(
    kind: str, engine: str, plugin: PluginNode, bundle_of: Bundles
) -> None:
    """Under plain runtimes, host-files provides the nodes, the libraries and nvidia-smi."""
    installation = plugin.installation
    allocation = plugin.allocate_replicas(
        [plugin.replica(2, 0), plugin.replica(2, 1)], "host-files"
    )
    env = ["NVIDIA_VISIBLE_DEVICES=all", "LD_LIBRARY_PATH=/opt/other"]
    bundle = bundle_of(kind, probe_command(installation, *DRIVER_LIBRARIES, "libcuda.so"), env)
    apply_allocation(allocation, bundle)
    view = run(bundle, [engine], engine).view
    assert_gpu(view, installation, 2, ALL_CONTROL)
    assert_driver(view, installation, LIB64)
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]
    assert (view.paths[SMI].kind, view.paths[SMI].mode & 0o111) == ("file", 0o111)
    driver_mounts = [mount for path, mount in view.mounts.items() if "nvidia" in path]
    assert len(driver_mounts) > 20
    assert all("ro" in mount.options for mount in driver_mounts)
    assert installation.entries() == []


def test_device_specs_work_without_gpuhook(plugin: PluginNode, bundle_of: Bundles) -> None:
    """With passDeviceSpecs, plain runc provides the device nodes."""
    installation = plugin.installation
    ids = [plugin.replica(7, 0), plugin.replica(7, 3)]
    allocation = plugin.allocate_replicas(ids, "envvar", pass_device_specs=True)
    assert len(allocation.devices) == len(ALL_CONTROL) + 1
    bundle = bundle_of("distroless", probe_command(installation))
    apply_allocation(allocation, bundle)
    assert_gpu(run(bundle).view, installation, 7, ALL_CONTROL)


@pytest.mark.parametrize(
    ("strategy", "handler", "control"),
    [("envvar", "nvidia", CONTROL), ("host-files", "runc", ALL_CONTROL)],
)
def test_containerd_assigns_the_allocated_gpu(
    strategy: str, handler: str, control: set[str], plugin: PluginNode, tmp_path: Path
) -> None:
    """containerd assigns the allocated GPU over the CRI, by gpuhook-runtime and by plain runc."""
    installation = plugin.installation
    allocation = plugin.allocate_replicas([plugin.replica(3, 1)], strategy)
    with cri_of(installation, tmp_path) as containerd, containerd.pod("sliced", handler) as pod:
        view = containerd.view(pod, allocation)
    assert set(view.gpus()) == {*control, installation.device(3)}
    assert all(node.open == "ENXIO" for node in view.gpus().values())
    assert view.values("GPUHOOK_REPLICAS") == [plugin.replica(3, 1)]
    if strategy == "host-files":
        assert "ro" in view.mounts[f"{LIB64}/libcuda.so.1"].options
        assert view.values("LD_LIBRARY_PATH") == [f"/usr/local/nvidia/lib:{LIB64}"]
