# SPDX-License-Identifier: Apache-2.0
"""attach, detach and repair of AMD GPUs, alone and beside NVIDIA's, in running containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.vendors.amd.hot.amd_words import KFD
from tests.contract.amd_installation import (
    AmdInstallation,
    amd_installation,
    asks_amd,
    beside_nvidia,
    nodes_of,
)
from tests.contract.device_side import evaluate
from tests.contract.installation import CONTROL, Installation, asks
from tests.contract.live import Live, prestart, sleeping, started, wrapped
from tests.contract.runtimes import BOTH, EVERY
from tests.contract.test_amd_usage import given
from tests.contract.test_user_namespace import let_through, mapped
from tests.contract.views import View, questions
from tests.simulated.sysfs_files import write


@pytest.fixture(scope="module")
def amd8(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> AmdInstallation:
    """Return an installation on a node with eight AMD GPUs; no test changes it."""
    return amd_installation(tmp_path_factory.mktemp("amd8"), "mi300x8", node8)


@pytest.fixture
def own8(node8: Installation, tmp_path: Path) -> AmdInstallation:
    """Return an installation on a node with eight AMD GPUs, which the test changes."""
    return amd_installation(tmp_path / "own8", "mi300x8", node8)


@pytest.fixture
def both(node8: Installation, tmp_path: Path) -> AmdInstallation:
    """Return an installation on a node with a T4 and two MI210."""
    return beside_nvidia(tmp_path / "both", "mixed", node8)


def view_of(live: Live, installation: AmdInstallation) -> View:
    """Return the container's view, which has tried to open every GPU."""
    every = installation.numbers(*range(len(installation.devices())))
    return live.view(questions(tries=[*every, "238:0"]))


def opened(view: View) -> set[str]:
    """Return the device numbers that the cgroup lets the container open."""
    return {number for number, answer in view.tries.items() if answer != "EPERM"}


@EVERY
def test_attach_and_detach(engine: str, cgroup: str, amd8: AmdInstallation, tmp_path: Path) -> None:
    """The container gets one GPU and loses it: nothing remains, /dev/kfd goes with the last GPU."""
    with started(sleeping(tmp_path), amd8, engine, cgroup) as live:
        before, rules = live.seen(), live.rules()
        planned = live.report("attach", "--device", "2", "--dry-run")
        report = live.attach("2")
        assert report["steps"] == planned["steps"]
        assert report["skipped"] == []
        view = view_of(live, amd8)
        assert nodes_of(view) == amd8.paths(2)
        assert opened(view) == {*amd8.numbers(2), "238:0"}
        assert live.attach("0000:47:00.0")["steps"] == []  # another name of the same GPU

        live.attach("0x8da67c57d7c488a")
        assert nodes_of(view_of(live, amd8)) == amd8.paths(2, 7)
        live.detach("amd.com/gpu=2")
        view = view_of(live, amd8)
        assert nodes_of(view) == amd8.paths(7)
        assert opened(view) == {*amd8.numbers(7), "238:0"}
        live.detach("7")
        assert nodes_of(view_of(live, amd8)) == set()
        assert live.rules() == rules
        assert live.nodes() == before.nodes


@BOTH
def test_detach_from_a_create(
    engine: str, cgroup: str, amd8: AmdInstallation, tmp_path: Path
) -> None:
    """A GPU of config.json is denied and hidden, and attach returns it."""
    with wrapped(sleeping(tmp_path, env=asks_amd("0,1")), amd8, engine, cgroup) as live:
        live.detach("/dev/dri/renderD128", "/dev/dri/card1")
        view = view_of(live, amd8)
        assert opened(view) == {*amd8.numbers(1), "238:0"}
        assert "amd.com/gpu=0" not in live.entry().partition('"requested"')[0]
        live.detach("1")
        assert opened(view_of(live, amd8)) == {"238:0"}  # as for every control node of config.json
        live.attach("0")
        view = view_of(live, amd8)
        assert opened(view) == {*amd8.numbers(0), "238:0"}
        assert nodes_of(view) == amd8.paths(0)


