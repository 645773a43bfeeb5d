# SPDX-License-Identifier: Apache-2.0
"""Memory limits that the driver enforces for containers of real runtimes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gpuhook.request.memory_request import MIB
from tests.contract import bundles
from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks
from tests.contract.limiting import (
    LIMIT,
    REQUEST,
    enforced_limits,
    entry,
    grant,
    hooks,
    uuid,
    variables,
)
from tests.contract.live import WAIT, wrapped
from tests.contract.roots import Roots
from tests.contract.runtimes import ENGINES
from tests.contract.test_user_namespace import let_through, mapped
from tests.simulated import driver_memory, stub_limits
from tests.waiting import eventually


@ENGINES
@pytest.mark.parametrize("has_namespace", [False, True])
def test_grant_is_enforced_by_the_driver(
    engine: str, has_namespace: bool, mine: Installation, bundle_of: Bundles
) -> None:
    """The driver limits the container's cgroup to the plugin's grant; the ledger records it."""
    made = grant(mine, bundle_of("debian", WAIT, asks("2")), 2, 4096, 1024)
    if has_namespace:
        config = made.config()
        config["linux"]["namespaces"].append({"type": "cgroup"})
        made.write(config)
    with wrapped(made, mine, engine, "v2") as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (4096, 1024)}
        (record,) = entry(mine)["memory"]
        (cgroup,) = record.pop("cgroups")
        printed = live.inside("/bin/sh", "-c", f"echo ${LIMIT} ${REQUEST}").stdout
    assert record == {
        "device": uuid(mine, 2),
        "hard": 4096 * MIB,
        "soft": 1024 * MIB,
        "asked": False,
        "by": "driver",
        "trouble": "",
    }
    assert cgroup == "/sys/fs/cgroup" + made.config()["linux"]["cgroupsPath"]
    assert printed == "4096 1024\n"


@pytest.mark.parametrize(
    ("devices", "indexes"), [("all", range(8)), ("1", [1]), ("UUID,3", [0, 3]), ("PCI", [5])]
)
def test_variable_limits_each_requested_gpu(
    devices: str, indexes: list[int], mine: Installation, bundle_of: Bundles
) -> None:
    """The variable applies outside of Kubernetes, for each form of the GPUs' names."""
    devices = devices.replace("UUID", uuid(mine, 0)).replace("PCI", str(mine.gpu(5).pci_bus_id))
    made = bundle_of("debian", WAIT, [*asks(devices), f"{LIMIT}=2048"])
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {
            uuid(mine, index): (2048, 0) for index in indexes
        }
        assert [one["asked"] for one in entry(mine)["memory"]] == [True] * len(indexes)


def test_request_without_a_limit(mine: Installation, bundle_of: Bundles) -> None:
    """The memory is guaranteed, and the use of memory is not limited."""
    made = bundle_of("debian", WAIT, [*asks("1"), f"{REQUEST}=2048"])
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {
            uuid(mine, 1): (stub_limits.NO_LIMIT // MIB, 2048)
        }
    assert LIMIT not in variables(made)


@pytest.mark.parametrize(
    ("env", "hard", "soft"),
    [
        ([f"{LIMIT}=2048", f"{REQUEST}=4096"], 2048, 2048),
        ([f"{LIMIT}=99999", f"{REQUEST}=4096"], 8192, 4096),
        ([f"{LIMIT}=8192", f"{REQUEST}=8000"], 8192, 4096),
        ([f"{LIMIT}=", f"{REQUEST}=100"], 8192, 100),
    ],
    ids=["narrowed", "widened", "more-guaranteed", "less-guaranteed"],
)
def test_variables_lower_the_grant_only(
    env: list[str], hard: int, soft: int, mine: Installation, bundle_of: Bundles
) -> None:
    """A variable above the grant does not apply; the container reads the applied values."""
    made = grant(mine, bundle_of("debian", WAIT, [*asks("2"), *env]), 2, 8192, 4096)
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (hard, soft)}
    assert variables(made)[LIMIT] == str(hard)
    assert variables(made)[REQUEST] == str(soft)


