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
from gpuhook.device_plugin.allocate.host_paths import Places
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


def shared(*replicas: int, interposer: str | None = "quota", **fields: object) -> Resource:
    """Return shared devices, each with a limit of 1000 MiB for a replica and an interposer."""
    made = choosing.shared(*replicas)
    entry = SharedResource(made.name, 4, interposer=interposer, **fields)  # type: ignore[arg-type]
    uuids = [device.uuid for device in made.devices]
    limit = UnitMemory(1000 * MIB, 1000 * MIB)
    return replace(made, memory=dict.fromkeys(uuids, limit), entries=dict.fromkeys(uuids, entry))


def code(resource: Resource, ids: list[str], context: Context) -> str:
    with pytest.raises(GpuhookError) as refused:
        allocate(resource, ids, context)
    return refused.value.code


def test_placeholders_are_the_container_s_share() -> None:
    resource = shared(4)
    unit = resource.units[1]
    given = interposers.interposer_edits(resource, {unit.device.uuid: 1}, (SIMPLE,))
    assert given.envs == {
        "LD_PRELOAD": "/opt/quota.so",
        "QUOTA": f"1000m of {1000 * MIB}, 1/4",
    }
    assert given.mounts == (
        AllocatedMount("/opt/quota.so", "/opt/quota/quota.so"),
        AllocatedMount(
            "/run/quota", f"/run/quota/{unit.device.uuid}-{unit.device.index}", read_only=False
        ),
    )
    assert given.devices == (DeviceSpec("/dev/quota", "/dev/quota"),)


def test_two_replicas_of_a_device_have_the_sum() -> None:
    resource = shared(4)
    given = interposers.interposer_edits(resource, {resource.devices[0].uuid: 2}, (SIMPLE,))
    assert given.envs["QUOTA"] == f"2000m of {2000 * MIB}, 1/4"


def test_answer_has_all_of_it_and_its_own_variables() -> None:
    resource = shared(4)
    given = allocate(resource, [resource.units[0].id], Context(interposers=(SIMPLE,)))
    assert given.envs["LD_PRELOAD"] == "/opt/quota.so"
    assert given.envs["NVIDIA_VISIBLE_DEVICES"] == resource.units[0].device.uuid
    assert given.envs["NVIDIA_GPU_MEMORY_LIMIT"] == "1000"
    assert "/opt/quota.so" in {mount.container_path for mount in given.mounts}


def test_interposer_does_not_replace_what_the_answer_says() -> None:
    """The configuration refuses such a variable, and the answer overrides it."""
    forged = replace(SIMPLE, edits=InterposerEdits((("NVIDIA_VISIBLE_DEVICES", "all"),)))
    resource = shared(4)
    given = allocate(resource, [resource.units[0].id], Context(interposers=(forged,)))
    assert given.envs["NVIDIA_VISIBLE_DEVICES"] == resource.units[0].device.uuid


def test_device_without_an_interposer_gets_nothing() -> None:
    resource = shared(4, interposer=None)
    given = allocate(resource, [resource.units[0].id], Context(interposers=(SIMPLE,)))
    assert "LD_PRELOAD" not in given.envs


def test_hints_are_for_the_runtime_to_expand() -> None:
    resource = shared(4, interposer=None, hints=("pytorch", "jax"))
    given = allocate(resource, [resource.units[0].id], Context())
    assert given.envs["GPUHOOK_MEMORY_HINTS"] == "pytorch,jax"
    assert not any(name.startswith(("PYTORCH", "XLA")) for name in given.envs)
    without = allocate(shared(4, interposer=None), [resource.units[0].id], Context())
    assert "GPUHOOK_MEMORY_HINTS" not in without.envs


def test_two_devices_with_values_of_their_own_are_refused() -> None:
    resource = shared(2, 2)
    ids = [resource.units[0].id, resource.units[2].id]
    assert code(resource, ids, Context(interposers=(SIMPLE,))) == "GH1838"
    alike = replace(SIMPLE, edits=replace(SIMPLE.edits, mounts=SIMPLE.edits.mounts[:1]))
    given = allocate(resource, ids, Context(interposers=(alike,)))
    assert given.envs["QUOTA"] == f"1000m of {1000 * MIB}, 1/2"


def test_limit_that_is_not_there_cannot_be_told() -> None:
    resource = replace(shared(4), memory={})
    assert code(resource, [resource.units[0].id], Context(interposers=(SIMPLE,))) == "GH1839"


def test_unknown_interposer_is_refused() -> None:
    resource = shared(4, interposer="other")
    assert code(resource, [resource.units[0].id], Context(interposers=(SIMPLE,))) == "GH1836"


def test_container_is_refused_rather_than_failing_to_start() -> None:
    resource = shared(4)
    context = Context(interposers=(SIMPLE,), missing={"quota": "/opt/quota/quota.so"})
    assert code(resource, [resource.units[0].id], context) == "GH1837"
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
def test_files_are_looked_for_below_the_driver_root(gone: str, path: str, host: Path) -> None:
    places = Places(driver=str(host), dev=str(host))
    assert interposers.missing([shared(4)], (SIMPLE,), places) == {}
    (host / gone).rename(host / "away")
    assert interposers.missing([shared(4)], (SIMPLE,), places) == {"quota": path}
    assert interposers.missing([shared(4, interposer=None)], (SIMPLE,), places) == {}


def test_nothing_is_said_of_what_this_process_cannot_see(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the root of a driver container nor that of a pod is the root of the host."""
    installed = Places(str(host), str(host), "/run/nvidia/driver", "/run/nvidia/driver")
    assert interposers.missing([shared(4)], (SIMPLE,), installed) == {}
    assert interposers.missing([shared(4)], (SIMPLE,), Places())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert interposers.missing([shared(4)], (SIMPLE,), Places()) == {}
    assert interposers.missing([shared(4)], (SIMPLE,), Places(str(host), str(host))) == {}


@pytest.mark.parametrize("example", sorted(os.listdir(EXAMPLES)))
def test_example_is_a_configuration_that_gives_containers_an_interposer(example: str) -> None:
    loaded = config_source.load(
        ConfigSource(file=str(EXAMPLES / example)), {}, None, current="", strict=True
    )
    assert [str(finding) for finding in loaded.findings] == []
    configuration = loaded.configuration
    (resource,) = resources.offered(dump_file.load("t4"), configuration).resources
    context = Context(interposers=configuration.own.interposers)
    given = allocate(resource, [resource.units[0].id], context)
    assert {mount.container_path for mount in given.mounts} >= {
        mount.container_path for mount in configuration.own.interposers[0].edits.mounts
    }
    assert "{" not in repr((given.envs.values(), given.mounts)).replace("dict_values", "")
