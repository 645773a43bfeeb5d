# SPDX-License-Identifier: Apache-2.0
"""Memory limits of AMD GPUs, by the kernel's controller dmem, for containers of real runtimes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuhook.kernel import dmem
from gpuhook.request.memory_request import MIB
from gpuhook.vendors.amd.warm.vram_limits import VramLimits
from tests.contract import dmem_node
from tests.contract.bundles import Bundle, Bundles
from tests.contract.dmem_node import LIMIT, REQUEST, DmemNode, asks_amd, read, serving
from tests.contract.installation import Installation, asks
from tests.contract.limiting import enforced_limits, entry, grant, hooks, uuid, variables
from tests.contract.live import WAIT, Live, wrapped
from tests.contract.runtimes import ENGINES
from tests.simulated import amd_tree, cgroups
from tests.simulated.amd_tree import AmdTree

FOUR = str(4096 * MIB)


@pytest.fixture(scope="module")
def tree(spoiled: Installation) -> AmdTree:
    """Return the files of eight AMD GPUs, on a node with eight GPUs of NVIDIA."""
    return amd_tree.build(spoiled.node.host_root, "mi300x8", real_nodes=True)


@pytest.fixture
def node(mine: Installation, tree: AmdTree, tmp_path: Path) -> Iterator[DmemNode]:
    """Yield that node, with a kernel that has the controller."""
    with serving(mine, tree, tmp_path) as made:
        yield made


@pytest.fixture
def limited(node: DmemNode, bundle_of: Bundles) -> Bundle:
    """Return a container with GPU 0, and a grant of 4 GiB of it."""
    return node.grant(bundle_of("debian", WAIT, asks_amd("0")), 0, 4096)


def limits(live: Live, verb: str, *words: str) -> dict[str, Any]:
    """Return the report of `gpuhook limits VERB CONTAINER WORDS`."""
    done = live.gpuhook("limits", live.id, *words, "-o", "json", name=verb)
    assert done.rc == 0, done
    (one,) = json.loads(done.stdout)["containers"]
    return dict(one)


@ENGINES
def test_grant_is_enforced_by_the_kernel(engine: str, node: DmemNode, bundle_of: Bundles) -> None:
    """The limit is set before the container's program starts, and read back."""
    made = node.grant(bundle_of("debian", WAIT, asks_amd("2")), 2, 4096)
    with wrapped(made, node.installation, engine, "v2") as live:
        assert node.limits(live.pid) == {node.region(2): FOUR}
        (record,) = entry(node.installation)["memory"]
        (cgroup,) = record.pop("cgroups")
    assert record == {
        "device": node.device(2),
        "hard": 4096 * MIB,
        "soft": 0,
        "asked": False,
        "by": "kernel",
        "trouble": "",
    }
    assert cgroup == "/sys/fs/cgroup" + made.config()["linux"]["cgroupsPath"]
    assert variables(made)[LIMIT] == "4096"


def test_variable_limits_each_requested_gpu(node: DmemNode, bundle_of: Bundles) -> None:
    """Outside of Kubernetes the variable applies; a limit above the card becomes the card."""
    made = bundle_of("debian", WAIT, asks_amd("1,3", f"{LIMIT}=999999"))
    with wrapped(made, node.installation, "runc", "v2") as live:
        total = str(node.tree.node.gpus[1].vram_bytes)
        assert node.limits(live.pid) == {node.region(one): total for one in (1, 3)}
        assert [one["asked"] for one in entry(node.installation)["memory"]] == [True, True]


@ENGINES
def test_both_vendors(engine: str, node: DmemNode, bundle_of: Bundles) -> None:
    """A container with GPUs of both vendors has both limits, each by its own grant."""
    env = [*asks("2"), *asks_amd("5")]
    made = node.grant(bundle_of("debian", WAIT, env), 5, 4096)
    grant(node.installation, made, 2, 2048, 0)
    with wrapped(made, node.installation, engine, "v2") as live:
        assert node.limits(live.pid) == {node.region(5): FOUR}
        own = {uuid(node.installation, 2): (2048, 0)}
        assert enforced_limits(node.installation, live.pid) == own
        records = {one["device"]: one["by"] for one in entry(node.installation)["memory"]}
        shown = limits(live, "show")
    assert records == {uuid(node.installation, 2): "driver", node.device(5): "kernel"}
    assert {one["gpu"]: one["by"] for one in shown["gpus"]} == records
    assert (variables(made)[LIMIT], variables(made)["NVIDIA_GPU_MEMORY_LIMIT"]) == ("4096", "2048")


