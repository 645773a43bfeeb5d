# SPDX-License-Identifier: Apache-2.0
"""Memory limits that the driver does not enforce: which containers start, and the messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks, installation
from tests.contract.limiting import LIMIT, enforced_limits, entry, grant, hooks, uuid
from tests.contract.live import WAIT, wrapped
from tests.contract.runtimes import ENGINES, run
from tests.simulated import build, stub_limits


def set_policy(installation: Installation, policy: str) -> None:
    """Set limits.onFailure."""
    installation.settings["limits"] = {"onFailure": policy}
    installation.configure()


FAILURES: dict[str, tuple[str, Callable[[Installation, str], None]]] = {
    "permission": (
        "GH1251",
        lambda installation, gpu: stub_limits.fail_setting(
            installation.node, gpu, stub_limits.NO_PERMISSION
        ),
    ),
    "too-old-a-driver": (
        "GH1250",
        lambda installation, gpu: stub_limits.fail_setting(
            installation.node, gpu, stub_limits.FUNCTION_NOT_FOUND
        ),
    ),
    "other-values": (
        "GH1252",
        lambda installation, gpu: stub_limits.read_back(installation.node, gpu, 1 << 30, 0),
    ),
    "no-reading": (
        "GH1254",
        lambda installation, gpu: stub_limits.fail_reading(
            installation.node, gpu, stub_limits.UNKNOWN
        ),
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(
    ("policy", "is_asked", "is_refused"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("refuse", False, True),
        ("start", True, False),
    ],
)
def test_on_failure_policy_at_create(
    failure: str,
    policy: str,
    is_asked: bool,
    is_refused: bool,
    mine: Installation,
    bundle_of: Bundles,
) -> None:
    """limits.onFailure decides whether the container starts; the reason is logged in both cases."""
    code, spoil = FAILURES[failure]
    spoil(mine, uuid(mine, 2))
    set_policy(mine, policy)
    made = bundle_of("debian", ["/bin/sh", "-c", "echo runs"], asks("2"))
    grant(mine, made, 2, 4096, 4096, is_asked=is_asked)
    result = mine.run(made, "runc", "v2")
    assert result.stdout == ("" if is_refused else "runs\n")
    assert (result.rc != 0) is is_refused
    log = (mine.state / "hook.log").read_text(encoding="utf-8")
    assert code in log
    assert ("GH1647" in log) is not is_refused
    if is_refused:
        assert code in result.stderr


def test_ledger_records_an_unenforced_limit(mine: Installation, bundle_of: Bundles) -> None:
    """The guard and `gpuhook ps` read from the ledger which limit is not enforced, and why."""
    stub_limits.fail_setting(mine.node, uuid(mine, 2), stub_limits.NO_PERMISSION)
    made = grant(mine, bundle_of("debian", WAIT, asks("2,3")), 2, 4096, 4096)
    grant(mine, made, 3, 4096, 4096)
    with wrapped(made, mine, "crun", "v2"):
        records = {one["device"]: one for one in entry(mine)["memory"]}
    bad, good = records[uuid(mine, 2)], records[uuid(mine, 3)]
    assert (bad["by"], good["by"]) == ("", "driver")
    assert bad["trouble"].startswith("GH1251: ")
    assert "cgroups" not in bad


def test_driver_without_memory_limits_refuses(
    node8: Installation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """A driver from before CUDA 13.4 does not have the NVML functions."""
    old = installation(tmp_path / "old", "t4", node8.bindir)
    stub = Path(old.node.nvml_library)
    stub.unlink()
    stub.write_bytes(build.nvml_stub(without="MEMORY_LIMITS").read_bytes())
    made = bundle_of("debian", ["/bin/true"], [*asks("0"), f"{LIMIT}=1024"])
    result = old.run(made, "runc", "v2")
    assert result.rc != 0
    assert "GH1250" in result.stderr


@ENGINES
@pytest.mark.parametrize("is_asked", [False, True])
def test_cgroup_v1_refuses_a_requested_limit(
    engine: str, is_asked: bool, mine: Installation, bundle_of: Bundles
) -> None:
    """If only the node grants the limit, the container starts without it."""
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        pytest.skip("this machine has cgroup v2")
    made = bundle_of("debian", ["/bin/sh", "-c", "echo runs"], asks("2"))
    grant(mine, made, 2, 4096, 4096, is_asked=is_asked)
    result = mine.run(made, engine)
    assert result.stdout == ("" if is_asked else "runs\n")
    if is_asked:
        assert "GH1312" in result.log
        assert "systemd.unified_cgroup_hierarchy=1" in result.stderr
    else:
        assert hooks(made) == []
        assert result.warned == ["GH1647"]
        assert "cgroup v1" in result.log


def test_limit_in_a_shared_cgroup_is_refused(mine: Installation, bundle_of: Bundles) -> None:
    """The limit of the second container would apply to the first one too."""
    first = bundle_of("debian", WAIT, asks("1"))
    second = bundle_of(first.root, ["/bin/true"], [*asks("1"), f"{LIMIT}=1024"])
    config = second.config()
    config["linux"]["cgroupsPath"] = first.config()["linux"]["cgroupsPath"]
    second.write(config)
    with wrapped(first, mine, "runc", "v2") as live:
        result = mine.run(second, "runc", "v2")
        assert result.rc != 0
        assert "GH1314" in (mine.state / "hook.log").read_text(encoding="utf-8")
        assert enforced_limits(mine, live.pid) == {}


def test_container_without_a_cgroup_is_refused(mine: Installation, bundle_of: Bundles) -> None:
    """The runtime leaves the container in the engine's cgroup."""
    made = bundle_of("debian", ["/bin/true"], [*asks("1"), f"{LIMIT}=1024"])
    command = [mine.runtime, "--cgroup-manager=disabled"]
    result = run(made, command, "crun", "v2", mine.on("crun"))
    assert result.rc != 0
    assert "GH1313" in (mine.state / "hook.log").read_text(encoding="utf-8")


def test_limit_for_a_gpu_without_known_uuid(mine: Installation, bundle_of: Bundles) -> None:
    """A limit by variable is refused or reported; a grant contains the UUID."""
    mine.generate("--device-name-strategy", "index")
    (mine.state / "node.json").unlink()
    made = bundle_of("debian", ["/bin/true"], [*asks("2"), f"{LIMIT}=1024"])
    result = mine.run(made, "runc", "v2")
    assert result.rc != 0
    assert "GH1024" in result.stderr
    set_policy(mine, "start")
    result = mine.run(made, "runc", "v2")
    assert "GH1024" in result.warned
    made = grant(mine, bundle_of(made.root, WAIT, asks("2")), 2, 1024, 1024)
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 1024)}, (
            "the grant names the GPU"
        )


def test_invalid_limit_variable_is_refused(mine: Installation, bundle_of: Bundles) -> None:
    """A container without a GPU starts, with an unchanged config.json."""
    made = bundle_of("debian", ["/bin/true"], [*asks("2"), f"{LIMIT}=4Gi"])
    assert "GH1022" in mine.run(made, "runc", "v2").stderr
    made = bundle_of(made.root, ["/bin/true"], [*asks("void"), f"{LIMIT}=4Gi"])
    raw = made.file.read_bytes()
    assert mine.run(made, "runc", "v2").rc == 0
    assert made.file.read_bytes() == raw
