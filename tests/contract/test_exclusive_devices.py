# SPDX-License-Identifier: Apache-2.0
"""Exclusive devices: `request.exclusiveDevices` gives a device to one container at a time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.host.hot.file_lock import FileLock
from tests.contract.amd_installation import (
    AmdInstallation,
    amd_installation,
    asks_amd,
    beside_nvidia,
    nodes_of,
)
from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks
from tests.contract.live import prestart, sleeping, started, wrapped
from tests.contract.runtimes import BOTH
from tests.waiting import eventually


@pytest.fixture
def whole(node8: Installation, tmp_path: Path) -> AmdInstallation:
    """Return an installation on a node with eight AMD GPUs."""
    return amd_installation(tmp_path / "whole", "mi300x8", node8)


def exclusive(installation: Installation, *names: str) -> None:
    """Write settings with exclusive devices."""
    document = {
        "cdi": {"specDirs": [str(installation.specs)]},
        "request": {"exclusiveDevices": list(names)},
    }
    installation.config.write_text(json.dumps(document), encoding="utf-8")


@BOTH
def test_second_container_is_refused(
    engine: str, cgroup: str, whole: AmdInstallation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """A device is free when its container has ended; others are shared all the time."""
    exclusive(whole, "amd.com/gpu=2")
    again = bundle_of("debian", ["/probe"], asks_amd("0000:47:00.0"))
    before = again.file.read_bytes()
    with wrapped(sleeping(tmp_path, env=asks_amd("2,3")), whole, engine, cgroup) as live:
        refused = whole.run(again, engine, cgroup)
        assert refused.rc != 0
        text = f"GH1063: amd.com/gpu=2 is exclusive on this node, and the container {live.id}"
        assert text in refused.stderr
        assert again.file.read_bytes() == before
        shared = whole.run(bundle_of("debian", ["/probe"], asks_amd("3")), engine, cgroup)
        assert nodes_of(shared.view) == whole.paths(3)
    assert nodes_of(whole.run(again, engine, cgroup).view) == whole.paths(2)


@pytest.mark.parametrize(
    ("value", "is_refused"), [("0:1", True), ("GPU-08da87c12ef81b5d", True), ("1:0", False)]
)
def test_gpu_stands_for_its_partitions(
    value: str, *, is_refused: bool, node8: Installation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """Partitions of an exclusive GPU are exclusive, each one by itself."""
    node = amd_installation(tmp_path / "parts", "mi300x-cpx", node8)
    exclusive(node, "amd.com/gpu=GPU-08da87c12ef81b5d")
    with wrapped(sleeping(tmp_path, env=asks_amd("0:1,1:0")), node):
        done = node.run(bundle_of("debian", ["/probe"], asks_amd(value)))
        assert ("GH1063: amd.com/gpu=1 is" in done.stderr) == is_refused, done
        assert (done.rc != 0) == is_refused
        neighbour = node.run(bundle_of("debian", ["/probe"], asks_amd("0:2")))
        assert neighbour.rc == 0, neighbour


def test_all_devices_of_both_vendors(
    node8: Installation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """`all` means every device; a device of one vendor is none of the other with its index."""
    both = beside_nvidia(tmp_path / "both", "mixed", node8)
    exclusive(both, "all")
    nvidia = bundle_of("debian", ["/probe"], asks(both.gpu(0).uuid or "0"))
    with wrapped(sleeping(tmp_path, env=asks_amd("0")), both):
        assert both.run(nvidia).rc == 0
        assert "GH1063" in both.run(bundle_of("debian", ["/probe"], asks_amd("all"))).stderr
    with wrapped(sleeping(tmp_path / "next", env=asks("0")), both):
        assert "GH1063: nvidia.com/gpu=0 is" in both.run(nvidia).stderr


@BOTH
def test_exited_container_has_no_device(
    engine: str, cgroup: str, whole: AmdInstallation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """CRI-O keeps the runtime's state of a container that has exited until a pod is removed."""
    exclusive(whole, "all")
    made = sleeping(tmp_path, env=asks_amd("2"), args=["/bin/true"])
    with whole.lifecycle(made, engine, cgroup) as container:
        container.start()
        eventually(lambda: container.state["status"] == "stopped", "the exit")
        done = whole.run(bundle_of("debian", ["/probe"], asks_amd("2")), engine, cgroup)
        assert done.rc == 0, done


