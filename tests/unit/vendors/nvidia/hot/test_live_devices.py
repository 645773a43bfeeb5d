# SPDX-License-Identifier: Apache-2.0
"""Devices other than GPUs, at the time of a request and in specs of generate-cdi."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuhook.cdi.hot import compiled_spec
from gpuhook.cdi.hot.registry import Registry
from gpuhook.cli import main
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary
from gpuhook.vendors.nvidia.hot.extras import extra_devices, live_devices
from gpuhook.vendors.nvidia.hot.extras.extra_devices import LiveSpec
from gpuhook.vendors.nvidia.hot.extras.live_devices import DeviceRoots
from tests.simulated import extra_nodes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
FOUND = {
    "gds": ["/dev/nvidia-fs0", "/dev/nvidia-fs1"],
    "mofed": ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"],
    "gdrcopy": ["/dev/gdrdrv"],
    "nvswitch": ["/dev/nvidia-nvswitch0", "/dev/nvidia-nvswitchctl"],
}
KINDS = {mode: kind for kind, mode in vocabulary.EXTRA_KINDS.items()}
IMEX = "/dev/nvidia-caps-imex-channels/channel"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the root of a node that has all kinds of devices."""
    root = tmp_path / "node"
    root.mkdir()
    extra_nodes.add(root)
    return root


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the commands the test's own state directory and settings."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "no-settings.yaml"))


def roots(place: Path) -> DeviceRoots:
    """Return the roots of that node."""
    return DeviceRoots(str(place), str(place), str(place))


def generate(place: Path, mode: str, *options: str) -> Result:
    """Call generate-cdi for that node."""
    own = [f"--{name}-root={place}" for name in ("driver", "dev", "host")]
    words = ["generate-cdi", f"--mode={mode}", "--format=json", *own, *options]
    return CliRunner().invoke(main, words, prog_name="gpuhook")


def described(place: Path, mode: str, *options: str) -> dict[str, Any]:
    """Return the edits of each device of the spec, by name."""
    done = generate(place, mode, *options)
    assert done.exit_code == 0, done.output
    spec = json.loads(done.stdout)
    assert spec["kind"] == KINDS[mode]
    assert "containerEdits" not in spec
    return {one["name"]: one["containerEdits"] for one in spec["devices"]}


def paths(edits: Any) -> list[str]:
    """Return the paths of device nodes, each of which must be the node's own."""
    nodes = edits["deviceNodes"]
    for node in nodes:
        assert node["hostPath"].endswith(node["path"])
        assert "major" not in node
    return [node["path"] for node in nodes]


def code_of(kind: str, name: str, place: Path) -> str:
    """Return the code of the fault of a device."""
    with pytest.raises(GpuhookError) as raised:
        LiveSpec(kind, roots(place)).device(name)
    return raised.value.code


@pytest.mark.parametrize("mode", FOUND)
def test_kind_with_one_device(mode: str, place: Path) -> None:
    """Its nodes and no others, at a request and in a spec; missing ones are a fault."""
    spot = LiveSpec(KINDS[mode], roots(place))
    edits = spot.device("all")
    assert paths(edits) == FOUND[mode]
    assert spot.device("0") is None
    assert described(place, mode) == {"all": edits}
    for path in FOUND[mode]:
        Path(f"{place}{path}").unlink()
    assert code_of(KINDS[mode], "all", place) == "GH1037"
    assert "GH1213" in generate(place, mode).output
    Path(f"{place}{FOUND[mode][0]}").write_text("no device", encoding="utf-8")
    assert code_of(KINDS[mode], "all", place) == "GH1037"


def test_storage_adds_its_files(place: Path) -> None:
    """udev's database and cufile.json, read-only, if they exist."""
    edits = LiveSpec(vocabulary.GDS_KIND, roots(place)).device("all") or {}
    assert {m["containerPath"]: m["hostPath"] for m in edits["mounts"]} == {
        "/run/udev": f"{place}/run/udev",
        "/etc/cufile.json": f"{place}/etc/cufile.json",
    }
    assert all("ro" in mount["options"] for mount in edits["mounts"])
    (place / "etc/cufile.json").unlink()
    edits = LiveSpec(vocabulary.GDS_KIND, roots(place)).device("all") or {}
    assert [mount["containerPath"] for mount in edits["mounts"]] == ["/run/udev"]


