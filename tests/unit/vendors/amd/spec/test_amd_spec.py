# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs and partitions as a CDI spec: names, device nodes, groups, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuhook.cdi import validate
from gpuhook.errors import GpuhookError
from gpuhook.vendors.amd.hot.amd_words import KFD
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from gpuhook.vendors.amd.spec.amd_spec import describe
from gpuhook.vendors.spec.spec_choices import DescribedDevices, SpecChoices

RENDER, VIDEO = 109, 44  # groups of the nodes in the profiles


def described(node: AmdNode | str, **choices: Any) -> DescribedDevices:
    """Return the description of a node or of a profile, checked to be a valid spec."""
    facts = amd_dump.load(node) if isinstance(node, str) else node
    found = describe(facts, SpecChoices(**choices))
    validate.check(found.spec, "generated")
    return found


def nodes(found: DescribedDevices) -> dict[str, list[str]]:
    """Return the paths of the nodes of each device, with those that every device gets."""
    common = found.spec["containerEdits"].get("deviceNodes", [])
    return {
        device["name"]: [
            one["path"] for one in (*device["containerEdits"].get("deviceNodes", []), *common)
        ]
        for device in found.spec["devices"]
    }


def test_nodes_as_amds_tool_gives_them() -> None:
    """Devices 0 to n-1 and `all` have the nodes of amd-ctk's spec, with /dev/kfd once."""
    found = nodes(described("mi300x8"))
    assert found["0"] == ["/dev/dri/card1", "/dev/dri/renderD128", KFD]
    assert found["7"] == ["/dev/dri/card57", "/dev/dri/renderD184", KFD]
    drm = [path for index in range(8) for path in found[str(index)][:2]]
    assert found["all"] == [*drm, KFD]


def test_names_of_whole_gpus() -> None:
    """Index, UUID, PCI address and GPU:partition name the same nodes."""
    node = amd_dump.load("mi300x8")
    found = nodes(described(node))
    assert len(found) == 4 * 8 + 1
    for gpu in node.gpus:
        assert gpu.uuid is not None
        aliases = (gpu.uuid, gpu.pci_address, f"{gpu.index}:0")
        assert {tuple(found[name]) for name in aliases} == {tuple(found[str(gpu.index)])}


def test_names_of_partitions() -> None:
    """64 partitions: the names of a GPU are those of all of its partitions."""
    node = amd_dump.load("mi300x-cpx")
    found = nodes(described(node))
    assert [str(index) for index in range(64)] == list(found)[:64]
    gpu = node.gpus[1]
    own = [found[str(device.index)] for device in gpu.devices]
    assert len(own) == 8
    assert found["1:3"] == own[3] == found[gpu.devices[3].id]
    assert gpu.devices[3].id.startswith("amdgpu_xcp_")
    whole = [path for paths in own for path in paths[:-1]] + [KFD]
    assert found[str(gpu.uuid)] == whole
    assert found[gpu.pci_address] == own[0], "the kubelet's id of the first partition"
    assert len(found["all"]) == 64 * 2 + 1


@pytest.mark.parametrize("profile", ["mi300x8", "mi300x-cpx", "mixed", "radeon"])
def test_edits_are_device_nodes_without_numbers(profile: str) -> None:
    """The numbers are read when a container starts, and `rw` is enough for KFD."""
    spec = described(profile).spec
    assert (spec["cdiVersion"], spec["kind"]) == ("0.5.0", "amd.com/gpu")
    assert spec["containerEdits"]["env"] == ["AMD_VISIBLE_DEVICES=void"]
    parts = [spec["containerEdits"], *(one["containerEdits"] for one in spec["devices"])]
    for edits in parts:
        assert set(edits) <= {"env", "deviceNodes"}
        for one in edits["deviceNodes"]:
            assert set(one) == {"path", "fileMode", "permissions", "gid"}
            assert (one["permissions"], one["fileMode"]) == ("rw", 0o666)
            assert one["gid"] == (VIDEO if "card" in one["path"] else RENDER)


def test_groups_of_cdi_0_7() -> None:
    """The host's modes, and its groups for the nodes that these restrict."""
    spec = described("radeon", newest="0.7.0").spec
    assert spec["cdiVersion"] == "0.7.0"
    assert spec["containerEdits"]["additionalGids"] == [RENDER]
    first = spec["devices"][0]["containerEdits"]
    assert first["additionalGids"] == [VIDEO, RENDER]
    assert {one["fileMode"] for one in first["deviceNodes"]} == {0o660}