def test_container_that_was_never_created_has_no_device(
    whole: AmdInstallation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """A runtime that fails early has not made its state root."""
    exclusive(whole, "all")
    made = sleeping(tmp_path, env=asks_amd("2"))
    spec = json.loads(made.file.read_text(encoding="utf-8"))
    spec["linux"]["namespaces"].append({"type": "bogus"})
    made.file.write_text(json.dumps(spec), encoding="utf-8")
    failed = whole.run(made)
    assert failed.rc != 0
    assert "bogus" in failed.stderr
    assert not (made.path / "state").exists()
    done = whole.run(bundle_of("debian", ["/probe"], asks_amd("2")))
    assert done.rc == 0, done


def test_container_without_an_entry_is_refused(
    whole: AmdInstallation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """Other containers would not know that it has the device."""
    exclusive(whole, "amd.com/gpu=2")
    (whole.state / "containers").write_text("no directory", encoding="utf-8")
    made = bundle_of("debian", ["/probe"], asks_amd("2"))
    before = made.file.read_bytes()
    refused = whole.run(made)
    assert refused.rc != 0
    assert "error GH1410" in refused.stderr
    assert made.file.read_bytes() == before
    hooked = sleeping(tmp_path, env=asks_amd("2"), hooks=prestart(whole))
    with whole.lifecycle(hooked) as container:
        assert "GH1410" in container.create().stderr
    assert whole.run(bundle_of("debian", ["/probe"], asks_amd("3"))).rc == 0


def test_attach_knows_its_container(whole: AmdInstallation, tmp_path: Path) -> None:
    """The engine may name the bundle by a link, and two containers may have one bundle."""
    exclusive(whole, "all")
    made = sleeping(tmp_path, env=asks_amd("2"))
    link = tmp_path / "link"
    link.symlink_to(made.path)
    with wrapped(replace(made, path=link), whole) as live:
        assert live.attach("2")["steps"] == []
        assert live.gpuhook("explain").rc == 0
    made = sleeping(tmp_path / "next")
    with started(made, whole) as live, started(made, whole) as other:
        live.attach("1")
        assert live.id in other.refused("GH1063", "attach", "--device", "1")


def test_one_of_several_at_once(whole: AmdInstallation, tmp_path: Path) -> None:
    """Containers that are created at the same time do not get a device together."""
    exclusive(whole, "all")
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        containers = [
            stack.enter_context(
                whole.lifecycle(sleeping(tmp_path / str(number), env=asks_amd("5")))
            )
            for number in range(4)
        ]
        answers = list(pool.map(lambda one: one.create(), containers))
        assert sorted(answer.rc != 0 for answer in answers) == [False, True, True, True], answers
        assert sum("GH1063" in answer.stderr for answer in answers) == 3


def test_claims_are_one_after_the_other(whole: AmdInstallation, tmp_path: Path) -> None:
    """A container waits until one that is being created is in the ledger."""
    exclusive(whole, "all")
    with (
        wrapped(sleeping(tmp_path, env=asks_amd("5")), whole),
        whole.lifecycle(sleeping(tmp_path / "next", env=asks_amd("5"))) as container,
        ThreadPoolExecutor(1) as pool,
    ):
        (name,) = whole.entries()
        path = whole.state / "containers" / name
        entry = path.read_text(encoding="utf-8")
        path.unlink()
        lock = whole.state / "locks/exclusive"
        with FileLock(str(lock)):
            creating = pool.submit(container.create)
            eventually(lambda: creating.done() or openers(lock) > 1, "the next claim")
            path.write_text(entry, encoding="utf-8")
        assert "GH1063" in creating.result().stderr


def openers(path: Path) -> int:
    """Return how many open descriptors of processes are this file."""
    found = 0
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            found += link.readlink().name == path.name and link.samefile(path)
        except OSError:
            continue
    return found


def test_hook_and_attach_are_refused(whole: AmdInstallation, tmp_path: Path) -> None:
    """No integration of gpuhook gives the device to a second container; its own may keep it."""
    exclusive(whole, "amd.com/gpu=1")
    with started(sleeping(tmp_path), whole) as live:
        live.attach("1")
        assert live.attach("1")["steps"] == []
        hooked = sleeping(tmp_path / "hooked", env=asks_amd("1"), hooks=prestart(whole))
        with whole.lifecycle(hooked) as container:
            refused = container.create()
            assert refused.rc != 0
            assert "GH1063" in refused.stderr
        with started(sleeping(tmp_path / "other"), whole) as other:
            for words in (["1"], ["1", "--dry-run"]):
                assert live.id in other.refused("GH1063", "attach", "--device", *words)
            live.detach("1")
            other.attach("1")


def test_hook_claims_the_device(whole: AmdInstallation, tmp_path: Path) -> None:
    """A container of the prestart hook has its device as one of gpuhook-runtime does."""
    exclusive(whole, "all")
    hooked = sleeping(tmp_path, env=asks_amd("1"), hooks=prestart(whole))
    with started(hooked, whole), started(sleeping(tmp_path / "other"), whole) as other:
        other.refused("GH1063", "attach", "--device", "1")


def test_explain_names_the_holder(whole: AmdInstallation, tmp_path: Path) -> None:
    """`explain` predicts the refusal, writes nothing, and accepts the container that holds it."""
    exclusive(whole, "all")
    with wrapped(sleeping(tmp_path, env=asks_amd("4")), whole) as live:
        predicted = whole.gpuhook("explain", "--env", "AMD_VISIBLE_DEVICES=4")
        assert "GH1063" in predicted.stdout + predicted.stderr
        own = live.gpuhook("explain")
        assert own.rc == 0, own
        assert "GH1063" not in own.stdout + own.stderr


def test_unknown_name_is_a_warning(whole: AmdInstallation, bundle_of: Bundles) -> None:
    """A device that is gone, or a typing error, does not stop containers."""
    exclusive(whole, "amd.com/gpu=00", "nvidia.com/gpu=0")
    done = whole.edit(bundle_of("debian", ["/probe"], asks_amd("4")))
    assert done.rc == 0
    assert "GH1064: request.exclusiveDevices names amd.com/gpu=00" in done.log
    assert "nvidia.com" not in done.log


@pytest.mark.parametrize("name", ["0", "amd.com/gpu", "amd.com/gpu=0,1", ""])
def test_malformed_name_is_an_error(name: str, whole: AmdInstallation) -> None:
    exclusive(whole, name)
    done = whole.gpuhook("config", "validate", str(whole.config))
    assert done.rc == 1
    assert "exclusiveDevices" in done.stderr + done.stdout