def test_restricted_node_adds_its_group(place: Path) -> None:
    """The edits have the group that opens a node, unless every user can open it."""
    edits = LiveSpec(vocabulary.MOFED_KIND, roots(place)).device("all") or {}
    assert edits["additionalGids"] == [109]
    assert "additionalGids" not in (LiveSpec(vocabulary.GDS_KIND, roots(place)).device("all") or {})


def test_channels_by_number_and_name(place: Path) -> None:
    """One that is missing, or of an earlier load of the driver, is a fault."""
    spot = LiveSpec(vocabulary.IMEX_KIND, roots(place))
    for name in ("3", "channel3"):
        assert paths(spot.device(name)) == [IMEX + "3"]
    assert paths(spot.device("all")) == [IMEX + number for number in ("0", "3", "12")]
    assert spot.device("abc") is None
    assert code_of(vocabulary.IMEX_KIND, "5", place) == "GH1037"
    assert code_of(vocabulary.IMEX_KIND, "7", place) == "GH1037"


def test_channels_in_a_spec(place: Path) -> None:
    """Named by the strategies, with `all`, and only those that --device-id names."""
    found = described(place, "imex")
    assert list(found) == ["0", "3", "12", "all"]
    assert paths(found["all"]) == [IMEX + number for number in ("0", "3", "12")]
    both = described(place, "imex", "--device-name-strategy=type-index", "--no-all-device")
    assert list(both) == ["channel0", "channel3", "channel12"]
    one = described(place, "imex", "--device-id=channel3")
    assert (list(one), paths(one["all"])) == (["3", "all"], [IMEX + "3"])
    assert "GH1512" in generate(place, "imex", "--device-id=7").output
    done = generate(place, "imex", "--device-name-strategy=uuid")
    assert "GH1213" in done.output
    assert "hint: take --device-name-strategy index" in done.output


def test_administration_of_mig(place: Path) -> None:
    """Each of the two devices has its own node, with the driver's numbers."""
    spot = LiveSpec(vocabulary.MIG_KIND, roots(place))
    cap = "/dev/nvidia-caps/nvidia-cap"
    assert paths(spot.device("config")) == [cap + "1"]
    assert paths(spot.device("monitor")) == [cap + "2"]
    assert spot.device("0") is None
    assert {name: paths(edits) for name, edits in described(place, "mig").items()} == {
        "config": [cap + "1"],
        "monitor": [cap + "2"],
    }
    (place / "proc/driver/nvidia-caps/mig-minors").write_text("config 2\nmonitor x\n")
    assert paths(spot.device("config")) == [cap + "2"]
    assert paths(spot.device("monitor")) == [cap + "2"]  # the minor is in its own file


def test_faults_of_mig_administration(place: Path) -> None:
    """A missing node, wrong numbers and a driver without MIG have different faults."""
    node = place / "dev/nvidia-caps/nvidia-cap1"
    node.unlink()
    assert code_of(vocabulary.MIG_KIND, "config", place) == "GH1210"
    done = generate(place, "mig")
    assert done.exit_code == 0
    assert "nvidia-cap1" in done.stderr
    assert [one["name"] for one in json.loads(done.stdout)["devices"]] == ["monitor"]
    said = generate(place, "mig", "--device-id=config").output
    assert "GH1210" in said
    assert "No such file or directory" in said
    node.write_text("no device")
    assert code_of(vocabulary.MIG_KIND, "config", place) == "GH1210"
    said = generate(place, "mig", "--device-id=config").output
    assert "it is not the character device" in said
    for path in (mig_capabilities.MINORS, f"{live_devices.MANAGEMENT_FILES}/config"):
        Path(f"{place}{path}").unlink()
    assert code_of(vocabulary.MIG_KIND, "config", place) == "GH1216"


