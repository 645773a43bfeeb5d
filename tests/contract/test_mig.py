# SPDX-License-Identifier: Apache-2.0
"""MIG instances in containers of real runtimes: each container has its instance and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.bundles import Bundles
from tests.contract.installation import CONTROL, KIND, MAJOR, Installation, asks, installation
from tests.contract.integrations import Integrations
from tests.contract.live import Live, sleeping, wrapped
from tests.contract.roots import Roots
from tests.contract.runtimes import BOTH
from tests.contract.test_repair import reset
from tests.contract.views import View, questions

CAP = "/dev/nvidia-caps/nvidia-cap"
CAPS = 506  # the major of nvidia-caps on the simulated node
# Minors of each instance: that of its GPU, and those of its two capabilities.
NODES = {"0:0": (0, 66, 67), "0:1": (0, 75, 76), "1:0": (2, 291, 292), "1:1": (2, 300, 301)}
NODES |= {"1:2": (2, 300, 302), "1:4": (2, 354, 355)}
FORMS = {
    "index": "0:1",
    "type-index": "mig0:1",
    "uuid": "{uuid}",
    "upper case": "{UUID}",
    "old": "MIG-{gpu}/8/0",
    "replica": "{uuid}::3",
    "replica by index": "0:1::3",
    "CDI name": "nvidia.com/gpu={uuid}",
}


@pytest.fixture(scope="module")
def mig(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return gpuhook installed on a node with MIG, which no test changes."""
    return installation(tmp_path_factory.mktemp("mig"), "a100-mig", node8.bindir)


def uuid(mig: Installation, name: str) -> str:
    """Return the UUID of an instance, by its index."""
    gpu, index = map(int, name.split(":"))
    return next(one.uuid for one in mig.gpu(gpu).instances if one.index == index)


def name_of(mig: Installation, form: str) -> str:
    """Return a name of the instance 0:1 in one form."""
    whole = uuid(mig, "0:1")
    return FORMS[form].format(uuid=whole, UUID=whole.upper(), gpu=mig.gpu(0).uuid)


def tries() -> list[str]:
    """Return the questions for the probe: to open the node of every instance and every GPU."""
    caps = {f"{CAPS}:{minor}" for _, *minors in NODES.values() for minor in minors}
    return questions(tries=[*sorted(caps), *(f"{MAJOR}:{minor}" for minor in range(3))])


def assert_instances(view: View, *names: str) -> None:
    """Assert that a container has the nodes of exactly these instances, and may open them."""
    gpus = {NODES[name][0] for name in names}
    caps = {minor for name in names for minor in NODES[name][1:]}
    expected = {f"/dev/nvidia{minor}" for minor in gpus} | {f"{CAP}{minor}" for minor in caps}
    assert set(view.gpus()) == CONTROL | expected
    assert all(node.allowed for node in view.gpus().values()), view.gpus()
    numbers = {f"{MAJOR}:{minor}" for minor in gpus} | {f"{CAPS}:{minor}" for minor in caps}
    assert {number for number, result in view.tries.items() if result != "EPERM"} == numbers


def recorded_devices(live: Live) -> list[str]:
    """Return the devices in the container's ledger entry."""
    return list(json.loads(live.seen().entry)["devices"])


@pytest.mark.parametrize("form", FORMS)
def test_instance_by_each_form_of_its_name(
    form: str, mig: Installation, bundle_of: Bundles
) -> None:
    """The container has the instance's three nodes, and none of another instance."""
    made = bundle_of("debian", ["/probe", *tries()], asks(name_of(mig, form)))
    done = mig.run(made)
    assert_instances(done.view, "0:1")
    cap = done.view.gpus()[f"{CAP}75"]
    assert (cap.major, cap.minor, cap.mode) == (CAPS, 75, 0o444)