@EVERY
def test_repair(engine: str, cgroup: str, amd8: AmdInstallation, tmp_path: Path) -> None:
    """Device rules that another program has removed return, and no others."""
    with wrapped(sleeping(tmp_path, env=asks_amd("3")), amd8, engine, cgroup) as live:
        reset(live)
        assert opened(view_of(live, amd8)) == set()
        steps = live.report("repair")["steps"]
        assert any(KFD in step or "238:0" in step for step in steps), steps
        view = view_of(live, amd8)
        assert opened(view) == {*amd8.numbers(3), "238:0"}
        assert live.report("repair")["steps"] == []


@BOTH
@pytest.mark.parametrize("mode", ["CPX", "QPX"])
def test_repair_after_another_partition_mode(
    mode: str, engine: str, cgroup: str, own8: AmdInstallation, tmp_path: Path
) -> None:
    """The nodes of a whole GPU are those of a part of it: they may be another container's."""
    with wrapped(sleeping(tmp_path, env=asks_amd("0,3")), own8, engine, cgroup) as live:
        reset(live)
        before = live.seen()
        write(own8.amd.gpu("0000:05:00.0") / "current_compute_partition", mode)
        error = live.refused("GH1763", "repair")
        was, now = "0000:05:00.0 in SPX/NPS1", f"0000:05:00.0 in {mode}/NPS1"
        assert f"/dev/dri/renderD128 was {was}, is {now}" in error
        assert "renderD152" not in error
        assert live.seen() == before
        assert opened(view_of(live, own8)) == set()
        assert "GH1763" in live.gpuhook("inspect").stdout
        live.detach("0")
        assert live.report("repair")["steps"]  # the other GPU
        assert opened(view_of(live, own8)) == {*own8.numbers(3), "238:0"}


@BOTH
def test_repair_after_a_reload_of_the_driver(
    engine: str, cgroup: str, own8: AmdInstallation, tmp_path: Path
) -> None:
    """The driver may number the nodes as before, or give them to other GPUs."""
    with started(sleeping(tmp_path), own8, engine, cgroup) as live:
        live.attach("3")
        reset(live)
        own8.amd.generation(1)
        assert live.report("repair")["steps"]
        assert opened(view_of(live, own8)) == {*own8.numbers(3), "238:0"}

        reset(live)
        own8.amd.swap_drm("0000:65:00.0", "0000:85:00.0")
        error = live.refused("GH1763", "repair")
        assert "/dev/dri/renderD152 was 0000:65:00.0 in SPX/NPS1, is 0000:85:00.0" in error
        assert opened(view_of(live, own8)) == set()
        live.refused("GH1763", "repair", "--dry-run")
        own8.describe()
        live.attach("0")
        live.refused("GH1763", "repair")
        assert opened(view_of(live, own8)) == {*own8.numbers(0), "238:0"}


def test_repair_without_the_driver(own8: AmdInstallation, tmp_path: Path) -> None:
    """An unloaded driver has no nodes."""
    with wrapped(sleeping(tmp_path, env=asks_amd("3")), own8) as live:
        own8.amd.lose_gpu("0000:65:00.0")
        error = live.refused("GH1763", "repair")
        assert "/dev/dri/renderD152 was 0000:65:00.0 in SPX/NPS1, is no GPU or partition" in error


def test_repair_without_a_record(own8: AmdInstallation, tmp_path: Path) -> None:
    """The ledger has no container of an engine's CDI support: the devices of now are named."""
    kfd, render = (KFD, 238, 0), ("/dev/dri/renderD152", 226, 152)
    with started(given(sleeping(tmp_path), kfd, render), own8) as live:
        assert live.report("repair")["notes"] == []
        reset(live)
        (note,) = live.report("repair")["notes"]
        assert note.endswith("may be others: /dev/dri/renderD152 (0000:65:00.0 in SPX/NPS1)")
        assert opened(view_of(live, own8)) == {*own8.numbers(3), "238:0"}


