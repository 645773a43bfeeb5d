# SPDX-License-Identifier: Apache-2.0
"""A node as a CDI spec: names, nodes, mounts, the hook, and specs without a hook."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi import validate
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Node
from gpuhook.vendors.nvidia.spec import device_selection
from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described
from gpuhook.vendors.nvidia.spec.gpu_spec import describe

LIB = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture(scope="module")
def t4() -> Node:
    """Return the node with one T4."""
    return dump_file.load("t4")


@pytest.fixture(scope="module")
def h100() -> Node:
    """Return the node with eight H100."""
    return dump_file.load("h100x8")


def described(node: Node, **choices: Any) -> Described:
    """Return the description of `node`, checked to be a valid spec."""
    found = describe(node, Choices(**choices))
    validate.check(found.spec, "generated")
    return found


def names(found: Described) -> list[str]:
    """Return the names of the devices."""
    return [device["name"] for device in found.spec["devices"]]


def nodes(found: Described, name: str) -> list[str]:
    """Return the node paths of the device `name`."""
    edits = next(d["containerEdits"] for d in found.spec["devices"] if d["name"] == name)
    return [node["path"] for node in edits["deviceNodes"]]


def mounts(found: Described) -> dict[str, str]:
    """Return container path -> host path of the mounts."""
    return {m["containerPath"]: m["hostPath"] for m in found.spec["containerEdits"]["mounts"]}


def test_devices_have_names_of_every_strategy(h100: Node) -> None:
    """Each strategy names every GPU, in the order of the strategies; `all` comes last."""
    found = described(h100, strategies=("type-index", "index", "uuid"))
    given = names(found)
    assert given[:8] == [f"gpu{index}" for index in range(8)]
    assert given[8:16] == [str(index) for index in range(8)]
    assert given[16:24] == [gpu.uuid for gpu in h100.gpus]
    assert given[24:] == ["all"]


def test_gpu_has_the_node_of_its_minor(h100: Node) -> None:
    """The node follows the minor number, which may differ from the index."""
    found = described(h100)
    for gpu in h100.gpus:
        assert nodes(found, str(gpu.index)) == [f"/dev/nvidia{gpu.minor}"]
        assert nodes(found, str(gpu.uuid)) == [f"/dev/nvidia{gpu.minor}"]
    assert nodes(found, "all") == [f"/dev/nvidia{minor}" for minor in range(8)]


def test_nodes_have_no_numbers(t4: Node) -> None:
    """A device node has no type, major or minor: they are read when the spec is applied."""
    found = described(t4)
    everything = [
        found.spec["containerEdits"],
        *(d["containerEdits"] for d in found.spec["devices"]),
    ]
    for edits in everything:
        for node in edits["deviceNodes"]:
            assert set(node) == {"path", "fileMode", "permissions"}
            assert node["fileMode"] == 0o666
            assert node["permissions"] == "rw"
    assert found.spec["cdiVersion"] == "0.5.0"


def test_control_nodes_are_common_edits(t4: Node) -> None:
    """They are sorted, and no GPU is among them."""
    paths = [node["path"] for node in described(t4).spec["containerEdits"]["deviceNodes"]]
    expected = ["nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"]
    assert paths == ["/dev/" + name for name in expected]


def test_lost_gpu_is_left_out() -> None:
    """A lost GPU has no device, is not in `all`, and has a warning."""
    node = dump_file.load("lost-gpu")
    found = described(node)
    lost = next(gpu for gpu in node.gpus if gpu.lost)
    assert str(lost.index) not in names(found)
    assert len(nodes(found, "all")) == len(node.gpus) - 1
    assert [w for w in found.warnings if f"GPU {lost.index}" in w and str(lost.lost) in w]


@pytest.mark.parametrize("identifier", ["2", "uuid", "UUID", "bus", "short bus"])
def test_device_ids_select_gpus(h100: Node, identifier: str) -> None:
    """--device-id accepts an index, a UUID or a PCI bus id in any form; `all` is the selection."""
    gpu = h100.gpus[2]
    uuid, bus = str(gpu.uuid), str(gpu.pci_bus_id)
    value = {"uuid": uuid, "UUID": uuid.upper(), "bus": bus, "short bus": bus[4:].lower()}
    found = described(h100, device_ids=(value.get(identifier, identifier),))
    assert names(found) == ["2", uuid, "all"]
    assert nodes(found, "all") == [f"/dev/nvidia{gpu.minor}"]


def test_device_id_all_selects_every_gpu(t4: Node) -> None:
    assert described(t4, device_ids=("all",)).spec == described(t4).spec


def test_spec_without_a_device_all(t4: Node) -> None:
    """Only the GPUs' own names remain."""
    assert names(described(t4, with_all=False, strategies=("index",))) == ["0"]


