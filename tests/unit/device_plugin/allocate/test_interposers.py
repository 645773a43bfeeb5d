# SPDX-License-Identifier: Apache-2.0
"""The edits of an interposer for containers of a shared device."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.device_plugin.allocate import interposers
from gpuhook.device_plugin.allocate.allocate import allocate
from gpuhook.device_plugin.allocate.allocation_context import Context
from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, DeviceSpec
from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.config.config_source import ConfigSource
from gpuhook.device_plugin.config.gpuhook_section import (
    Interposer,
    InterposerEdits,
    InterposerMount,
    InterposerNode,
)
from gpuhook.device_plugin.config.sharing_section import SharedResource
from gpuhook.device_plugin.offer import resources
from gpuhook.device_plugin.offer.offered_devices import Resource, UnitMemory
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.plugin_place import Places
from tests.unit import choosing

MIB = 1 << 20
EXAMPLES = Path(__file__).parents[4] / "packaging/interposers"
SIMPLE = Interposer(
    "quota",
    InterposerEdits(
        env=(
            ("LD_PRELOAD", "/opt/quota.so"),
            ("QUOTA", "{limitMiB}m of {limitBytes}, 1/{replicas}"),
        ),
        mounts=(
            InterposerMount("/opt/quota/quota.so", "/opt/quota.so"),
            InterposerMount("/run/quota/{uuid}-{index}", "/run/quota", read_only=False),
        ),
        device_nodes=(InterposerNode("/dev/quota"),),
    ),
)


def shared_resource(*replicas: int, interposer: str | None = "quota", **fields: object) -> Resource:
    """Return shared devices with an interposer and a limit of 1000 MiB per replica."""
    made = choosing.shared(*replicas)
    entry = SharedResource(made.name, 4, interposer=interposer, **fields)  # type: ignore[arg-type]
    uuids = [device.uuid for device in made.devices]
    limit = UnitMemory(1000 * MIB, 1000 * MIB)
    return replace(made, memory=dict.fromkeys(uuids, limit), entries=dict.fromkeys(uuids, entry))


def refusal_code(resource: Resource, ids: list[str], context: Context) -> str:
    with pytest.raises(GpuhookError) as refused:
        allocate(resource, ids, context)
    return refused.value.code


def test_placeholders_have_the_share_of_the_container() -> None:
    resource = shared_resource(4)
    unit = resource.units[1]
    allocation = interposers.interposer_edits(resource, {unit.device.uuid: 1}, (SIMPLE,))
    assert allocation.envs == {
        "LD_PRELOAD": "/opt/quota.so",
        "QUOTA": f"1000m of {1000 * MIB}, 1/4",
    }
    assert allocation.mounts == (
        AllocatedMount("/opt/quota.so", "/opt/quota/quota.so"),
        AllocatedMount(
            "/run/quota", f"/run/quota/{unit.device.uuid}-{unit.device.index}", read_only=False
        ),
    )
    assert allocation.devices == (DeviceSpec("/dev/quota", "/dev/quota"),)


def test_limits_of_two_replicas_are_added() -> None:
    resource = shared_resource(4)
    allocation = interposers.interposer_edits(resource, {resource.devices[0].uuid: 2}, (SIMPLE,))
    assert allocation.envs["QUOTA"] == f"2000m of {2000 * MIB}, 1/4"


def test_allocation_has_edits_and_variables() -> None:
    resource = shared_resource(4)
    allocation = allocate(resource, [resource.units[0].id], Context(interposers=(SIMPLE,)))
    assert allocation.envs["LD_PRELOAD"] == "/opt/quota.so"
    assert allocation.envs["NVIDIA_VISIBLE_DEVICES"] == resource.units[0].device.uuid
    assert allocation.envs["NVIDIA_GPU_MEMORY_LIMIT"] == "1000"
    assert "/opt/quota.so" in {mount.container_path for mount in allocation.mounts}


def test_interposer_does_not_override_variables_of_the_allocation() -> None:
    """The configuration refuses such a variable, too."""
    forged = replace(SIMPLE, edits=InterposerEdits((("NVIDIA_VISIBLE_DEVICES", "all"),)))
    resource = shared_resource(4)
    allocation = allocate(resource, [resource.units[0].id], Context(interposers=(forged,)))
    assert allocation.envs["NVIDIA_VISIBLE_DEVICES"] == resource.units[0].device.uuid


def test_device_without_an_interposer_has_no_edits() -> None:
    resource = shared_resource(4, interposer=None)
    allocation = allocate(resource, [resource.units[0].id], Context(interposers=(SIMPLE,)))
    assert "LD_PRELOAD" not in allocation.envs


def test_hints_are_passed_to_the_runtime_by_name() -> None:
    resource = shared_resource(4, interposer=None, hints=("pytorch", "jax"))
    allocation = allocate(resource, [resource.units[0].id], Context())
    assert allocation.envs["GPUHOOK_MEMORY_HINTS"] == "pytorch,jax"
    assert not any(name.startswith(("PYTORCH", "XLA")) for name in allocation.envs)
    without = allocate(shared_resource(4, interposer=None), [resource.units[0].id], Context())
    assert "GPUHOOK_MEMORY_HINTS" not in without.envs


def test_devices_with_different_values_are_refused() -> None:
    resource = shared_resource(2, 2)
    ids = [resource.units[0].id, resource.units[2].id]
    assert refusal_code(resource, ids, Context(interposers=(SIMPLE,))) == "GH1838"
    alike = replace(SIMPLE, edits=replace(SIMPLE.edits, mounts=SIMPLE.edits.mounts[:1]))
    allocation = allocate(resource, ids, Context(interposers=(alike,)))
    assert allocation.envs["QUOTA"] == f"1000m of {1000 * MIB}, 1/2"


def test_placeholder_of_a_missing_limit_is_refused() -> None:
    resource = replace(shared_resource(4), memory={})
    assert (
        refusal_code(resource, [resource.units[0].id], Context(interposers=(SIMPLE,))) == "GH1839"
    )


def test_unknown_interposer_is_refused() -> None:
    resource = shared_resource(4, interposer="other")
    assert (
        refusal_code(resource, [resource.units[0].id], Context(interposers=(SIMPLE,))) == "GH1836"
    )


def test_interposer_with_a_missing_file_is_refused() -> None:
    resource = shared_resource(4)
    context = Context(interposers=(SIMPLE,), missing={"quota": "/opt/quota/quota.so"})
    assert refusal_code(resource, [resource.units[0].id], context) == "GH1837"
    other = Context(interposers=(SIMPLE,), missing={"other": "/opt/other.so"})
    assert allocate(resource, [resource.units[0].id], other).envs["LD_PRELOAD"]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name in ("opt/quota/quota.so", "dev/quota"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "run/quota").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("gone", "path"),
    [
        ("opt/quota/quota.so", "/opt/quota/quota.so"),
        ("dev/quota", "/dev/quota"),
        ("run/quota", "/run/quota/{uuid}-{index}"),
    ],
)
def test_files_are_checked_below_the_driver_root(gone: str, path: str, host: Path) -> None:
    places = Places(driver=str(host), dev=str(host))
    assert interposers.missing([shared_resource(4)], (SIMPLE,), places) == {}
    (host / gone).rename(host / "away")
    assert interposers.missing([shared_resource(4)], (SIMPLE,), places) == {"quota": path}
    assert interposers.missing([shared_resource(4, interposer=None)], (SIMPLE,), places) == {}


def test_files_are_not_checked_without_the_root_of_the_host(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roots of a driver container and of a pod are not the root of the host."""
    installed = Places(str(host), str(host), "/run/nvidia/driver", "/run/nvidia/driver")
    assert interposers.missing([shared_resource(4)], (SIMPLE,), installed) == {}
    assert interposers.missing([shared_resource(4)], (SIMPLE,), Places())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert interposers.missing([shared_resource(4)], (SIMPLE,), Places()) == {}
    assert interposers.missing([shared_resource(4)], (SIMPLE,), Places(str(host), str(host))) == {}


@pytest.mark.parametrize("example", sorted(os.listdir(EXAMPLES)))
def test_documented_example_adds_its_interposer(example: str) -> None:
    loaded = config_source.load(
        ConfigSource(file=str(EXAMPLES / example)), {}, None, current="", strict=True
    )
    assert [str(finding) for finding in loaded.findings] == []
    configuration = loaded.configuration
    (resource,) = resources.offered(dump_file.load("t4"), configuration).resources
    context = Context(interposers=configuration.own.interposers)
    allocation = allocate(resource, [resource.units[0].id], context)
    assert {mount.container_path for mount in allocation.mounts} >= {
        mount.container_path for mount in configuration.own.interposers[0].edits.mounts
    }
    assert "{" not in repr((allocation.envs.values(), allocation.mounts)).replace("dict_values", "")