@pytest.mark.parametrize("integration", ["crun-v2", "runc-prestart", "podman-cdi"])
def test_instances_by_each_integration(
    integration: str, mig: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """The prestart hook, crun and podman's CDI give the same nodes."""
    integrations = Integrations(mig, tmp_path)
    view = integrations.through(
        integration, root_of("debian"), ["/probe", *tries()], "1:2,0:0"
    ).view
    caps = {path for path in view.gpus() if path.startswith(CAP)}
    assert caps == {f"{CAP}{minor}" for minor in (300, 302, 66, 67)}
    assert view.tries[f"{CAPS}:301"] == view.tries[f"{CAPS}:76"] == "EPERM"
    assert view.tries[f"{CAPS}:302"] != "EPERM"


def test_utility_capability_includes_instance_nodes(mig: Installation, bundle_of: Bundles) -> None:
    """A container that requests only `utility` can use its instance."""
    made = bundle_of("debian", ["/probe", *tries()], asks("0:1", "utility"))
    view = mig.run(made).view
    assert set(view.gpus()) == {"/dev/nvidiactl", "/dev/nvidia0", f"{CAP}75", f"{CAP}76"}


@pytest.mark.parametrize("name", ["0", "GPU", "bus", "1:3", "MIG-0"])
def test_gpu_in_mig_mode_is_refused(name: str, mig: Installation, bundle_of: Bundles) -> None:
    """A GPU in MIG mode, or an instance that does not exist, starts no container."""
    names = {"GPU": str(mig.gpu(0).uuid), "bus": str(mig.gpu(0).pci_bus_id)}
    made = bundle_of("debian", ["/probe"], asks(names.get(name, name)))
    done = mig.run(made)
    assert done.rc != 0
    assert "GH1102" in done.stderr


def test_recreated_instance_needs_a_new_spec(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """A spec from before the instance was recreated is stale, and is refused."""
    own = installation(tmp_path / "own", "a100-mig", node8.bindir)
    own.refuse_stale()
    made = bundle_of("debian", ["/probe", *tries()], asks("0:1"))
    instance = Path(own.node.host_root, "proc/driver/nvidia/capabilities/gpu0/mig/gi8")
    instance.rename(instance.with_name("gi14"))
    done = own.run(made)
    assert done.rc != 0
    assert "GH1120" in done.stderr
    assert "mig: was " in done.stderr
    own.generate()
    assert_instances(own.run(made).view, "0:1")


def test_ps_lists_instances_and_replicas(mig: Installation, tmp_path: Path) -> None:
    """`gpuhook ps` prints UUIDs, whatever form of the names was requested."""
    mine = mig.apart(tmp_path / "node")
    made = sleeping(tmp_path, env=asks("1:2::3,2"))
    with wrapped(made, mine):
        (holder,) = mine.holders()
    assert set(holder["gpus"]) == {uuid(mine, "1:2"), str(mine.gpu(2).uuid)}
    assert holder["replicas"] == ["1:2::3"]


@BOTH
def test_attach_and_detach_of_instances(
    engine: str, cgroup: str, mig: Installation, tmp_path: Path
) -> None:
    """Each instance of a GPU is attached and detached separately, by any of its names."""
    mine = mig.apart(tmp_path / "node")
    made = sleeping(tmp_path, env=asks(uuid(mine, "1:1")))
    with wrapped(made, mine, engine, cgroup) as live:
        live.attach("1:2", uuid(mine, "1:4"))
        assert_instances(live.view(tries()), "1:1", "1:2", "1:4")
        assert set(mine.holders()[0]["gpus"]) == {uuid(mine, f"1:{n}") for n in (1, 2, 4)}

        live.detach("1:1")
        assert_instances(live.view(tries()), "1:2", "1:4")
        assert set(mine.holders()[0]["gpus"]) == {uuid(mine, f"1:{n}") for n in (2, 4)}
        live.detach("mig1:4")
        assert_instances(live.view(tries()), "1:2")
        assert recorded_devices(live) == [f"{KIND}=1:2"]
        live.attach("0:0")
        live.detach(uuid(mine, "1:2")[: len("MIG-12345678")])
        assert_instances(live.view(tries()), "0:0")
        live.detach(uuid(mine, "0:0"))
        view = live.view(tries())
        assert set(view.tries.values()) == {"EPERM"}
        assert not [path for path in view.gpus() if path.startswith(CAP)]


def test_instance_is_detached_with_its_last_replica(mig: Installation, tmp_path: Path) -> None:
    """The ledger records the instance while one of its replicas is attached."""
    mine = mig.apart(tmp_path / "node")
    first, second = uuid(mine, "1:1"), uuid(mine, "1:2")
    made = sleeping(tmp_path, env=asks(f"{first}::0,{first}::1,{second}::0"))
    with wrapped(made, mine) as live:
        live.detach(f"{first}::0")
        assert_instances(live.view(tries()), "1:1", "1:2")
        assert mine.holders()[0]["replicas"] == [f"{first}::1", f"{second}::0"]
        live.detach("1:1::1")
        assert_instances(live.view(tries()), "1:2")
        (holder,) = mine.holders()
        assert (holder["gpus"], holder["replicas"]) == ([second], [f"{second}::0"])


@BOTH
def test_repair_restores_the_rules_of_an_instance(
    engine: str, cgroup: str, mig: Installation, tmp_path: Path
) -> None:
    """`inspect` reports the nodes that other rules deny, and `repair` allows them."""
    made = sleeping(tmp_path, env=asks("0:1"))
    with wrapped(made, mig, engine, cgroup) as live:
        reset(live)
        assert set(live.view(tries()).tries.values()) == {"EPERM"}
        shown = live.gpuhook("inspect").stdout
        for path in (f"{CAP}75 (c {CAPS}:75 rw)", f"{CAP}76 (c {CAPS}:76 rw)", "/dev/nvidia0 "):
            assert path in shown[shown.index("GH1744: ") :]
        live.report("repair")
        assert_instances(live.view(tries()), "0:1")
        assert live.report("repair")["steps"] == []
