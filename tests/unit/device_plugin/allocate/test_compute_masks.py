# SPDX-License-Identifier: Apache-2.0
"""HSA_CU_MASK of containers that share AMD GPUs: `computeMask` of a shared resource."""

from __future__ import annotations

import pytest

from gpuhook.device_plugin.allocate.allocate import allocate
from tests.simulated import amd_profiles
from tests.unit.amd_offering import CPX, MI300X, MIXED_STRATEGY, five_and_three, offer, only
from tests.unit.device_plugin.allocate.test_amd_allocate import of_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode

RADEON = amd_profiles.radeon()
FIRST, SECOND = "0000:05:00.0", "0000:27:00.0"


def mask(node: AmdNode, ids: list[str], replicas: int, more: str = "computeMask: true") -> str:
    """Return the mask of a container with these units, "" without one."""
    entry = f"{{name: amd.com/gpu, replicas: {replicas}, {more}}}"
    text = f"sharing: {{timeSlicing: {{resources: [{entry}]}}}}"
    return allocate(only(node, text), ids, of_node(node, text)).envs.get("HSA_CU_MASK", "")


@pytest.mark.parametrize(
    ("node", "ids", "replicas", "text"),
    [
        (MI300X, [f"{FIRST}::0"], 20, "0:0-7"),
        (MI300X, [f"{FIRST}::1"], 2, "0:152-303"),
        (MI300X, [f"{FIRST}::0", f"{FIRST}::3"], 4, "0:0-71,216-287"),
        (MI300X, [f"{FIRST}::1", f"{SECOND}::1"], 4, "0:72-143;1:72-143"),
        (MI300X, [f"{FIRST}::0", f"{SECOND}::1"], 4, ""),  # the order of the GPUs is ROCm's
        (MI300X, [f"{FIRST}::0"], 64, ""),  # too small: some XCCs would run unmasked
        (CPX, ["amdgpu_xcp_0::1"], 4, "0:9-17"),
        (RADEON, ["0000:03:00.0::1"], 4, "0:24-47"),
        (RADEON, ["0000:0e:00.0::1"], 2, ""),  # a processor's GPU with unknown shader engines
    ],
)
def test_mask(node: AmdNode, ids: list[str], replicas: int, text: str) -> None:
    assert mask(node, ids, replicas) == text


def test_no_mask_beside_another_resource() -> None:
    """The kubelet may give a container both, and a mask names GPUs by their indices in it."""
    entry = "{name: amd.com/spx_nps1, replicas: 2, computeMask: true}"
    text = f"{MIXED_STRATEGY}sharing: {{timeSlicing: {{resources: [{entry}]}}}}"
    ids = [f"{FIRST}::0"]
    found = offer(five_and_three(), text)
    (whole,) = [one for one in found.resources if one.name == "amd.com/spx_nps1"]
    assert "HSA_CU_MASK" not in allocate(whole, ids, of_node(five_and_three(), text)).envs
    (warning,) = [one for one in found.warnings if "computeMask" in one]
    assert warning.startswith("amd.com/spx_nps1: computeMask has no effect")
    assert "also request amd.com/cpx_nps" in warning
    alone = offer(MI300X, text)
    assert allocate(alone.resources[0], ids, of_node(MI300X, text)).envs["HSA_CU_MASK"] == "0:0-151"
    assert not any("computeMask" in one for one in alone.warnings)


def test_no_mask_beside_a_device_without_one() -> None:
    """ROCm may give it any index."""
    entries = ["{name: amd.com/gpu, devices: [0], replicas: 2, computeMask: true}"]
    entries += ["{name: amd.com/gpu, devices: [1], replicas: 2}"]
    text = f"sharing: {{timeSlicing: {{resources: [{', '.join(entries)}]}}}}"
    resource, context = only(MI300X, text), of_node(MI300X, text)
    assert "HSA_CU_MASK" in allocate(resource, [f"{FIRST}::0"], context).envs
    for other in (f"{SECOND}::0", "0000:47:00.0"):
        assert "HSA_CU_MASK" not in allocate(resource, [f"{FIRST}::0", other], context).envs


@pytest.mark.parametrize("more", ["computeMask: false", "memory: 4Gi"])
def test_no_mask_by_default(more: str) -> None:
    assert mask(MI300X, [f"{FIRST}::0"], 4, more) == ""


def test_grant_has_amds_variable() -> None:
    """The plugin repeats a limit in the variable that AMD's containers may set themselves."""
    text = "sharing: {timeSlicing: {resources: [{name: amd.com/gpu, replicas: 4, memory: 8Gi}]}}"
    found = allocate(only(MI300X, text), [f"{FIRST}::0"], of_node(MI300X, text))
    assert found.envs["AMD_GPU_MEMORY_LIMIT"] == "8192"
    (grant,) = [one for one in found.mounts if "memory" in one.container_path]
    assert grant.container_path == f"/var/run/gpuhook/memory/{FIRST},hard=8192,soft=8192"
