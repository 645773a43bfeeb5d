# SPDX-License-Identifier: Apache-2.0
"""The edits of a claim's shares: those that the device plugin gives for a replica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, Allocation
from gpuhook.dra.claims import claim_edits
from gpuhook.dra.claims.settings.device_share import DeviceShare
from gpuhook.request import replicas
from tests.refusal import refused
from tests.unit.dra.claims.share_claims import GIB, OWN, SHARED, NodeOfClaims

NVSHARE = """\
gpuhook:
  interposers:
  - name: nvshare
    containerEdits:
      env: ["LIMIT={limitMiB}", "PARTS={replicas}"]
      mounts: [{hostPath: /opt/nvshare.so, containerPath: /usr/lib/nvshare.so}]
"""
Edits = dict[str, Any]


def edits(node: NodeOfClaims, shares: Sequence[DeviceShare], server: Any = None) -> Edits:
    added = claim_edits.edits(shares, shares, node.sharing, server or (lambda one: Allocation()))
    return dict(added)


def variables(found: Edits) -> dict[str, str]:
    return dict(one.split("=", 1) for one in found.get("env", ()))


def numbered(found: Edits, prefix: str) -> list[str]:
    """Return the values of the variables that have a number for each device."""
    return [value for name, value in variables(found).items() if name.startswith(prefix)]


def test_a_share_has_the_grant_of_a_replica() -> None:
    node = NodeOfClaims()
    (share,) = node.shares(node.claim("a", node.result(share_id="5f0c")))
    found = edits(node, [share])
    uuid = share.uuid
    assert found["mounts"] == [
        {
            "hostPath": "/dev/null",
            "containerPath": f"/var/run/gpuhook/memory/{uuid},hard=3840,soft=3840",
            "options": ["ro", "bind", "rprivate", "nosuid", "nodev"],
        }
    ]
    assert variables(found)["NVIDIA_GPU_MEMORY_LIMIT"] == "3840"
    assert numbered(found, "GPUHOOK_REPLICAS_") == [f"{uuid}::0"]
    assert numbered(found, replicas.CLAIM_ENV) == [f"team/a/gpu/{uuid}/5f0c"]


def test_a_requested_amount_must_be_enforced() -> None:
    node = NodeOfClaims()
    result = node.result(consumed={"memory": 6 * GIB}, requests_memory=True)
    shares = node.shares(node.claim("a", result))
    (mount,) = edits(node, shares)["mounts"]
    assert mount["containerPath"].endswith(",hard=6144,soft=6144,asked")


def test_a_limit_of_the_guard_does_not_stop_the_container() -> None:
    node = NodeOfClaims(more="gpuhook: {guard: {action: kill}}").without_driver_limits()
    shares = node.shares(node.claim("a", node.result(requests_memory=True)))
    (mount,) = edits(node, shares)["mounts"]
    assert mount["containerPath"].endswith("soft=3840")


def test_the_gpus_of_amd_have_their_own_variable() -> None:
    node = NodeOfClaims(SHARED.replace("nvidia", "amd"), "mi300x8")
    shares = node.shares(node.claim("a"))
    memory = shares[0].memory >> 20
    found = edits(node, shares)
    assert variables(found)["AMD_GPU_MEMORY_LIMIT"] == str(memory)
    assert found["mounts"][0]["containerPath"].startswith(
        "/var/run/gpuhook/memory/0000:05:00.0,hard="
    )


def test_a_compute_mask_is_that_of_the_number() -> None:
    node = NodeOfClaims(SHARED.replace("nvidia", "amd"), "mi300x8")
    masks = []
    for name in "ab":
        claim = node.claim(name, of_class=[{**OWN, "computeMask": True}])
        masks.append(variables(edits(node, node.shares(claim)))["HSA_CU_MASK"])
    assert masks == ["0:0-71", "0:72-143"]


def test_different_limits_of_one_claim_have_no_common_variable() -> None:
    """A variable applies to all devices of a container; the mounts are of one each."""
    node = NodeOfClaims(SHARED, "h100x8")
    one = node.result("gpu-0", consumed={"memory": 2 * GIB})
    shares = node.shares(node.claim("a", one, node.result("gpu-1", consumed={"memory": 3 * GIB})))
    found = edits(node, shares)
    assert "NVIDIA_GPU_MEMORY_LIMIT" not in variables(found)
    sizes = [mount["containerPath"].partition(",")[2] for mount in found["mounts"]]
    assert sizes == ["hard=2048,soft=2048", "hard=3072,soft=3072"]
    assert len(numbered(found, "GPUHOOK_REPLICAS_")) == 2


def test_a_whole_gpu_and_an_admin_have_the_claim_only() -> None:
    node = NodeOfClaims("{}")
    for result in (node.result(), node.result(is_admin=True)):
        found = edits(node, node.shares(node.claim("a", result)))
        assert list(found) == ["env"]
        assert [name[: len(replicas.CLAIM_ENV)] for name in variables(found)] == [
            replicas.CLAIM_ENV
        ]


def test_the_server_of_mps_limits_the_memory() -> None:
    node = NodeOfClaims(SHARED.replace("timeSlicing", "mps"))
    shares = node.shares(node.claim("a"))
    pipe = Allocation(
        {"CUDA_MPS_PIPE_DIRECTORY": "/pipe"}, (AllocatedMount("/pipe", "/p", read_only=False),)
    )
    found = edits(node, shares, lambda one: pipe)
    assert variables(found)["CUDA_MPS_PIPE_DIRECTORY"] == "/pipe"
    assert [mount["options"][0] for mount in found["mounts"]] == ["rw"]


def test_hints_and_interposer_of_the_parameters() -> None:
    node = NodeOfClaims(more=NVSHARE)
    chosen = {**OWN, "hints": ["pytorch", "jax"], "interposer": "nvshare"}
    shares = node.shares(node.claim("a", of_class=[chosen]))
    found = variables(edits(node, shares))
    assert found["GPUHOOK_MEMORY_HINTS"] == "pytorch,jax"
    assert (found["LIMIT"], found["PARTS"]) == ("3840", "4")
    node.sharing = replace(node.sharing, missing={"nvshare": "/opt/nvshare.so"})
    with refused("GH1837", "/opt/nvshare.so"):
        edits(node, shares)


def test_settings_of_the_file_apply_without_parameters() -> None:
    text = SHARED.replace("replicas: 4", "replicas: 4, memory: fair, hints: [jax]")
    node = NodeOfClaims(text)
    found = variables(edits(node, node.shares(node.claim("a"))))
    assert found["GPUHOOK_MEMORY_HINTS"] == "jax"


@pytest.mark.parametrize(("domain", "is_added"), [("amd.com", True), ("nvidia.com", False)])
def test_the_hook_is_added_to_specs_that_have_none(domain: str, is_added: bool) -> None:
    """NVIDIA's devices have their own, with the files of the driver."""
    spec: Any = {"cdiVersion": "0.5.0", "containerEdits": {"env": ["X=1"]}, "devices": []}
    made = claim_edits.with_hook(spec, domain, "/opt/bin/gpuhook-hook")
    common: Any = made.get("containerEdits")
    assert common["env"] == ["X=1"]
    assert [one["path"] for one in common.get("hooks", [])] == ["/opt/bin/gpuhook-hook"] * is_added
    assert claim_edits.with_hook(spec, domain, None) == spec