def test_missing_nodes_are_created_on_request(place: Path) -> None:
    """With --create-device-nodes, with the driver's number and mode; existing ones remain."""
    node, other = (place / f"dev/nvidia-caps/nvidia-cap{minor}" for minor in (1, 2))
    node.unlink()
    before = other.stat()
    assert list(described(place, "mig", "--create-device-nodes")) == ["config", "monitor"]
    status = node.stat()
    numbers = os.major(status.st_rdev), os.minor(status.st_rdev)
    assert (numbers, status.st_mode & 0o777) == ((extra_nodes.CAPS_MAJOR, 1), 0o400)
    assert other.stat().st_ino == before.st_ino


def test_spec_of_the_kind_takes_precedence(place: Path) -> None:
    """The node is read only for kinds that no spec describes."""
    found = extra_devices.with_live_kinds(
        Registry(["/x"], [[]]), [vocabulary.IMEX_KIND], roots(place)
    )
    extra_devices.require_device(found, "nvidia.com/imex-channel=3")
    with pytest.raises(GpuhookError) as raised:
        extra_devices.require_device(found, "nvidia.com/imex-channel=5")
    assert raised.value.code == "GH1037"
    spec = json.loads(generate(place, "imex", "--device-id=0").stdout)
    own = Registry(["/x"], [[compiled_spec.of_spec("/x/imex.json", spec)]])
    found = extra_devices.with_live_kinds(own, [vocabulary.IMEX_KIND], roots(place))
    extra_devices.require_device(found, "nvidia.com/imex-channel=0")
    with pytest.raises(GpuhookError, match=r"no such device in /x/imex\.json") as raised:
        extra_devices.require_device(found, "nvidia.com/imex-channel=3")
    assert raised.value.code == "GH1042"
    assert "--mode imex" in raised.value.hint


def test_links_of_a_driver_container_stay_inside(place: Path, tmp_path: Path) -> None:
    """Its absolute links are relative to its root; no file or device of the host is added."""
    secret = tmp_path / "secret"
    secret.write_text("root:x\n")
    (place / "etc/cufile.json").unlink()
    (place / "etc/cufile.json").symlink_to(secret)
    (place / "dev/nvidia-fs0").unlink()
    (place / "dev/nvidia-fs0").symlink_to("/dev/full")
    for path in (IMEX + "3", "/dev/nvidia-caps/nvidia-cap1"):
        (tmp_path / "node2").mkdir(exist_ok=True)
        outside = tmp_path / "node2" / Path(path).name
        (place / path[1:]).rename(outside)
        (place / path[1:]).symlink_to(outside)
    found = live_devices.whole(vocabulary.GDS_KIND, roots(place))
    assert [node["path"] for node in found["deviceNodes"]] == ["/dev/nvidia-fs1"]
    assert [mount["containerPath"] for mount in found["mounts"]] == ["/run/udev"]
    with pytest.raises(GpuhookError, match=f"no {IMEX}3|channel=3"):
        live_devices.channel("3", roots(place))
    with pytest.raises(GpuhookError, match="nvidia-cap1: it is not the character device"):
        live_devices.management("config", roots(place))
    assert "3" not in live_devices.channel_numbers(roots(place))


def test_links_inside_a_driver_container_are_followed(place: Path) -> None:
    (place / "etc/cufile.json").rename(place / "etc/real.json")
    (place / "etc/cufile.json").symlink_to("/etc/real.json")
    (place / "dev/gdrdrv").rename(place / "dev/other")
    (place / "dev/gdrdrv").symlink_to("/dev/other")
    mounts = live_devices.whole(vocabulary.GDS_KIND, roots(place))["mounts"]
    assert [mount["hostPath"] for mount in mounts][1:] == [f"{place}/etc/real.json"]
    (node,) = live_devices.whole(vocabulary.GDRCOPY_KIND, roots(place))["deviceNodes"]
    assert (node["path"], node["hostPath"]) == ("/dev/gdrdrv", f"{place}/dev/other")