def test_grant_for_another_gpu_limits_nothing(mine: Installation, bundle_of: Bundles) -> None:
    """A grant for a GPU that the container does not have is ignored."""
    made = bundle_of("debian", WAIT, asks("2"))
    grant(mine, made, 3, 8192, 4096)
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {}
        assert "memory" not in entry(mine)
    assert hooks(made) == []


@pytest.mark.parametrize("source", ["/dev/null", "/dev/zero"])
def test_mount_of_a_second_grant_does_not_raise_the_limit(
    source: str, mine: Installation, bundle_of: Bundles
) -> None:
    """A pod's volume at the path of a larger grant does not apply."""
    made = grant(mine, bundle_of("debian", WAIT, asks("2")), 2, 1024, 512)
    grant(mine, made, 2, 80000, 80000, source=source)
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 512)}


def test_mount_at_the_path_of_the_grant_applies(mine: Installation, bundle_of: Bundles) -> None:
    """CRI-O omits the grant's mount if a pod has a volume at its path: the limit still applies."""
    made = bundle_of("debian", WAIT, asks("2"))
    grant(mine, made, 2, 1024, 512, source="/dev/zero")
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 512)}


def test_variables_are_not_set_for_one_of_two_gpus(mine: Installation, bundle_of: Bundles) -> None:
    """The variables describe all GPUs of a container; here only one of them has a limit."""
    made = grant(mine, bundle_of("debian", WAIT, asks("1,2")), 2, 1024, 512)
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 512)}
    assert not {LIMIT, REQUEST} & variables(made).keys()


@ENGINES
def test_allocation_above_the_limit_fails_in_its_container_only(
    engine: str, mine: Installation, root_of: Roots, bundle_of: Bundles, tmp_path: Path
) -> None:
    """Two containers share a GPU: one runs out of its share, the other keeps its memory."""
    root = root_of("debian")
    with driver_memory.serving(tmp_path, mine.node) as driver:
        containers = []
        for words in (["all", "alloc", "1"], ["alloc", "30000", "hold"]):
            args = ["/run/gpu-probe", "/run/gpu.sock", uuid(mine, 2), *words]
            made = grant(mine, bundle_of(root, args, asks("2")), 2, 40000, 40000)
            made.mount(driver.probe, "/run/gpu-probe", "ro", "rbind")
            made.mount(driver.socket, "/run/gpu.sock", "rw", "rbind")
            containers.append(made)
        greedy = mine.run(containers[0], engine, "v2")
        assert greedy.stdout == "got 40000 MiB\nout of memory\n"
        assert greedy.rc == 1
        with wrapped(containers[1], mine, engine, "v2") as live:
            eventually(lambda: live.container.output == "ok\nholding\n")
            assert driver.held(uuid(mine, 2)) == {live.pid: 30000 * MIB}
            second = mine.run(containers[0], engine, "v2")
            assert second.stdout == "got 40000 MiB\nout of memory\n"
            assert driver.held(uuid(mine, 2)) == {live.pid: 30000 * MIB}


def test_restart_limits_the_new_cgroup(mine: Installation, bundle_of: Bundles) -> None:
    """A second start adds no second hook; without the grant there is neither hook nor limit."""
    env = [*asks("2"), f"{LIMIT}=2000", f"{REQUEST}=4096"]
    made = grant(mine, bundle_of("debian", WAIT, env), 2, 8192, 4096)
    for _ in range(2):
        with wrapped(made, mine, "runc", "v2") as live:
            assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (2000, 2000)}
            cgroup = Path(entry(mine)["memory"][0]["cgroups"][0])
            inside = [*live.container.around.prefix, "test", "-d", str(cgroup)]
            assert subprocess.run(inside, check=False).returncode == 0
        assert len(hooks(made)) == 1
        assert subprocess.run(inside, check=False).returncode == 1, "the cgroup of the limit exists"
    config = made.config()
    config["mounts"] = [m for m in config["mounts"] if "gpuhook" not in m["destination"]]
    config["process"]["env"] = [e for e in config["process"]["env"] if "MEMORY" not in e]
    config["linux"]["cgroupsPath"] += "-again"
    made.write(config)
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {}
        assert "memory" not in entry(mine)
    assert hooks(made) == []


