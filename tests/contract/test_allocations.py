# SPDX-License-Identifier: Apache-2.0
"""Each strategy's answer, given to a real runtime, gives a container its GPU and no other."""

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
from tests.contract import engines
from tests.contract.bundles import Bundles
from tests.contract.cri import cri_of
from tests.contract.installation import ALL_CONTROL, CONTROL, DRIVER_LIBRARIES, Installation
from tests.contract.kubelet_side import hand, podman_options
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
class Plugin:
    """What the device plugin knows of the node of an installation."""

    installation: Installation
    resource: Resource
    node: Node

    def answer(self, ids: list[str], *strategies: str, **flags: object) -> Allocation:
        """Return what Allocate says by these strategies; CDI specs go where engines read them."""
        own = PluginFlags(device_list_strategy=strategies, **flags)  # type: ignore[arg-type]
        configuration = Configuration(Flags(plugin=own))
        specs = Specs()
        if any(strategy.startswith("cdi-") for strategy in strategies):
            specs = self.written()
        return allocate(self.resource, ids, contexts.context(configuration, self.node, specs))

    def written(self, hooks: str = "gpuhook") -> Specs:
        """Write the plugin's CDI specs beside the node's own."""
        hook = plugin_specs.Hook(hooks, str(self.installation.bindir / "gpuhook-hook"))
        root = self.installation.node.host_root
        place = str(self.installation.specs)
        specs = plugin_specs.update(self.node, (), hook, directory=place, host_root=root)
        assert specs.trouble == ""
        return specs

    def replica(self, index: int, number: int) -> str:
        """Return the id of a replica of the GPU of this index."""
        return f"{self.installation.gpu(index).uuid}::{number}"


