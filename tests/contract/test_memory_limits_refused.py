# SPDX-License-Identifier: Apache-2.0
"""Memory limits that the driver does not enforce: which containers start, and the messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks, installation
from tests.contract.limiting import LIMIT, entry, grant, held, hooks, uuid
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
def test_failures(
    failure: str,
    policy: str,
    is_asked: bool,
    is_refused: bool,
    mine: Installation,
    bundle_of: Bundles,
) -> None:
    """A driver that does not do it: the policy decides, and the reason is printed either way."""
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


def test_a_limit_that_does_not_hold_is_in_the_ledger(
    mine: Installation, bundle_of: Bundles
) -> None:
    """The guard and `gpuhook ps` read there that the driver does not hold it, and why."""
    stub_limits.fail_setting(mine.node, uuid(mine, 2), stub_limits.NO_PERMISSION)
    made = grant(mine, bundle_of("debian", WAIT, asks("2,3")), 2, 4096, 4096)
    grant(mine, made, 3, 4096, 4096)
    with wrapped(made, mine, "crun", "v2"):
        told = {one["device"]: one for one in entry(mine)["memory"]}
    bad, good = told[uuid(mine, 2)], told[uuid(mine, 3)]
    assert (bad["by"], good["by"]) == ("", "driver")
    assert bad["trouble"].startswith("GH1251: ")
    assert "cgroups" not in bad


def test_an_old_driver(node8: Installation, bundle_of: Bundles, tmp_path: Path) -> None:
    """A library without the calls, as it is before CUDA 13.4."""
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
def test_cgroup_v1(engine: str, is_asked: bool, mine: Installation, bundle_of: Bundles) -> None:
    """A node whose cgroups are v1: refused where the pod asked, else started without a hook."""
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


def test_a_shared_cgroup(mine: Installation, bundle_of: Bundles) -> None:
    """Two containers in one cgroup: a limit of the second would be the first one's, too."""
    first = bundle_of("debian", WAIT, asks("1"))
    second = bundle_of(first.root, ["/bin/true"], [*asks("1"), f"{LIMIT}=1024"])
    config = second.config()
    config["linux"]["cgroupsPath"] = first.config()["linux"]["cgroupsPath"]
    second.write(config)
    with wrapped(first, mine, "runc", "v2") as live:
        result = mine.run(second, "runc", "v2")
        assert result.rc != 0
        assert "GH1314" in (mine.state / "hook.log").read_text(encoding="utf-8")
        assert held(mine, live.pid) == {}


def test_no_cgroup(mine: Installation, bundle_of: Bundles) -> None:
    """A container that its engine leaves in the engine's own cgroup."""
    made = bundle_of("debian", ["/bin/true"], [*asks("1"), f"{LIMIT}=1024"])
    command = [mine.runtime, "--cgroup-manager=disabled"]
    result = run(made, command, "crun", "v2", mine.on("crun"))
    assert result.rc != 0
    assert "GH1313" in (mine.state / "hook.log").read_text(encoding="utf-8")


def test_a_gpu_that_nobody_can_tell(mine: Installation, bundle_of: Bundles) -> None:
    """A GPU with an unknown UUID: a requested limit is not left out silently."""
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
        assert held(mine, live.pid) == {uuid(mine, 2): (1024, 1024)}, "its grant tells it"


def test_variables_that_say_nothing(mine: Installation, bundle_of: Bundles) -> None:
    """Nonsense stops a container that was given a GPU, and no other."""
    made = bundle_of("debian", ["/bin/true"], [*asks("2"), f"{LIMIT}=4Gi"])
    assert "GH1022" in mine.run(made, "runc", "v2").stderr
    made = bundle_of(made.root, ["/bin/true"], [*asks("void"), f"{LIMIT}=4Gi"])
    raw = made.file.read_bytes()
    assert mine.run(made, "runc", "v2").rc == 0
    assert made.file.read_bytes() == raw
