# SPDX-License-Identifier: Apache-2.0
"""Allocations of AMD devices: AMD's device specs by default, and the other strategies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.device_plugin.allocate import plugin_specs
from gpuhook.device_plugin.allocate.allocate import allocate
from gpuhook.device_plugin.allocate.allocation_context import Context, Specs, context
from gpuhook.device_plugin.allocate.plugin_specs import Hook
from gpuhook.device_plugin.kubelet.kubelet_answers import check_start
from gpuhook.errors import GpuhookError
from gpuhook.vendors.amd.plugin import amd_part
from gpuhook.vendors.vendor_part import VendorPart
from tests.unit.amd_offering import CPX, MI300X, configuration, only

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.allocate.container_allocation import Allocation
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode

KIND = "k8s.device-plugin.amd.com/gpu"
REPLICAS = "sharing: {timeSlicing: {resources: [{name: amd.com/gpu, replicas: 4, memory: 8Gi}]}}"


def of_node(node: AmdNode, text: str = "", specs: Specs | None = None) -> Context:
    """Return the context of a node with AMD GPUs; with those of another vendor in it, too."""
    part: VendorPart = amd_part.part(node)
    own = context(configuration(text), part, specs or Specs())
    return Context(of_domains={part.domain: own})


def given(node: AmdNode, ids: list[str], text: str = "", specs: Specs | None = None) -> Allocation:
    return allocate(only(node, text), ids, of_node(node, text, specs))


def strategy(name: str, more: str = "") -> str:
    return f"flags: {{amd: {{deviceListStrategy: [{name}]}}{more}}}\n"


def test_device_specs_are_those_of_amds_plugin() -> None:
    """Its golden example: kfd, then card and render node of each id.

    The variable keeps a runtime from adding the GPUs that an image requests.
    """
    found = given(CPX, ["0000:05:00.0", "amdgpu_xcp_0"])
    paths = ["/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128", "/dev/dri/card2"]
    paths.append("/dev/dri/renderD129")
    assert [one.container_path for one in found.devices] == paths
    assert [one.host_path for one in found.devices] == paths
    assert {one.permissions for one in found.devices} == {"rw"}
    assert replace(found, devices=()) == type(found)(envs={"AMD_VISIBLE_DEVICES": "void"})


def test_another_strategy_sets_the_variable() -> None:
    found = given(MI300X, ["0000:05:00.0"], strategy("device-specs, envvar"))
    assert found.envs == {"AMD_VISIBLE_DEVICES": "0000:05:00.0"}
    assert len(found.devices) == 3


def test_unknown_id_is_an_error() -> None:
    """AMD's plugin answers with /dev/kfd alone."""
    with pytest.raises(GpuhookError) as raised:
        given(MI300X, ["0000:06:00.0"])
    assert raised.value.code == "GH1850"


def test_no_id_is_no_gpu() -> None:
    assert given(MI300X, []).envs == {"AMD_VISIBLE_DEVICES": "void"}


def test_variable_names_the_devices() -> None:
    found = given(CPX, ["amdgpu_xcp_0", "0000:05:00.0"], strategy("envvar"))
    assert found.envs == {"AMD_VISIBLE_DEVICES": "0000:05:00.0,amdgpu_xcp_0"}
    assert found.devices == ()
    index = strategy("envvar", ", plugin: {deviceIDStrategy: index, passDeviceSpecs: true}")
    found = given(CPX, ["amdgpu_xcp_0"], index)
    assert found.envs == {"AMD_VISIBLE_DEVICES": "1"}
    assert [one.host_path for one in found.devices] == [
        "/dev/kfd",
        "/dev/dri/card2",
        "/dev/dri/renderD129",
    ]


def test_mounts_name_the_devices() -> None:
    found = given(MI300X, ["0000:05:00.0"], strategy("volume-mounts"))
    directory = found.envs["AMD_VISIBLE_DEVICES"]
    assert [one.container_path for one in found.mounts] == [f"{directory}/0000:05:00.0"]


def test_cdi_names_are_of_the_plugins_spec(tmp_path: Path) -> None:
    part = amd_part.part(CPX)
    text = strategy("cdi-cri, cdi-annotations")
    devices = only(CPX).devices
    specs = plugin_specs.update(part, devices, (), Hook(None), directory=str(tmp_path))
    found = given(CPX, ["amdgpu_xcp_2"], text, specs)
    assert found.cdi_devices == (f"{KIND}=amdgpu_xcp_2",)
    ((key, value),) = found.annotations.items()
    assert key.startswith("cdi.k8s.io/amd-device-plugin_")
    assert value == f"{KIND}=amdgpu_xcp_2"
    (path,) = specs.written
    document = json.loads(Path(path).read_text())
    assert (document["kind"], len(document["devices"])) == (KIND, 64)
    assert document["containerEdits"] == {"env": ["AMD_VISIBLE_DEVICES=void"]}
    (device,) = [one for one in document["devices"] if one["name"] == "amdgpu_xcp_2"]
    nodes = [node["path"] for node in device["containerEdits"]["deviceNodes"]]
    assert nodes == ["/dev/kfd", "/dev/dri/card4", "/dev/dri/renderD131"]
    assert "major" not in Path(path).read_text()  # that of kfd changes with each boot
    again = plugin_specs.update(part, devices, (), Hook(None), directory=str(tmp_path))
    assert (again.written, again.names) == ((), specs.names)


def test_failed_spec_leaves_the_other_strategies() -> None:
    context = of_node(CPX, strategy("cdi-cri, device-specs"), Specs(trouble="disk full"))
    own = context.of_domains["amd.com"]
    assert own.strategies == ("device-specs",)
    assert own.warnings == ("the strategy cdi-cri: disk full",)
    alone = of_node(CPX, strategy("cdi-cri"), Specs(trouble="disk full")).of_domains["amd.com"]
    assert alone.blocked == "cdi-cri: disk full"


def test_replicas_have_grants_and_ids_like_any_vendors() -> None:
    found = given(MI300X, ["0000:05:00.0::1", "0000:05:00.0::2"], REPLICAS)
    assert found.envs["GPUHOOK_REPLICAS_AMD_COM_GPU"] == "0000:05:00.0::1,0000:05:00.0::2"
    (mount,) = found.mounts
    assert mount.host_path == "/dev/null"
    assert "/var/run/gpuhook/memory/0000:05:00.0" in mount.container_path
    assert [one.host_path for one in found.devices][:1] == ["/dev/kfd"]


def test_slices_of_a_fork_of_amds_plugin_are_replicas() -> None:
    resource = only(MI300X, REPLICAS)
    context = of_node(MI300X, REPLICAS)
    same = allocate(resource, ["0000:05:00.0::3"], context)
    assert allocate(resource, ["0000:05:00.0-slice-3"], context) == same
    check_start(resource, ["0000:05:00.0-slice-9"], {}, 0, lambda _: None)
    with pytest.raises(GpuhookError, match="has no device"):
        check_start(resource, ["0000:99:00.0-slice-1"], {}, 0, lambda _: None)


def test_unhealthy_device_is_refused() -> None:
    context = replace(of_node(MI300X), unhealthy={"0000:05:00.0": "it is gone"})
    with pytest.raises(GpuhookError, match="it is gone"):
        allocate(only(MI300X), ["0000:05:00.0"], context)


def test_unknown_strategy_is_an_error() -> None:
    with pytest.raises(AssertionError, match="must be one of device-specs"):
        configuration(strategy("host-files"))
