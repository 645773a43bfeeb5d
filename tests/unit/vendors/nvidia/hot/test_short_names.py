# SPDX-License-Identifier: Apache-2.0
"""Short forms of device names: what they mean, and what a request cannot get by them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from gpuhook.cdi.hot import registry
from gpuhook.errors import GpuhookError
from gpuhook.node.spec_node import first_node
from gpuhook.request.resolve import resolve_names
from gpuhook.vendors.interface import VendorNode
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.device_names import short_names
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.plans import PlainNode, chosen, described, planned

ALL = vocabulary.parse_capabilities("all")
KIND = "nvidia.com/gpu"


def node(profile: str = "h100x8", **settings: object) -> VendorNode:
    return described(profile, chosen(**settings)).node


def nodes(by: VendorNode, *names: str) -> set[str]:
    """Return the GPUs' own nodes of these names."""
    found = resolve_names([*names], ALL, by).edits["deviceNodes"]
    return {one["path"] for one in found if vocabulary.is_gpu_node(one["path"])}


def fault(by: VendorNode, name: str) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        resolve_names([name], ALL, by)
    return caught.value


@pytest.mark.parametrize(
    ("profile", "short", "full"),
    [
        ("h100x8", "0-3", "0,1,2,3"),
        ("h100x8", "6-7", "6,7"),
        ("h100x8", "GPU-5c9a1f7e", "0"),
        ("h100x8", "GPU-5C9A1F7E-2f", "0"),
        ("h100x8", "gpu-5c9a1f7e-", "0"),
        ("h100x8", "01", "1"),
        ("h100x8", "000", "0"),
        ("h100x8", "1b:00.0", "0"),
        ("h100x8", "1B:00.0", "0"),
        ("h100x8", "0000:1B:00.0", "0"),
        ("h100x8", "00000000:1b:00.0", "0"),
        ("t4", "00:1e.0", "0"),
        ("h100x8", "02,4-5", "2,4,5"),
    ],
)
def test_short_forms_of_a_device(profile: str, short: str, full: str) -> None:
    by = node(profile)
    assert nodes(by, *short.split(",")) == nodes(by, *full.split(","))


def test_prefix_of_an_instances_uuid() -> None:
    by = node("a100-mig")
    for gpu in dump_file.load("a100-mig").gpus:
        for one in gpu.instances:
            assert nodes(by, one.uuid[:12]) == nodes(by, one.uuid)


@pytest.mark.parametrize(
    "name",
    [
        "3-0", "0-0", "0-", "-3", "0-1-2", "00-3", "0-03", "0 -3", "+0-3", "0x0-3", "0-8", "8-9",
        "0-99999999999999999999", "\u0660-\u0663", "\u0660\u0661", "08", "-01", "0.",
        "GPU-5c9a1f7", "GPU-5c9a1f7-e",
        "GPU-5c9a1f7g", "5c9a1f7e", "GPU-00000000", "MIG-5c9a1f7e", "b:00.0", "1b:0.0", "1b:00.8",
        "1b:00", "01b:00.0", "0-3::1", "00:01", "gpu01", "gpu0-3", "NVIDIA.com/gpu=0",
    ],
)  # fmt: skip
def test_other_forms_are_names(name: str) -> None:
    """Any other text is the name of a device, which this node does not have."""
    assert fault(node(), name).code in ("GH1101", "GH1102", "GH1104")


@pytest.mark.parametrize("short", ["0-3", "01", "GPU-5c9a1f7e", "1b:00.0"])
def test_cdi_name_is_exact(short: str) -> None:
    assert fault(node(), f"{KIND}={short}").code == "GH1102"


def test_range_with_a_missing_device_is_a_fault() -> None:
    """It names the range and the device, and no device of the range is granted."""
    error = fault(node(), "6-9")
    assert error.message.startswith(f"6-9: {KIND}=8: no such device")


def test_index_is_not_a_part_of_a_uuid() -> None:
    """The listed devices are not taken for the requested name."""
    error = fault(node(), "08")
    assert error.message.startswith(f"08: {KIND}=8: no such device")
    assert "08" in error.message.partition("has 0, ")[2]


def test_range_with_too_many_digits() -> None:
    assert short_names.full_names("0-" + "9" * 5000, list) == []


def test_replica_is_recorded_by_its_full_name() -> None:
    """The ledger compares replica ids: one replica has one id."""
    uuid = dump_file.load("h100x8").gpus[0].uuid
    grant = resolve_names(["GPU-5c9a1f7e::2", "01::3"], ALL, node())
    assert grant.replicas == [f"{uuid}::2", "1::3"]


def test_uuids_with_one_prefix_are_ambiguous() -> None:
    with pytest.raises(GpuhookError) as caught:
        short_names.full_names("GPU-aaaaaaaa", lambda: ["gpu-aaaaaaaa-1", "GPU-aaaaaaaa-2", "0"])
    assert caught.value.code == "GH1060"
    assert "GPU-aaaaaaaa-1, GPU-aaaaaaaa-2" in caught.value.message