@pytest.fixture(scope="module")
def told(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Give the node as its host sees it, though it was looked at by another name of its driver's
    tree, as in a plugin's container.
    """
    node = node8.node
    mounted = tmp_path_factory.mktemp("plugin") / "driver-root"
    mounted.symlink_to(node.driver_root)
    own = PluginFlags(container_driver_root=str(mounted))
    where = host_paths.places(Flags(driver_root=node.driver_root, plugin=own), node.host_root)
    assert where.driver == where.dev == str(mounted)
    seen = discover.node(discover.Roots(where.driver, where.dev, node.host_root))
    found = host_paths.at_host(seen, where)
    assert str(mounted) in repr((seen.device_nodes, seen.files))
    assert str(mounted) not in repr((found.device_nodes, found.files))
    return found


@pytest.fixture
def plugin(apart: Installation, told: Node) -> Plugin:
    """Give the plugin of a node with eight GPUs of four replicas each."""
    apart.settings["request"] = {"acceptVolumeMounts": True}
    apart.configure()
    paths = {device.path: device.host_path for device in told.device_nodes}
    units = []
    for gpu in told.gpus:
        path, uuid = f"/dev/nvidia{gpu.minor}", str(gpu.uuid)
        device = Device(uuid, str(gpu.index), uuid, gpu.index, (path,), (paths[path],))
        units += [Unit(f"{uuid}::{n}", device, n) for n in range(REPLICAS)]
    return Plugin(apart, Resource("nvidia.com/gpu", tuple(units), "time-slicing"), told)


def asked(installation: Installation, *loaded: str) -> list[str]:
    """Return the probe with its questions: every GPU's node, tried, and libraries, loaded."""
    every = [installation.number(index) for index in range(8)]
    names = loaded or DRIVER_LIBRARIES
    paths = (SMI, f"{LIB64}/libcuda.so.1")
    return ["/probe", *questions(*paths, tries=every, runs=[["/dlprobe", *names]])]


def assert_gpu(
    view: View, installation: Installation, index: int, control: set[str] = CONTROL
) -> None:
    """Assert that the container has one GPU, may open it and none of the others."""
    assert set(view.gpus()) == {*control, installation.device(index)}
    assert all(node.open == "ENXIO" for node in view.gpus().values()), view.gpus()
    denied = {number for number, error in view.tries.items() if error == "EPERM"}
    assert denied == {installation.number(other) for other in range(8) if other != index}


def assert_driver(view: View, installation: Installation, directory: str = "") -> None:
    """Assert that the loader finds the driver's libraries, those of the node's version."""
    (ran,) = view.runs
    assert ran.rc == 0, ran
    for name, found in ran.found().items():
        assert "real" in found, (name, found)
        assert found["real"].startswith(directory), (name, found)


@WRAPPED
@pytest.mark.parametrize("kind", ["debian", "musl"])
def test_through_gpuhook_runtime(
    kind: str, strategy: str, id_strategy: str, plugin: Plugin, bundle_of: Bundles
) -> None:
    """The wrapper takes variables, mounts and annotations, and gives the GPU that they name."""
    installation = plugin.installation
    given = plugin.answer([plugin.replica(2, 1)], strategy, device_id_strategy=id_strategy)
    bundle = bundle_of(kind, asked(installation), ["NVIDIA_VISIBLE_DEVICES=all"])
    hand(given, bundle)
    view = installation.run(bundle).view
    assert_gpu(view, installation, 2)
    assert_driver(view, installation)
    assert view.values("GPUHOOK_REPLICAS") == [plugin.replica(2, 1)]


@WRAPPED
def test_the_ledger_has_the_replicas(
    strategy: str, id_strategy: str, plugin: Plugin, bundle_of: Bundles
) -> None:
    """`gpuhook ps` prints two containers on one GPU, each with its replica."""
    installation = plugin.installation
    with ExitStack() as stack:
        for number in (0, 3):
            ids = [plugin.replica(5, number)]
            given = plugin.answer(ids, strategy, device_id_strategy=id_strategy)
            bundle = bundle_of("distroless")
            hand(given, bundle)
            made = installation.lifecycle(bundle)
            created = stack.enter_context(made).create()
            assert created.rc == 0, created
        held = sorted((one["gpus"], one["replicas"]) for one in installation.holders())
    uuid = installation.gpu(5).uuid
    assert held == [([uuid], [f"{uuid}::0"]), ([uuid], [f"{uuid}::3"])]


def test_two_gpus(plugin: Plugin, bundle_of: Bundles) -> None:
    """All strategies at once: two replicas on two GPUs, and device specs beside them."""
    installation = plugin.installation
    ids = [plugin.replica(6, 0), plugin.replica(1, 2)]
    strategies = ("envvar", "cdi-annotations")
    given = plugin.answer(ids, *strategies, pass_device_specs=True)
    bundle = bundle_of("debian", asked(installation))
    hand(given, bundle)
    with installation.lifecycle(bundle) as container:
        assert container.create().rc == 0
        (held,) = installation.holders()
    assert sorted(held["gpus"]) == sorted(str(installation.gpu(n).uuid) for n in (1, 6))
    assert held["replicas"] == [plugin.replica(1, 2), plugin.replica(6, 0)]
    nodes = [node["path"] for node in bundle.config()["linux"]["devices"]]
    assert len(nodes) == len(set(nodes))
    view = installation.run(bundle).view
    assert set(view.gpus()) == {*ALL_CONTROL, installation.device(1), installation.device(6)}


def test_replicas_of_somebody_else_are_not_noted(plugin: Plugin, bundle_of: Bundles) -> None:
    """A variable that an image sets cannot claim a replica of a GPU that was not given."""
    installation = plugin.installation
    claimed = f"GPUHOOK_REPLICAS={plugin.replica(3, 0)},{plugin.replica(2, 0)}"
    bundle = bundle_of("distroless", ["/probe"], ["NVIDIA_VISIBLE_DEVICES=2", claimed])
    with installation.lifecycle(bundle) as container:
        assert container.create().rc == 0
        (held,) = installation.holders()
    assert held["replicas"] == [plugin.replica(2, 0)]


def test_no_gpu(plugin: Plugin, bundle_of: Bundles) -> None:
    """The answer to an empty request gives an image that says `all` nothing."""
    installation = plugin.installation
    bundle = bundle_of("distroless", ["/probe"], ["NVIDIA_VISIBLE_DEVICES=all"])
    hand(plugin.answer([], "envvar"), bundle)
    assert installation.run(bundle).view.gpus() == {}


@pytest.mark.parametrize("hooks", ["gpuhook", "none"])
@pytest.mark.parametrize("kind", ["debian", "lib64"])
def test_by_cdi_names(
    kind: str, hooks: str, plugin: Plugin, tmp_path: Path, root_of: Roots
) -> None:
    """An engine that reads CDI resolves the names by the plugin's spec, with a hook or without."""
    installation = plugin.installation
    installation.spec.unlink()
    given = plugin.answer([plugin.replica(4, 2)], "cdi-cri")
    plugin.written(hooks)
    view = engines.podman(
        tmp_path / "podman",
        root_of(kind),
        asked(installation),
        ["--cap-add", "MKNOD", *podman_options(given)],
        cdi=installation.specs,
        state=installation.state,
    ).view
    assert_gpu(view, installation, 4, ALL_CONTROL)
    assert_driver(view, installation)
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_by_cdi_names_in_the_ledger(
    is_wrapped: bool, plugin: Plugin, tmp_path: Path, root_of: Roots
) -> None:
    """If an engine applied the plugin's spec, its hook or the wrapper notes the replica."""
    installation = plugin.installation
    claimed = allocate(plugin.resource, [plugin.replica(3, 1)], contexts.Context()).envs
    given = plugin.answer([plugin.replica(4, 2)], "cdi-cri")
    told = f"{given.envs['GPUHOOK_REPLICAS']},{claimed['GPUHOOK_REPLICAS']}"
    ended = engines.podman(
        tmp_path / "podman",
        root_of("distroless"),
        ["/probe"],
        podman_options(replace(given, envs={"GPUHOOK_REPLICAS": told})),
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
def test_host_files_need_no_gpuhook(
    kind: str, engine: str, plugin: Plugin, bundle_of: Bundles
) -> None:
    """Plain runtimes give the nodes, the libraries by every name, and nvidia-smi."""
    installation = plugin.installation
    given = plugin.answer([plugin.replica(2, 0), plugin.replica(2, 1)], "host-files")
    env = ["NVIDIA_VISIBLE_DEVICES=all", "LD_LIBRARY_PATH=/opt/other"]
    bundle = bundle_of(kind, asked(installation, *DRIVER_LIBRARIES, "libcuda.so"), env)
    hand(given, bundle)
    view = run(bundle, [engine], engine).view
    assert_gpu(view, installation, 2, ALL_CONTROL)
    assert_driver(view, installation, LIB64)
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]
    assert (view.paths[SMI].kind, view.paths[SMI].mode & 0o111) == ("file", 0o111)
    ours = [mount for path, mount in view.mounts.items() if "nvidia" in path]
    assert len(ours) > 20
    assert all("ro" in mount.options for mount in ours)
    assert installation.entries() == []


def test_device_specs_need_no_gpuhook(plugin: Plugin, bundle_of: Bundles) -> None:
    """What pass-device-specs adds is enough for the nodes, under plain runc."""
    installation = plugin.installation
    ids = [plugin.replica(7, 0), plugin.replica(7, 3)]
    given = plugin.answer(ids, "envvar", pass_device_specs=True)
    assert len(given.devices) == len(ALL_CONTROL) + 1
    bundle = bundle_of("distroless", asked(installation))
    hand(given, bundle)
    assert_gpu(run(bundle).view, installation, 7, ALL_CONTROL)


@pytest.mark.parametrize(
    ("strategy", "handler", "control"),
    [("envvar", "nvidia", CONTROL), ("host-files", "runc", ALL_CONTROL)],
)
def test_by_a_kubelets_engine(
    strategy: str, handler: str, control: set[str], plugin: Plugin, tmp_path: Path
) -> None:
    """containerd makes the same of the answer: with our handler, and with plain runc."""
    installation = plugin.installation
    given = plugin.answer([plugin.replica(3, 1)], strategy)
    with cri_of(installation, tmp_path) as containerd, containerd.pod("sliced", handler) as pod:
        view = containerd.view(pod, given)
    assert set(view.gpus()) == {*control, installation.device(3)}
    assert all(node.open == "ENXIO" for node in view.gpus().values())
    assert view.values("GPUHOOK_REPLICAS") == [plugin.replica(3, 1)]
    if strategy == "host-files":
        assert "ro" in view.mounts[f"{LIB64}/libcuda.so.1"].options
        assert view.values("LD_LIBRARY_PATH") == [f"/usr/local/nvidia/lib:{LIB64}"]