@pytest.mark.parametrize(
    ("profile", "ids", "code"),
    [("t4", ("7",), "GH1511"), ("t4", ("GPU-0",), "GH1511"), ("lost-gpu", ("LOST",), "GH1512")],
)
def test_unknown_and_lost_ids_are_refused(profile: str, ids: tuple[str, ...], code: str) -> None:
    """An id that no GPU has, or that of a lost one, is a fault with the id."""
    node = dump_file.load(profile)
    lost = next((str(gpu.index) for gpu in node.gpus if gpu.lost), "")
    ids = tuple(lost if value == "LOST" else value for value in ids)
    with pytest.raises(GpuhookError, match=ids[0]) as caught:
        described(node, device_ids=ids)
    assert caught.value.code == code


def test_missing_node_is_a_warning_or_a_fault(t4: Node) -> None:
    """A GPU without its device node is skipped; without another GPU it is a fault."""
    node = replace(t4, device_nodes=t4.device_nodes[:-1])
    with pytest.raises(GpuhookError, match=r"/dev/nvidia0 is missing") as caught:
        described(node)
    assert caught.value.code == "GH1513"


def test_other_dev_root_is_a_host_path(t4: Node) -> None:
    """hostPath is written if the node has another path on the host, and only then."""
    moved = tuple(replace(n, host_path="/run/nvidia/driver" + n.path) for n in t4.device_nodes)
    found = described(replace(t4, device_nodes=moved))
    node = found.spec["devices"][0]["containerEdits"]["deviceNodes"][0]
    assert node["hostPath"] == "/run/nvidia/driver/dev/nvidia0"
    assert found.spec["cdiVersion"] == "0.5.0"


@pytest.mark.parametrize(
    ("mode", "gids", "version"), [(0o660, [44], "0.7.0"), (0o666, None, "0.5.0")]
)
def test_group_is_added_if_it_is_needed(
    t4: Node, mode: int, gids: list[int] | None, version: str
) -> None:
    """A node that only a group may open adds that group; one that all may open does not."""
    restricted = tuple(replace(node, gid=44, mode=mode) for node in t4.device_nodes)
    found = described(replace(t4, device_nodes=restricted))
    edits = found.spec["devices"][0]["containerEdits"]
    assert edits["deviceNodes"][0]["gid"] == 44
    assert edits.get("additionalGids") == gids
    assert found.spec["cdiVersion"] == version


def test_mounts_are_restricted(t4: Node) -> None:
    """Files are mounted read-only without setuid or devices; sockets without execution."""
    for mount in described(t4).spec["containerEdits"]["mounts"]:
        first = "nosuid" if mount["containerPath"].endswith("/socket") else "ro"
        assert mount["options"][0] == first
        assert {"nosuid", "nodev", "bind", "rprivate"} <= set(mount["options"])
        assert ("noexec" in mount["options"]) == (first == "nosuid")


def test_mounts_are_sorted_and_unique(h100: Node) -> None:
    """By depth, each target once."""
    found = described(h100).spec["containerEdits"]["mounts"]
    targets = [mount["containerPath"] for mount in found]
    assert targets == sorted(set(targets), key=lambda path: (path.count("/"), path))
    assert len(targets) == len({file.container_path for file in h100.files})


def test_one_hook_has_all_jobs(t4: Node) -> None:
    """Its environment is explicit, and its own parser finds every job in its arguments."""
    hooks = described(t4, hook_path="/opt/hook", host_root="/host").spec["containerEdits"]["hooks"]
    assert [(hook["hookName"], hook["path"]) for hook in hooks] == [
        ("createContainer", "/opt/hook")
    ]
    assert hooks[0]["env"] == ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    assert hook_args.is_ours(hooks[0])
    todo = hook_args.of_hook(hooks[0])
    libraries = {(f.container_path, f.soname) for f in t4.files if f.kind == "library"}
    libraries |= {(f.container_path, f.soname) for f in t4.files if "vdpau" in f.container_path}
    assert set(todo.libraries) == libraries
    assert ("libcuda.so.1", f"{LIB}/libcuda.so") in todo.links
    assert todo.fingerprint == t4.fingerprint
    assert todo.libcuda == f"{LIB}/libcuda.so.{t4.driver.version}"
    assert todo.driver_version == t4.driver.version
    assert todo.driver_params is t4.masks_params
    assert todo.host_root == "/host"


def test_variables_of_a_spec(t4: Node) -> None:
    """NVIDIA_VISIBLE_DEVICES becomes void, so that no hook injects a second time; and
    programs of the image get the directory of the driver's libcuda, if it exists.
    """
    void, where = "NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR="
    directory = "/usr/lib/x86_64-linux-gnu"

    def env(choices: Choices) -> list[str]:
        return list(describe(t4, choices).spec["containerEdits"]["env"])

    assert env(Choices()) == [f"{where}{directory}", void]
    assert env(Choices(capabilities=frozenset({"utility"}))) == [void]
    assert f"{where}/usr/local/nvidia/lib64" in env(Choices(hooks="none"))


