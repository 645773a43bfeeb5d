# SPDX-License-Identifier: Apache-2.0
"""`gpuhook inspect` on real containers: its facts and its findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.bundles import Bundles
from tests.contract.installation import CONTROL, LIBRARIES, MAJOR, Installation, asks
from tests.contract.live import WAIT, Live, wrapped
from tests.contract.runtimes import EVERY, run_command
from tests.waiting import eventually


def inspected(live: Live) -> dict[str, Any]:
    """Return the document of `gpuhook inspect`."""
    done = live.gpuhook("inspect", "-o", "json")
    assert done.rc == 0, done.stderr
    return done.document("inspect")


@EVERY
def test_inspect_reports_a_container_of_the_wrapper(
    engine: str, cgroup: str, node8: Installation, bundle_of: Bundles
) -> None:
    """Nodes, rules, mounts, loader cache and variables are reported, without a finding."""
    bundle = bundle_of("debian", WAIT, asks("3"))
    with wrapped(bundle, node8, engine, cgroup) as live:
        document = inspected(live)
        text = live.gpuhook("inspect").stdout
    assert document["findings"] == []
    nodes = {node["path"]: node for node in document["nodes"]}
    assert set(nodes) == {*CONTROL, node8.device(3)}
    model = str(node8.gpu(3).name).removeprefix("NVIDIA ")
    assert document["gpus"] == [node8.gpu(3).uuid]
    assert f" 3 ({model})\n" in text
    gpu = nodes[node8.device(3)]
    assert (gpu["major"], gpu["minor"]) == (MAJOR, node8.gpu(3).minor)
    assert all(node["allowed"] and not node["bound"] for node in nodes.values())
    assert document["cgroup"]["version"] == ("v2" if cgroup == "v2" else "v1")
    assert bool(document["cgroup"]["programs"]) is (cgroup == "v2")
    version = node8.node.node.driver.version
    assert document["driver"] == {"running": version, "mounted": [version], "agree": True}
    libcuda = f"{LIBRARIES}/libcuda.so.{version}"
    mounts = {mount["path"]: mount for mount in document["mounts"]}
    assert mounts[libcuda]["version"] == version
    assert mounts[libcuda]["options"].startswith("ro,")
    libraries = {library["name"]: library for library in document["loader"]["libraries"]}
    assert libraries["libcuda.so.1"]["cached"]
    assert libraries["libcuda.so.1"]["found"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in document["env"]["process"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in document["env"]["config"]
    assert document["ledger"]["route"] == "wrapper"
    for word in (node8.device(3), libcuda, "libcuda.so.1", "NVIDIA_VISIBLE_DEVICES=void"):
        assert word in text
    assert "DENIED" not in text


def test_inspect_finds_denied_nodes(node8: Installation, bundle_of: Bundles) -> None:
    """Nodes that the device cgroup denies are reported, with the command that fixes them."""
    bundle = bundle_of("debian", WAIT, asks("3"))
    with wrapped(bundle, node8) as live:
        before = inspected(live)
        if before["cgroup"]["version"] != "v1":
            pytest.skip("writes a v1 cgroup's file")
        Path(before["cgroup"]["path"], "devices.deny").write_text(f"c {node8.number(3)} rwm")
        document = inspected(live)
        text = live.gpuhook("inspect").stdout
        live.report("repair")
        after = inspected(live)
    denied = [node["path"] for node in document["nodes"] if not node["allowed"]]
    assert denied == [node8.device(3)]
    assert document["gpus"] == [node8.gpu(3).uuid]
    (finding,) = document["findings"]
    assert finding["code"] == "GH1744"
    assert node8.number(3) in finding["message"]
    assert f"gpuhook repair {live.id}" in finding["hint"]
    assert f"{node8.device(3)}" in text
    assert "DENIED" in text
    assert "GH1744" in text
    assert (before["findings"], after["findings"]) == ([], [])


def test_inspect_finds_another_driver_version(apart: Installation, bundle_of: Bundles) -> None:
    """If the node's driver changes while a container runs, both versions are reported."""
    bundle = bundle_of("debian", WAIT, asks("3"))
    with wrapped(bundle, apart) as live:
        other = bundle.path / "host"
        (other / "sys/module/nvidia").mkdir(parents=True)
        (other / "sys/module/nvidia/version").write_text("999.1\n")
        env = {**live.env, "GPUHOOK_HOST_ROOT": str(other)}
        document = run_command(live.command("inspect", "-o", "json"), env).document("inspect")
    assert document["driver"]["agree"] is False
    (finding,) = [one for one in document["findings"] if one["code"] == "GH1741"]
    assert "999.1" in finding["message"]
    assert apart.node.node.driver.version in finding["message"]


def test_inspect_of_a_container_without_gpus(node8: Installation, bundle_of: Bundles) -> None:
    """A container without files of the driver has no finding."""
    with wrapped(bundle_of("debian", WAIT), node8) as live:
        document = inspected(live)
        done = live.gpuhook("inspect")
    empty = {name: document[name] for name in ("nodes", "mounts", "findings", "ledger")}
    assert empty == {"nodes": [], "mounts": [], "findings": [], "ledger": None}
    assert document["driver"]["agree"] is None
    assert done.rc == 0
    assert "no entry" in done.stdout


def test_inspect_of_a_stopped_container_is_an_error(
    node8: Installation, bundle_of: Bundles
) -> None:
    with wrapped(bundle_of("debian", ["/bin/true"]), node8) as live:
        eventually(lambda: live.container.state["status"] == "stopped")
        done = live.gpuhook("inspect")
    assert done.rc == 1
    assert "Error GH1738" in done.stderr