def test_lack_of_one_vendor_does_not_affect_the_other(node: DmemNode, bundle_of: Bundles) -> None:
    """Without the controller, NVIDIA's driver still limits its GPU."""
    node.facts(without=("/",))
    made = node.grant(bundle_of("debian", WAIT, [*asks("2"), *asks_amd("5")]), 5, 4096)
    grant(node.installation, made, 2, 2048, 0)
    with wrapped(made, node.installation, "runc", "v2") as live:
        own = {uuid(node.installation, 2): (2048, 0)}
        assert enforced_limits(node.installation, live.pid) == own
        records = {one["device"]: one for one in entry(node.installation)["memory"]}
        assert records[node.device(5)]["by"] == ""
        assert records[node.device(5)]["trouble"].startswith("GH2542: ")


def test_cgroup_above_that_does_not_enable_the_controller(
    node: DmemNode, bundle_of: Bundles
) -> None:
    """A container that requests the limit does not start: the message names the directory."""
    node.facts(without=("/gpuhook-tests",))
    made = bundle_of("debian", WAIT, asks_amd("0", f"{LIMIT}=4096"))
    done = node.installation.run(made, "runc", "v2")
    assert done.rc != 0
    assert "dmem is missing in /sys/fs/cgroup/gpuhook-tests/cgroup.subtree_control" in done.stderr
    assert "write +dmem into cgroup.subtree_control" in done.stderr


@pytest.mark.parametrize(
    ("change", "code"), [("no-dmem", "GH2545"), ("no-region", "GH2541"), ("partition", "GH2540")]
)
def test_grant_that_the_kernel_cannot_enforce(
    change: str, code: str, node: DmemNode, limited: Bundle, request: pytest.FixtureRequest
) -> None:
    """The container starts, as a plugin's guard may watch it; the reason is in the ledger."""
    mode = node.tree.gpu(node.device(0)) / "current_compute_partition"
    if change == "partition":
        request.addfinalizer(lambda: mode.write_text("SPX\n", encoding="ascii") and None)
        mode.write_text("CPX\n", encoding="ascii")
        dmem_node.write_spec(node)
    else:
        node.controller.facts.write(None if change == "no-dmem" else {})
    with wrapped(limited, node.installation, "runc", "v2") as live:
        (record,) = entry(node.installation)["memory"]
        (shown,) = limits(live, "show")["gpus"]
    assert (record["by"], record["trouble"][:6]) == ("", code)
    assert (shown["by"], shown["trouble"] != "") == ("nobody", True)


def test_limits_are_changed_and_restored(node: DmemNode, limited: Bundle) -> None:
    """Set, lost, repaired, cleared: the ledger and the kernel agree after each step."""
    with wrapped(limited, node.installation, "runc", "v2") as live:
        cgroup = node.cgroup(live.pid)
        assert limits(live, "set", "--limit", "2Gi")["steps"] != []
        assert node.limits(live.pid) == {node.region(0): str(2048 * MIB)}
        assert live.report("repair")["steps"] == []
        dmem.write(str(cgroup), dmem.MAX, node.region(0), dmem.NO_LIMIT)
        (shown,) = limits(live, "show")["gpus"]
        assert (shown["agrees"], shown["by"]) == (False, "nobody")
        assert "GH1785" in live.gpuhook("limits", live.id, name="show").stderr
        live.report("repair")
        assert node.limits(live.pid) == {node.region(0): str(2048 * MIB)}
        limits(live, "clear")
        assert node.limits(live.pid) == {node.region(0): FOUR}
        limits(live, "clear", "--all")
        assert node.limits(live.pid) == {}
        assert entry(node.installation)["memory"][0]["granted"]["hard"] == 4096 * MIB


def test_limit_below_the_current_use(node: DmemNode, limited: Bundle) -> None:
    """The kernel ignores it and does not reclaim: the earlier limit remains, and is reported."""
    with wrapped(limited, node.installation, "runc", "v2") as live:
        node.facts(used={live.pid: 3000})
        refused = live.gpuhook("limits", live.id, "--limit", "2Gi", name="set")
        assert refused.rc == 1
        assert "Error GH2544" in refused.stderr
        assert "already uses 3000Mi" in refused.stderr
        assert "does not reclaim" in refused.stderr
        assert node.limits(live.pid) == {node.region(0): FOUR}
        (shown,) = limits(live, "show")["gpus"]
        assert (shown["used"], shown["agrees"]) == (3000 * MIB, True)
        assert "uses 3000Mi, more than" in str(limits(live, "set", "--limit", "2Gi", "--dry-run"))


