# SPDX-License-Identifier: Apache-2.0
"""MIG instances as CDI devices: their names, their nodes, and instances that are not offered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuhook.cdi import validate
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary
from gpuhook.vendors.nvidia.hot.rootfs import egl_profile
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Gpu, Node
from gpuhook.vendors.nvidia.spec import device_selection
from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described
from gpuhook.vendors.nvidia.spec.gpu_spec import describe

A100 = dump_file.load("a100-mig")
FIRST, SECOND, WHOLE = A100.gpus
CAP = "/dev/nvidia-caps/nvidia-cap"


def described(node: Node = A100, **choices: Any) -> Described:
    """Return the description of `node`, checked to be a valid spec."""
    found = describe(node, Choices(**choices))
    validate.check(found.spec, "generated")
    return found


def nodes(found: Described) -> dict[str, list[str]]:
    """Return the paths of each device's nodes, by its name."""
    return {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in found.spec["devices"]
    }


def changed(gpu: int, *changes: tuple[int, dict[str, Any]], **facts: Any) -> Node:
    """Return the node with changed facts of one GPU and of its instances."""
    instances = list(A100.gpus[gpu].instances)
    for number, change in changes:
        instances[number] = replace(instances[number], **change)
    gpus = list(A100.gpus)
    gpus[gpu] = replace(gpus[gpu], **{"instances": tuple(instances), **facts})
    return replace(A100, gpus=tuple(gpus))


def test_instance_has_three_nodes() -> None:
    """An instance has its GPU's node and those of its two capabilities, by any of its names."""
    found = nodes(described(strategies=("index", "uuid", "type-index")))
    expected = ["/dev/nvidia0", f"{CAP}75", f"{CAP}76"]
    for name in ("0:1", "mig0:1", FIRST.instances[1].uuid):
        assert found[name] == expected
    assert found["1:2"] == ["/dev/nvidia2", f"{CAP}300", f"{CAP}302"]
    assert found["2"] == found["gpu2"] == found[str(WHOLE.uuid)] == ["/dev/nvidia1"]


def test_gpu_in_mig_mode_is_not_offered_as_a_whole() -> None:
    """Only instances and undivided GPUs have names; missing indices are kept."""
    found = list(nodes(described(strategies=("index",))))
    first = [f"0:{index}" for index in range(7)]
    assert found == [*first, "1:0", "1:1", "1:2", "1:4", "2", "all"]
    found = list(nodes(described(strategies=("uuid", "type-index"))))
    assert not {FIRST.uuid, SECOND.uuid, "gpu0", "gpu1"} & set(found)


def test_all_is_every_instance_and_undivided_gpu() -> None:
    """`all` has the nodes of all of them, each once."""
    every = nodes(described())["all"]
    assert len(every) == len(set(every)) == 3 + 7 * 2 + 7
    assert every[:4] == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", f"{CAP}66"]


def test_instance_without_a_valid_name_has_a_warning() -> None:
    """A UUID that CDI does not allow, or none at all, in a spec with UUIDs alone."""
    uuid = mig_capabilities.old_uuid(str(FIRST.uuid), 8, 0)
    node = changed(0, (1, {"uuid": uuid}))
    assert described(node).warnings == ()
    found = described(node, strategies=("uuid",))
    assert found.warnings == (
        f"MIG instance 0:1 has no device in the spec: CDI takes no name like {uuid}",
    )
    assert nodes(found)["all"] == nodes(described())["all"]
    found = described(changed(2, uuid=None), strategies=("uuid",))
    assert found.warnings == ("GPU 2 has no device in the spec: its UUID is unknown",)


def test_nodes_keep_their_mode() -> None:
    """A capability's node has its mode on the host, and no number."""
    device = next(d for d in described().spec["devices"] if d["name"] == "0:0")
    assert device["containerEdits"]["deviceNodes"][1] == {
        "path": f"{CAP}66",
        "fileMode": 0o444,
        "permissions": "rw",
    }
    assert described().spec["cdiVersion"] == "0.5.0"


OLD = f"MIG-{FIRST.uuid}/8/0"


@pytest.mark.parametrize(
    "identifier",
    ["0:1", "mig0:1", FIRST.instances[1].uuid, FIRST.instances[1].uuid.upper(), OLD, OLD.lower()],
)
def test_one_instance_by_each_name(identifier: str) -> None:
    """--device-id accepts each form of an instance's name; `all` is the selection."""
    found = nodes(described(device_ids=(identifier,)))
    expected = ["/dev/nvidia0", f"{CAP}75", f"{CAP}76"]
    assert found == {"0:1": expected, FIRST.instances[1].uuid: expected, "all": expected}


def test_instances_and_gpus_are_selected_together() -> None:
    """They are described in the node's order."""
    found = described(device_ids=("gpu2", "1:4", "0:6", "0:2"), strategies=("index",))
    assert list(nodes(found)) == ["0:2", "0:6", "1:4", "2", "all"]
    assert [len(gpu.instances) for gpu in found.gpus] == [2, 1, 0]