def test_list_of_ambiguous_uuids_is_bounded() -> None:
    known = [f"GPU-aaaaaaaa-{number:04}" for number in range(100)]
    with pytest.raises(GpuhookError) as caught:
        short_names.full_names("GPU-aaaaaaaa", lambda: known)
    assert len(caught.value.message) < 300


class ShortNode(PlainNode):
    """A node that resolves short forms of its devices' names."""

    def full_names(self, name: str) -> list[str]:
        return short_names.full_names(name, lambda: self.registry().names(self.kind))


class Host:
    """A directory with one spec, and the alias of one of its devices."""

    def __init__(self, place: Path, *devices: str) -> None:
        self._dirs = [str(place)]
        made = [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/{n}"}]}}
            for n, name in enumerate(devices)
        ]
        document = {"cdiVersion": "0.5.0", "kind": KIND, "devices": made}
        (place / "a.json").write_text(json.dumps(document))

    def devices(self, name: str, **aliases: str) -> list[str]:
        found = registry.load(self._dirs, lambda *_: None)
        grant = resolve_names([name], ALL, ShortNode(found, KIND, aliases))
        return [one.partition("=")[2] for one in grant.devices]


@pytest.mark.parametrize("name", ["0-1", "01", "GPU-aaaaaaaa", "1a:00.0"])
def test_exact_name_takes_precedence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    others = ["0", "1", "GPU-aaaaaaaa-1", "0000:1a:00.0"]
    host = Host(tmp_path, *others, "other")
    assert host.devices(name) != ["other"]
    assert host.devices(name, **{name: "other"}) == ["other"]
    assert Host(tmp_path, *others, name).devices(name) == [name]


def test_names_with_one_prefix_are_ambiguous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    host = Host(tmp_path, "GPU-aaaaaaaa-1", "GPU-aaaaaaaa-2", "GPU-bbbbbbbb-1")
    assert host.devices("GPU-bbbbbbbb") == ["GPU-bbbbbbbb-1"]
    with pytest.raises(GpuhookError) as caught:
        host.devices("GPU-aaaaaaaa")
    assert caught.value.code == "GH1060"


ENV = "NVIDIA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        ("-1", "GH1101", "write void"),
        ("0;1", "GH1101", "separate devices by commas: 0,1"),
        ("0 1", "GH1101", "separate devices by commas: 0,1"),
        ("$NVIDIA", "GH1101", "$NVIDIA is a variable that was not expanded"),
        ("${GPUS}", "GH1101", "${GPUS} is a variable that was not expanded"),
        ("0:1", "GH1102", "0:1 names a MIG device, but this node has none"),
        ("MIG-7551f02d-aaaa", "GH1102", "names a MIG device, but this node has none"),
        ("8", "GH1102", "request one of these"),
        ("GPU-nobody", "GH1102", "request one of these"),
    ],
)
def test_unknown_name_is_a_fault(value: str, code: str, said: str) -> None:
    """It names the variable, the node's devices, and the probable error."""
    spec = {"process": {"env": [f"{ENV}={value}"]}}
    with pytest.raises(GpuhookError) as caught:
        planned(spec, described("h100x8"))
    error = caught.value
    assert error.code == code
    assert error.message.startswith(f"{ENV}: ")
    assert value in error.message
    assert "0, 1, 2, 3, 4, 5, 6, 7" in error.message
    assert said in error.hint


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"annotations": {"cdi.k8s.io/a": f"{KIND}=9"}}, "cdi.k8s.io/a: "),
        (
            {
                "mounts": [
                    {
                        "source": "/dev/null",
                        "destination": "/var/run/nvidia-container-devices/9",
                    }
                ]
            },
            "/var/run/nvidia-container-devices/: ",
        ),
    ],
)
def test_other_sources_are_named(spec: dict[str, object], where: str) -> None:
    settings = chosen(accept_volume_mounts=True)
    with pytest.raises(GpuhookError) as caught:
        planned(spec, described("h100x8", settings))
    assert caught.value.message.startswith(where)


def test_ambiguous_name_is_reported_with_its_source() -> None:
    """The fault has the variable with the name, as that of an unknown name does."""
    facts = dump_file.load("h100x8")
    short, other = "GPU-5c9a1f7e", "GPU-5c9a1f7e-7a39-4c0f-9d52-f3a7c1086b4e"
    first, second, *others = facts.gpus
    gpus = (first, dataclasses.replace(second, uuid=other), *others)
    facts = dataclasses.replace(facts, gpus=gpus)
    with pytest.raises(GpuhookError) as caught:
        planned({"process": {"env": [f"{ENV}={short}"]}}, described(facts))
    assert caught.value.code == "GH1060"
    assert caught.value.message.startswith(f"{ENV}: {short} is ambiguous")
    assert other in caught.value.message


def test_hint_for_an_option_does_not_mention_void() -> None:
    """`attach --device -1`: the option --device has no void."""
    assert "void" not in fault(node(), "-1").hint


def test_missing_mig_device_on_a_node_with_others() -> None:
    assert "MIG" not in fault(node("a100-mig"), "0:9").hint


def test_node_without_a_spec_lists_no_devices(tmp_path: Path) -> None:
    by = first_node(chosen(default_kind="nvidia.com/other", spec_dirs=[str(tmp_path)]))
    assert fault(by, "0").code == "GH1104"