def test_prestart_hook_records_the_devices(own8: AmdInstallation, tmp_path: Path) -> None:
    made = sleeping(tmp_path, env=asks_amd("3"), hooks=prestart(own8))
    with started(made, own8) as live:
        assert opened(view_of(live, own8)) == {*own8.numbers(3), "238:0"}
        write(own8.amd.gpu("0000:65:00.0") / "current_memory_partition", "NPS4")
        assert "is 0000:65:00.0 in SPX/NPS4" in live.refused("GH1763", "repair")


def reset(live: Live) -> None:
    """Set the device rules to those of systemd, which allow no GPU."""
    (version,) = evaluate(live.container, "rules.version")
    if version == "v2":
        rules = "allow('c *:* m', 'c 1:* rwm', 'c 136:* rwm')"
        evaluate(live.container, f"attach_program(rules.path, {rules})")
        return
    (path,) = evaluate(live.container, "rules.path")
    for line in Path(path, "devices.list").read_text(encoding="utf-8").splitlines():
        if line.startswith(("c 226:", "c 238:")):
            Path(path, "devices.deny").write_text(line, encoding="utf-8")


@BOTH
def test_gpus_of_both_vendors(
    engine: str, cgroup: str, both: AmdInstallation, tmp_path: Path
) -> None:
    """One attach adds GPUs of both vendors; an index means the first vendor's on such a node."""
    with started(sleeping(tmp_path / "box"), both, engine, cgroup) as live:
        live.attach("0", "amd.com/gpu=1")
        view = view_of(live, both)
        assert set(view.gpus()) == {*CONTROL, both.device(0)}
        assert nodes_of(view) == both.paths(1)
        live.detach("0")
        view = view_of(live, both)
        assert set(view.gpus()) == set()
        assert nodes_of(view) == both.paths(1)
        live.detach("amd.com/gpu=1")
        view = view_of(live, both)
        assert nodes_of(view) == set()
        assert [one for one in view.mounts if "nvidia" in one or "cuda" in one] == []


def test_an_index_where_the_container_has_one_vendor(both: AmdInstallation, tmp_path: Path) -> None:
    """detach looks among the vendors of the GPUs that the container has."""
    with wrapped(sleeping(tmp_path / "box", env=asks_amd("0")), both) as live:
        live.detach("0")
        assert opened(view_of(live, both)) == {"238:0"}


def test_the_other_vendors_gpu_remains(both: AmdInstallation, tmp_path: Path) -> None:
    env = [*asks("0"), *asks_amd("0")]
    with wrapped(sleeping(tmp_path / "box", env=env), both) as live:
        live.detach("amd.com/gpu=0")
        view = view_of(live, both)
        assert opened(view) == {"238:0"}
        assert view.gpus()[both.device(0)].allowed
        live.detach("nvidia.com/gpu=0")
        assert live.view().gpus().get(both.device(0)) is None


def test_attach_in_a_user_namespace(amd8: AmdInstallation, tmp_path: Path) -> None:
    """There the nodes are bound, and unmounted again."""
    let_through(amd8.amd.root / "any")
    with started(mapped(sleeping(tmp_path)), amd8) as live:
        report = live.attach("1")
        assert any("groups 109" in what for what in report["skipped"])
        assert nodes_of(live.view()) == amd8.paths(1)
        live.detach("1")
        assert nodes_of(live.view()) == set()


@pytest.mark.parametrize(
    ("name", "code"), [("9", "GH1102"), ("3-1", "GH1102"), ("amd.com/gpu=x", "GH1102")]
)
def test_unknown_names(name: str, code: str, amd8: AmdInstallation, tmp_path: Path) -> None:
    """The error has the devices of the node."""
    with started(sleeping(tmp_path), amd8) as live:
        error = live.refused(code, "attach", "--device", name)
        assert "8 devices, 0 to 7" in error
        live.refused("GH1759", "detach", "--device", name)
