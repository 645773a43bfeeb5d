# SPDX-License-Identifier: Apache-2.0
"""Grants and policy are checked on the resolved devices, however the request names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuhook.entry.create import Create, Edited
from gpuhook.entry.oci_command import Command
from gpuhook.errors import GpuhookError
from gpuhook.explain.dry_run_rootfs import RootfsDryRun
from gpuhook.host.hot.settings import Settings
from gpuhook.node.kept_log import KeptLog
from gpuhook.request.replicas import replicas_of
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY
from tests.plans import this_context
from tests.simulated.node import SimulatedNode, make_node

MIB = 1 << 20
FIRST = "GPU-5c9a1f7e-2f0b-4d35-a1c8-0b6d9e4f7a21"
SECOND = "GPU-e81b64d2-7a39-4c0f-9d52-f3a7c1086b4e"
# Names of the first GPU, in all forms.
FORMS = [
    "0", "00", "GPU-5c9a1f7e", "GPU-5C9A1F7E", FIRST, "GPU-" + FIRST[4:].upper(), "1b:00.0",
    "1B:00.0", "00000000:1B:00.0",
]  # fmt: skip


class Host:
    """A node with eight GPUs whose spec uses one naming `strategy`, without an inventory."""

    def __init__(self, place: Path, node: SimulatedNode, strategy: str) -> None:
        self._place = place
        self.settings = Settings()
        self.settings.spec_dirs = [str(place / "cdi")]
        self.settings.limits_on_failure = "start"
        devices = [
            {
                "name": str(gpu.uuid if strategy == "uuid" else gpu.index),
                "containerEdits": {
                    "deviceNodes": [
                        {
                            "path": f"/dev/nvidia{gpu.minor}",
                            "type": "c",
                            "major": 195,
                            "minor": gpu.minor,
                        }
                    ]
                },
            }
            for gpu in node.node.gpus
        ]
        document = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
        (place / "cdi").mkdir()
        (place / "cdi/a.json").write_text(json.dumps(document))
        (place / "bundle/rootfs").mkdir(parents=True)
        self.heard = KeptLog()

    def created(self, *env: str, mounts: tuple[str, ...] = (), **settings: Any) -> Edited:
        """Return the result of a create for a container with these variables and mounts."""
        for name, value in settings.items():
            setattr(self.settings, name, value)
        spec: dict[str, Any] = {
            "ociVersion": "1.0.2",
            "process": {"env": [*env]},
            "root": {"path": "rootfs"},
            "mounts": [{"destination": path, "source": "/dev/null"} for path in mounts],
        }
        command = Command()
        command.bundle = str(self._place / "bundle")
        context = this_context(self.settings, self.heard)
        return Create(command, context, "/none/gpuhook-runtime", None, RootfsDryRun()).edited(
            spec, "runc"
        )


@pytest.fixture(params=["uuid", "index"])
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    node = make_node(tmp_path / "node", "h100x8")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", node.host_root)
    return Host(tmp_path, node, request.param)


def asks(name: str) -> str:
    return f"{VOCABULARY.devices_env}={name}"


def granted(uuid: str, mebibytes: int) -> str:
    return f"{VOCABULARY.memory_prefix}/{uuid},hard={mebibytes},soft=0"


@pytest.mark.parametrize("name", FORMS)
def test_memory_grant_applies_by_every_name(name: str, host: Host) -> None:
    """A name that the grant lacks does not remove the limit."""
    edited = host.created(asks(name), mounts=(granted(FIRST, 4096),))
    assert edited.grant is not None
    limits = {one["device"]: one["hard"] for one in edited.memory}
    assert limits == {FIRST: 4096 * MIB}


def test_memory_grant_applies_to_each_device_of_a_range(host: Host) -> None:
    ranged, listed = (
        host.created(asks(name), mounts=(granted(FIRST, 4096), granted(SECOND, 2048)))
        for name in ("0-1", "0,1")
    )
    assert ranged.memory == listed.memory
    assert {one["device"]: one["hard"] for one in ranged.memory} == {
        FIRST: 4096 * MIB,
        SECOND: 2048 * MIB,
    }


@pytest.mark.parametrize("name", FORMS)
def test_own_limit_is_for_its_device_alone(name: str, host: Host) -> None:
    """One GPU has one limit: a GPU that only the text names has none."""
    edited = host.created(
        asks(name), f"{VOCABULARY.memory_limit_env}=2048", mounts=(granted(FIRST, 4096),)
    )
    assert [(one["device"], one["hard"]) for one in edited.memory] == [(FIRST, 2048 * MIB)]


@pytest.mark.parametrize("told", ["GPU-e81b64d2::0", "01::0", "0-1::0", f"{SECOND}::0", "1::0"])
def test_variable_cannot_name_a_replica_of_another_gpu(told: str, host: Host) -> None:
    """It only names replicas of granted GPUs, and has no short forms."""
    edited = host.created(asks("GPU-5c9a1f7e"))
    assert edited.grant is not None
    spec = {"process": {"env": [f"{VOCABULARY.replicas_env}={told}"]}}
    assert replicas_of(spec, edited.grant.devices, tuple) == []


@pytest.mark.parametrize("name", ["0-7", "GPU-5c9a1f7e", "01", "1b:00.0"])
def test_refused_device_is_refused_in_every_form(name: str, host: Host) -> None:
    edited = host.created(asks(name), accept_env_when_unprivileged=False)
    assert edited.grant is None
    assert [warning.code for warning in host.heard.warnings] == ["GH1007"]


def test_mount_takes_precedence_over_a_wider_variable(host: Host) -> None:
    """The devices that a device plugin mounts are all that the container gets."""
    mount = f"{VOCABULARY.mount_prefix}/{FIRST}"
    edited = host.created(asks("0-7"), mounts=(mount,), accept_volume_mounts=True)
    assert edited.grant is not None
    assert len(edited.grant.devices) == 1


@pytest.mark.parametrize("name", ["0-1", "01", "GPU-5c9a1f7e"])
def test_devices_of_other_vendors_have_no_short_forms(name: str, host: Host) -> None:
    with pytest.raises(GpuhookError) as caught:
        host.created(asks(f"vendor.example/nic={name}"))
    assert caught.value.code == "GH1009"


def test_one_gpu_with_many_names_is_one_device(host: Host) -> None:
    edited = host.created(asks(",".join([*FORMS, "0-1", "GPU-5c9a1f7e::0", f"{FIRST}::0"])))
    assert edited.grant is not None
    assert len(edited.grant.devices) == 2
    assert set(edited.grant.replicas) == {f"{FIRST}::0"}