def test_no_group_for_nodes_of_everybody() -> None:
    """A node that everybody may open needs no group, and its spec no version of CDI with groups."""
    node = amd_dump.load("radeon")
    opened = tuple(replace(one, mode=0o666) for one in node.device_nodes)
    spec = described(replace(node, device_nodes=opened), newest="0.7.0").spec
    assert spec["cdiVersion"] == "0.5.0"
    assert "additionalGids" not in spec["containerEdits"]


def test_root_of_dev() -> None:
    """Device nodes in another /dev have that path on the host."""
    spec = described("radeon", dev_root="/tree/").spec
    (kfd,) = spec["containerEdits"]["deviceNodes"]
    assert (kfd["path"], kfd["hostPath"]) == (KFD, "/tree/dev/kfd")


@pytest.mark.parametrize(
    ("capabilities", "kinds"),
    [
        (["compute"], {"renderD", "kfd"}),
        (["compute", "utility", "display"], {"renderD", "kfd", "card"}),
        (["graphics", "video"], {"renderD"}),
        (["display"], {"renderD", "card"}),
    ],
)
def test_capabilities(capabilities: list[str], kinds: set[str]) -> None:
    """A card is for display only, KFD for compute."""
    found = nodes(described("mi300x8", capabilities=frozenset(capabilities)))
    names = [path.rpartition("/")[2].rstrip("0123456789") for path in found["0"]]
    assert set(names) == kinds


def test_chosen_devices() -> None:
    """The chosen devices keep their indices; a part of a GPU does not have the GPU's names."""
    node = amd_dump.load("mi300x-cpx")
    ids = ("1:3", str(node.gpus[2].uuid), "9")
    found = nodes(described(node, device_ids=ids))
    assert list(found)[:10] == ["9", "11", *(str(index) for index in range(16, 24))]
    assert node.gpus[1].pci_address not in found
    assert node.gpus[1].uuid not in found
    assert len(found[str(node.gpus[2].uuid)]) == 8 * 2 + 1
    assert len(found["all"]) == 10 * 2 + 1
    assert "all" not in nodes(described(node, with_all=False))


def refused(node: AmdNode, **choices: Any) -> GpuhookError:
    """Return the fault that describing a node raises."""
    with pytest.raises(GpuhookError) as caught:
        describe(node, SpecChoices(**choices))
    return caught.value


def test_no_driver_and_no_gpu() -> None:
    """`all` is never /dev/kfd alone."""
    assert (refused(AmdNode()).code, "no amdgpu driver" in refused(AmdNode()).message) == (
        "GH1513", True,
    )  # fmt: skip
    node = amd_dump.load("mi300x8")
    assert "the amdgpu driver has no GPU" in refused(replace(node, gpus=())).message
    error = refused(replace(node, device_nodes=node.device_nodes[:1]))
    assert error.code == "GH1513"
    assert "/dev/dri/renderD128 is missing" in error.message


def test_reasons_without_permission() -> None:
    """A node whose files cannot be read: the warning with the missing privilege is in the fault."""
    node = amd_dump.load("mi300x8")
    lost = tuple(replace(gpu, devices=(), trouble="EPERM") for gpu in node.gpus)
    error = refused(replace(node, gpus=lost, warnings=("KFD refuses: rw of 226:*",)))
    assert "0000:05:00.0 is omitted from the spec: EPERM" in error.message
    assert "KFD refuses: rw of 226:*" in error.message


def test_broken_devices_are_omitted() -> None:
    """A GPU without a render node is left out with a warning; choosing it is refused."""
    node = amd_dump.load("mi300x8")
    kept = tuple(one for one in node.device_nodes if one.path != "/dev/dri/renderD136")
    broken = replace(node, device_nodes=kept)
    found = described(broken)
    assert "1" not in nodes(found)
    assert len(nodes(found)["all"]) == 7 * 2 + 1
    assert any("/dev/dri/renderD136 is missing" in one for one in found.warnings)
    assert refused(broken, device_ids=("1",)).code == "GH1512"
    error = refused(broken, device_ids=("8",))
    assert (error.code, "it has 0, 1, 2, 3, 4, 5, 6, 7" in error.message) == ("GH1511", True)


def test_node_without_kfd() -> None:
    """Graphics works without KFD: a warning, and no entry that an engine could not apply."""
    node = amd_dump.load("radeon")
    kept = tuple(one for one in node.device_nodes if one.path != KFD)
    found = described(replace(node, device_nodes=kept))
    assert KFD not in nodes(found)["all"]
    assert any(KFD in one for one in found.warnings)
