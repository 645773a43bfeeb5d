# SPDX-License-Identifier: Apache-2.0
"""Containers of processes, by the cgroup paths of all engines."""

from __future__ import annotations

import pytest

from gpuhook.device_plugin.metrics import cgroup_names
from gpuhook.device_plugin.metrics.cgroup_names import Membership, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

ID, OTHER = "0f" * 32, "ab" * 32
POD = "kubepods-besteffort-pod3d2b7a51_9c0e_4f6d_8b17_52e0c4a6f913.slice"


@pytest.mark.parametrize(
    ("content", "in_pod"),
    [
        (f"0::/kubepods.slice/kubepods-besteffort.slice/{POD}/cri-containerd-{ID}.scope", True),
        (f"0::/kubepods.slice/{POD}/crio-{ID}.scope/container", True),
        (f"0::/kubepods/burstable/pod3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913/{ID}", True),
        (f"0::/kubelet/kubepods/pod3d2b7a51/{ID}/init.scope", True),
        (f"0::/kubelet.slice/kubelet-kubepods.slice/docker-{ID}.scope", True),
        (f"0::/{POD}:cri-containerd:{ID}", True),
        (f"0::/system.slice/docker-{ID}.scope", False),
        (f"0::/docker/{ID}", False),
        (f"0::/machine.slice/libpod-{ID}.scope/container", False),
        (f"0::/user.slice/user-1000.slice/user@1000.service/libpod-{ID}.scope", False),
        (f"0::/k8s.io/{ID}", False),
        (f"0::/../../{POD}/cri-containerd-{ID}.scope", True),
        (f"0::/../../pod3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913/{ID}", True),
        (f"0::/../../../besteffort/pod3d2b7a519c0e4f6d8b1752e0c4a6f913/{ID}", True),
        (f"0::/../../podman/{ID}", False),
        (f"12:devices:/kubepods/pod3d2b7a51/{ID}\n1:name=systemd:/kubepods/pod3d2b7a51/{ID}", True),
        (f"3:cpu,cpuacct:/\n2:memory:/docker/{ID}\n0::/", False),
    ],
)
def test_container_id_is_found_in_each_form_of_path(content: str, in_pod: bool) -> None:
    member = parse(f"{content}\n".encode())
    assert (member.container(()), member.in_pod) == (ID, in_pod)


@pytest.mark.parametrize(
    "content",
    ["0::/", "0::/system.slice/sshd.service", "0::/user.slice/session-1.scope", "", "garbage",
     "1:name=systemd:/init.scope", "0::/../.."],
)  # fmt: skip
def test_process_of_the_host_is_in_no_container(content: str) -> None:
    assert parse(content.encode()).container(()) is None


def test_container_name_of_the_ledger_is_found() -> None:
    """runc and ctr allow any name."""
    member = parse(b"0::/default/trainer-1")
    assert member.container(()) is None
    assert member.container({"trainer-1"}) == "trainer-1"
    assert parse(b"0::/system.slice/runc-trainer-1.scope").container({"trainer-1"}) == "trainer-1"
    assert parse(b"0::/user.slice/user-1.slice").container({"1"}) is None


def test_outermost_known_container_is_used() -> None:
    """A cgroup below a container's cgroup can have the name of another container."""
    member = parse(f"0::/docker/{ID}/docker/{OTHER}".encode())
    assert member.container({ID, OTHER}) == ID
    assert member.container({OTHER}) == OTHER
    assert member.container(()) == OTHER


def test_ended_process_and_malformed_file_have_no_container(tmp_path: Path) -> None:
    assert cgroup_names.of_pid(1, str(tmp_path)) == Membership()
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "cgroup").write_bytes(b"0::/docker/" + ID.encode() + b"\xff\n")
    assert cgroup_names.of_pid(1, str(tmp_path)).container(()) is None