def test_capabilities_limit_files_nodes_and_links(t4: Node) -> None:
    """With utility alone there is NVML and nvidia-smi, and no file of CUDA or graphics."""
    found = described(t4, capabilities=vocabulary.parse_capabilities("utility"))
    paths = list(mounts(found))
    assert f"{LIB}/libnvidia-ml.so.{t4.driver.version}" in paths
    assert "/usr/bin/nvidia-smi" in paths
    assert not [path for path in paths if "libcuda" in path or "GLX" in path]
    control = [node["path"] for node in found.spec["containerEdits"]["deviceNodes"]]
    assert control == ["/dev/nvidiactl"]
    todo = hook_args.of_hook(found.spec["containerEdits"]["hooks"][0])
    assert not [link for link in todo.links if "libcuda" in link[1]]
    assert todo.cuda_compat == ""


def test_without_hooks_libraries_have_all_their_names(t4: Node) -> None:
    """Each library is bound under file name, SONAME and links, in one directory."""
    found = described(t4, hooks="none")
    assert "hooks" not in found.spec["containerEdits"]
    bound = mounts(found)
    cuda = f"{LIB}/libcuda.so.{t4.driver.version}"
    for name in ("libcuda.so", "libcuda.so.1", f"libcuda.so.{t4.driver.version}"):
        assert bound[f"{hookless_mounts.DIRECTORY}/{name}"] == cuda
    assert bound[f"{LIB}/gbm/nvidia-drm_gbm.so"].startswith(f"{LIB}/libnvidia-allocator.so.")
    assert bound[f"{LIB}/vdpau/libvdpau_nvidia.so.1"].startswith(f"{LIB}/vdpau/")
    assert bound["/usr/bin/nvidia-smi"] == "/usr/bin/nvidia-smi"
    assert not [path for path in bound if path.startswith(f"{LIB}/lib")]
    assert hookless_mounts.ENV in found.spec["containerEdits"]["env"]
    assert [warning for warning in found.warnings if "ModifyDeviceFiles" in warning]


def test_without_hooks_no_program_of_the_host_is_named(t4: Node) -> None:
    assert "gpuhook" not in str(described(t4, hooks="none").spec)


def test_aliases_lead_to_names_in_the_spec(h100: Node) -> None:
    """Every other name of a GPU, in lower case, leads to its UUID, or to the spec's name."""
    gpu = h100.gpus[3]
    bus = str(gpu.pci_bus_id).lower()
    found = device_selection.aliases(h100.gpus, ("index", "uuid"))
    assert {found[name] for name in (bus, bus[4:], "3", "gpu3", str(gpu.uuid).lower())} == {
        gpu.uuid
    }
    by_index = device_selection.aliases(h100.gpus, ("index",))
    assert {by_index[name] for name in (bus, bus[4:], "gpu3", str(gpu.uuid).lower())} == {"3"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:00:1E.0", "0000:00:1e.0"),
        ("0000:00:1e.0", "0000:00:1e.0"),
        ("00:1e.0", "0000:00:1e.0"),
        ("00010000:3B:00.1", "10000:3b:00.1"),
        ("0", ""),
        ("GPU-1", ""),
        ("a:b", ""),
        ("", ""),
    ],
)
def test_bus_ids_are_normalized(text: str, expected: str) -> None:
    """NVML's, the kernel's and the short form of a PCI bus id are the same GPU."""
    assert device_selection.bus_id(text) == expected


def test_node_without_gpus_is_a_fault(t4: Node) -> None:
    with pytest.raises(GpuhookError) as caught:
        described(replace(t4, gpus=()))
    assert caught.value.code == "GH1513"


def test_restricted_common_node_needs_its_group(t4: Node) -> None:
    """The groups of control nodes are common edits: every container needs them."""
    control = DeviceNode("/dev/nvidiactl", "/dev/nvidiactl", 195, 255, 0o660, 0, 27)
    found = described(replace(t4, device_nodes=(control, t4.device_nodes[-1])))
    assert found.spec["containerEdits"]["additionalGids"] == [27]


def test_spec_of_some_capabilities_has_the_whole_fingerprint(t4: Node) -> None:
    """libcuda's identity is part of it, even if containers do not get the file."""
    whole, limited = (
        hook_args.of_hook(described(t4, capabilities=chosen).spec["containerEdits"]["hooks"][0])
        for chosen in (None, frozenset({"utility"}))
    )
    assert limited.libcuda == whole.libcuda != ""
    assert limited.fingerprint == whole.fingerprint
    assert (limited.cuda_compat, whole.cuda_compat != "") == ("", True)