@pytest.mark.parametrize("identifier", ["0", str(FIRST.uuid), "00000000:07:00.0", "gpu0"])
def test_gpu_in_mig_mode_cannot_be_selected(identifier: str) -> None:
    """The refusal lists its instances."""
    with pytest.raises(GpuhookError, match=r"MIG mode.*\(0:0, 0:1, ") as caught:
        described(device_ids=(identifier,))
    assert caught.value.code == "GH1512"


@pytest.mark.parametrize("identifier", ["1:3", "0:7", "2:0", "mig2:0", "MIG-1", "0:", "0:1:2"])
def test_unknown_instance_is_refused(identifier: str) -> None:
    """The refusal lists the existing ones."""
    with pytest.raises(GpuhookError, match=r"1:2, 1:4") as caught:
        described(device_ids=(identifier,))
    assert caught.value.code == "GH1511"


def test_gpu_without_instances_is_left_out() -> None:
    """The GPU has a warning, and the others are offered."""
    found = described(changed(0, instances=()), strategies=("index",))
    assert list(nodes(found)) == ["1:0", "1:1", "1:2", "1:4", "2", "all"]
    assert found.warnings == (
        "GPU 0 is omitted from the spec: it is in MIG mode and has no MIG instance",
    )


def test_broken_instance_is_left_out() -> None:
    """An instance with a trouble has a warning, and the others are offered."""
    found = described(changed(0, (3, {"trouble": "its node is missing"})), strategies=("index",))
    assert "0:3" not in nodes(found)
    assert {"0:2", "0:4"} <= set(nodes(found))
    assert f"{CAP}93" not in nodes(found)["all"]
    assert found.warnings == ("MIG instance 0:3 is omitted from the spec: its node is missing",)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (changed(0, (3, {"trouble": "its node is missing"})), "its node is missing"),
        (changed(0, (3, {"compute_instance_minor": None})), "minor numbers of its capabilities"),
        (changed(0, lost="gone"), "it is lost (gone)"),
        (
            replace(A100, device_nodes=tuple(n for n in A100.device_nodes if n.path != f"{CAP}94")),
            f"{CAP}94 is missing",
        ),
    ],
)
def test_broken_instance_cannot_be_selected(node: Node, reason: str) -> None:
    """The refusal has its trouble."""
    with pytest.raises(GpuhookError) as caught:
        described(node, device_ids=("0:3",))
    assert caught.value.code == "GH1512"
    assert reason in caught.value.message
    assert list(nodes(described(node)))


def test_node_with_nothing_to_offer_is_a_fault() -> None:
    """A GPU in MIG mode without instances; the fault has the reason."""
    node = changed(0, instances=())
    with pytest.raises(GpuhookError, match="has no MIG instance") as caught:
        described(replace(node, gpus=node.gpus[:1]))
    assert caught.value.code == "GH1513"


def test_nodes_of_instances_need_no_capability() -> None:
    """Like a GPU's own node, they belong to every driver capability."""
    for capability in vocabulary.CAPABILITIES:
        limited = vocabulary.parse_capabilities(capability)
        assert vocabulary.is_wanted(f"{CAP}75", limited)
        assert nodes(described(capabilities=limited))["0:1"][1:] == [f"{CAP}75", f"{CAP}76"]


def test_egl_profile_of_an_instance_has_its_gpu() -> None:
    """The application profile has the bit of the GPU, and no capability of the instance."""
    nodes = device_selection.node_paths(SECOND, SECOND.instances[2])
    assert b'"EGLVisibleDGPUDevices", 0x4]' in egl_profile.content(nodes)


def names_to(known: str, gpus: tuple[Gpu, ...], strategies: tuple[str, ...]) -> set[str]:
    found = device_selection.aliases(gpus, strategies)
    return {other for other, name in found.items() if name == known}


def test_aliases_of_an_instance() -> None:
    """Each form of an instance's name leads to the spec's name; none leads to its GPU."""
    instance = FIRST.instances[1]
    lower = instance.uuid.lower()
    by_uuid = names_to(instance.uuid, A100.gpus, ("index", "uuid"))
    assert by_uuid == {"0:1", "mig0:1", lower, OLD.lower()}
    assert names_to("0:1", A100.gpus, ("index",)) == {"mig0:1", lower, OLD.lower()}
    leading = device_selection.aliases(A100.gpus, ("index", "uuid"))
    assert not {str(FIRST.uuid).lower(), "gpu0", "0", "0000:07:00.0"} & set(leading)
    assert leading["0000:47:00.0"] == WHOLE.uuid


def test_legacy_uuid_is_not_a_cdi_name() -> None:
    """An instance whose UUID CDI does not allow has its index, and its UUID is an alias."""
    node = changed(0, (1, {"uuid": OLD}))
    found = nodes(described(node))
    assert OLD not in found
    assert found["0:1"] == ["/dev/nvidia0", f"{CAP}75", f"{CAP}76"]
    assert names_to("0:1", node.gpus, ("index", "uuid")) == {"mig0:1", OLD.lower()}