def test_attached_gpu_is_limited_and_detached_gpu_is_not(
    node: DmemNode, bundle_of: Bundles
) -> None:
    with wrapped(bundle_of("debian", WAIT), node.installation, "runc", "v2") as live:
        live.report("attach", "--device", "amd.com/gpu=4", "--memory-limit", "4Gi")
        assert node.limits(live.pid) == {node.region(4): FOUR}
        assert entry(node.installation)["memory"][0]["by"] == "kernel"
        live.report("detach", "--device", "amd.com/gpu=4")
        assert node.limits(live.pid) == {}


def test_guarantee(node: DmemNode, bundle_of: Bundles) -> None:
    """It is left out by default; with "always", the cgroups above get it as well until cleared."""
    made = node.grant(bundle_of("debian", WAIT, asks_amd("0")), 0, 4096, 1024)
    with wrapped(made, node.installation, "runc", "v2") as live:
        assert node.limits(live.pid, dmem.MIN) == {}
        assert "controller dmem" in entry(node.installation)["memory"][0]["guarantee"]
    node.installation.settings["limits"] = {"guarantee": "always"}
    node.installation.configure()
    with wrapped(made, node.installation, "runc", "v2") as live:
        above = node.cgroup(live.pid).parent / dmem.MIN
        assert node.limits(live.pid, dmem.MIN) == {node.region(0): str(1024 * MIB)}
        assert read(above) == {node.region(0): str(1024 * MIB)}
        limits(live, "clear", "--all")
        assert (node.limits(live.pid, dmem.MIN), read(above)) == ({}, {})


def test_request_alone_needs_no_limit(node: DmemNode, bundle_of: Bundles) -> None:
    """Its memory is not limited, and by default no guarantee is set."""
    made = bundle_of("debian", WAIT, asks_amd("0", f"{REQUEST}=1024"))
    with wrapped(made, node.installation, "runc", "v2") as live:
        assert (node.limits(live.pid), node.limits(live.pid, dmem.MIN)) == ({}, {})


def test_frameworks_learn_their_share(node: DmemNode, bundle_of: Bundles) -> None:
    """ROCm reports the whole card to programs, so that a hint is a fraction of the card."""
    hints = "GPUHOOK_MEMORY_HINTS=jax,cupy"
    made = bundle_of("debian", WAIT, asks_amd("0", f"{LIMIT}=4096", hints))
    with wrapped(made, node.installation, "runc", "v2"):
        pool, total = (4096 - 256) * MIB, node.tree.node.gpus[0].vram_bytes or 1
    assert variables(made)["CUPY_GPU_MEMORY_LIMIT"] == str(pool)
    assert variables(made)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == f"0.{pool * 10000 // total:04d}"


def test_container_without_a_limit_has_no_hook(node: DmemNode, bundle_of: Bundles) -> None:
    made = bundle_of("debian", WAIT, asks_amd("0"))
    with wrapped(made, node.installation, "runc", "v2") as live:
        assert node.limits(live.pid) == {}
    assert hooks(made) == []


def test_node_reports_both_vendors(node: DmemNode, limited: Bundle) -> None:
    """`limits show` says how each vendor's limits are enforced, or why not."""
    with wrapped(limited, node.installation, "runc", "v2") as live:
        printed = live.gpuhook("limits", live.id, name="show")
        assert "AMD: this node can enforce memory limits: by the kernel's dmem" in printed.stderr
        assert "NVIDIA: this node can enforce memory limits" in printed.stderr
        assert " kernel" in printed.stdout
        node.facts(without=("/",))
        printed = live.gpuhook("limits", live.id, name="show")
    assert "warning: AMD: this node cannot enforce memory limits" in printed.stderr
    assert "it is not in /sys/fs/cgroup/cgroup.subtree_control" in printed.stderr


def test_real_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set and read back a limit on the first region of this machine, if its kernel has one."""
    top = cgroups.mounted()
    regions = [one for one in dmem.capacity(str(top)) or {} if one.startswith("drm/")]
    if not regions:
        pytest.skip(f"the kernel lists no region in {top}/{dmem.CAPACITY}")
    monkeypatch.setattr("gpuhook.vendors.amd.warm.vram_limits.region_of", lambda _: regions[0])
    (top / dmem.PASSED_ON).write_text("+dmem", encoding="ascii")
    with cgroups.made() as own:
        limit = VramLimits().set("0000:00:00.0", str(own), 64 * MIB, 0)
        assert limit.hard == 64 * MIB
        VramLimits().clear("0000:00:00.0", str(own))
        assert dmem.regions(str(own), dmem.MAX) == dict.fromkeys(
            dmem.regions(str(own), dmem.MAX) or {}, dmem.NO_LIMIT
        )