def test_restart_reads_the_variables_of_the_engine(mine: Installation, bundle_of: Bundles) -> None:
    """A second create restores the engine's variables before it applies the limit."""
    made = bundle_of("debian", WAIT, [*asks("2"), f"{LIMIT}=9000"])
    grant(mine, made, 2, 4096, 4096)
    with wrapped(made, mine, "runc", "v2"):
        assert variables(made)[LIMIT] == "4096"
    config = made.config()
    config["mounts"] = [m for m in config["mounts"] if "gpuhook" not in m["destination"]]
    made.write(config)
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (9000, 0)}
    assert variables(made)[LIMIT] == "9000"
    assert REQUEST not in variables(made)


@ENGINES
def test_limit_in_a_user_namespace(engine: str, mine: Installation, bundle_of: Bundles) -> None:
    """The wrapper's hook runs outside of the namespace, as the host's root."""
    let_through(Path(mine.node.driver_root) / "any")
    made = mapped(bundle_of("debian", WAIT, [*asks("2"), f"{LIMIT}=1024"]))
    with wrapped(made, mine, engine, "v2") as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 0)}


def test_limit_of_a_privileged_container(mine: Installation, bundle_of: Bundles) -> None:
    """Each GPU that the engine adds has the limit, also in the host's namespaces."""
    env = [*asks("2"), f"{LIMIT}=1024"]
    namespaces = [{"type": name} for name in ("ipc", "uts", "mount")]
    linux = {"namespaces": namespaces, "maskedPaths": None, "readonlyPaths": None}
    made = bundle_of("debian", WAIT, env, linux=linux)
    config = made.config()
    config["linux"]["devices"] = [
        bundles.device(mine.device(index), 195, int(str(mine.gpu(index).minor))) for index in (3, 4)
    ]
    config["linux"]["resources"]["devices"] = [{"allow": True, "access": "rwm"}]
    made.write(config)
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {
            uuid(mine, index): (1024, 0) for index in (2, 3, 4)
        }


def test_memory_hints_for_frameworks(mine: Installation, bundle_of: Bundles) -> None:
    """The node and the container name frameworks; variables that are already set do not change."""
    mine.settings["limits"] = {"hints": ["cupy", "tensorflow"]}
    mine.configure()
    env = [*asks("2"), f"{LIMIT}=4096", "GPUHOOK_MEMORY_HINTS=jax", "CUPY_GPU_MEMORY_LIMIT=1"]
    made = bundle_of("debian", WAIT, env)
    with wrapped(made, mine, "runc", "v2"):
        hinted = variables(made)
    assert hinted["CUPY_GPU_MEMORY_LIMIT"] == "1"
    assert hinted["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert 0 < float(hinted["XLA_PYTHON_CLIENT_MEM_FRACTION"]) < 1


def test_limit_without_an_inventory(mine: Installation, bundle_of: Bundles) -> None:
    """On a node that only a device plugin describes, the grant's UUID names the GPU."""
    (mine.state / "node.json").unlink()
    made = grant(mine, bundle_of("debian", WAIT, asks(uuid(mine, 2))), 2, 1024, 1024)
    with wrapped(made, mine, "runc", "v2") as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 1024)}


def test_hook_has_no_variable_of_the_image(mine: Installation, bundle_of: Bundles) -> None:
    """The hook runs on the host as root, with an explicit environment."""
    env = [*asks("2"), f"{LIMIT}=1024", "LD_PRELOAD=/evil.so", "PYTHONPATH=/evil"]
    made = bundle_of("debian", WAIT, env)
    with wrapped(made, mine, "runc", "v2"):
        (hook,) = hooks(made)
    assert sorted(entry.partition("=")[0] for entry in hook["env"]) == [
        "GPUHOOK_HOOK",
        "GPUHOOK_STATE_DIR",
        "PATH",
    ]
    assert hook["timeout"] > 20
    assert json.dumps(hook).count("/evil") == 0
