# SPDX-License-Identifier: Apache-2.0
"""Memory limits by the kernel's controller dmem, with which guarantees outlive their container.

The machine's kernel may have no such controller: gpuhook's programs read a list of controllers that
names it, and the simulated driver treats every cgroup as having it enabled. Runtimes see the real
list.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.request.memory_request import MIB
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import Installation, asks
from tests.contract.limiting import LIMIT, enforced_limits, entry, grant, uuid
from tests.contract.live import WAIT, Live, wrapped
from tests.contract.runtimes import ENGINES
from tests.simulated import stub_limits

CONTROLLERS = "/sys/fs/cgroup/cgroup.controllers"
WITH_DMEM = f"""#!/bin/sh
exec unshare --mount sh -c '
names=$(mktemp) && sed "s/$/ dmem/" {CONTROLLERS} >$names &&
mount --bind $names {CONTROLLERS} && rm $names && exec "$@"' sh %s "$@"
"""


def with_dmem(installation: Installation, place: Path) -> Installation:
    """Return the installation with programs that find the controller on this kernel."""
    place.mkdir()
    shutil.copy(installation.bindir / "gpuhook-runtime", place)
    for name in ("gpuhook", "gpuhook-hook"):
        (place / name).write_text(WITH_DMEM % (installation.bindir / name), encoding="ascii")
        (place / name).chmod(0o755)
    return replace(installation, bindir=place)


@pytest.fixture
def mine(spoiled: Installation, tmp_path: Path) -> Iterator[Installation]:
    """Yield that node with the test's own state, and a driver that uses the controller."""
    apart = spoiled.apart(tmp_path / "apart")
    stub_limits.use_dmem(spoiled.node, uuid(spoiled, 2), everywhere=True)
    yield with_dmem(apart, tmp_path / "bin")
    stub_limits.repair(spoiled.node, uuid(spoiled, 2))


@pytest.fixture
def other(spoiled: Installation, tmp_path: Path) -> Installation:
    """Return that node with a driver that does its own accounting."""
    return spoiled.apart(tmp_path / "other")


@pytest.fixture
def granted_bundle(spoiled: Installation, bundle_of: Bundles) -> Bundle:
    """Return a container with a grant of 4 GiB of a GPU, 1 GiB of it guaranteed."""
    return grant(spoiled, bundle_of("debian", WAIT, asks("2")), 2, 4096, 1024)


def reserved_above(installation: Installation, made: Bundle) -> int:
    """Return the MiB of the GPU that are reserved in the cgroup above the container's."""
    path = "/sys/fs/cgroup" + str(Path(made.config()["linux"]["cgroupsPath"]).parent)
    reserved = [one.soft // MIB for one in stub_limits.known(installation.node) if one.path == path]
    return reserved[0] if reserved else 0


def limits(live: Live, verb: str, *words: str) -> dict[str, Any]:
    """Return the report of `gpuhook limits VERB CONTAINER WORDS`."""
    done = live.gpuhook("limits", live.id, *words, "-o", "json", name=verb)
    assert done.rc == 0, done
    (one,) = json.loads(done.stdout)["containers"]
    return dict(one)


@ENGINES
def test_dmem_omits_the_guarantee(engine: str, mine: Installation, granted_bundle: Bundle) -> None:
    """By default no guarantee is set; the ledger records the granted one and the reason."""
    with wrapped(granted_bundle, mine, engine, "v2") as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (4096, 0)}
        (record,) = entry(mine)["memory"]
        assert (record["by"], record["soft"]) == ("driver", 0)
        assert record["granted"] == {"hard": 4096 * MIB, "soft": 1024 * MIB, "asked": False}
        (gpu,) = limits(live, "show")["gpus"]
        assert gpu["guarantee"] == record["guarantee"] != ""
        assert (gpu["agrees"], gpu["driver"]["request"]) == (True, 0)
        printed = live.gpuhook("limits", live.id, name="show").stderr
        assert "the granted guarantee, 1Gi, is not set: the kernel's controller dmem" in printed
        assert live.report("repair")["steps"] == []
    assert reserved_above(mine, granted_bundle) == 0


def test_driver_accounting_sets_the_guarantee(other: Installation, granted_bundle: Bundle) -> None:
    """With the driver's own accounting the guarantee is set, and is released with the container."""
    with wrapped(granted_bundle, other, "runc", "v2") as live:
        assert enforced_limits(other, live.pid) == {uuid(other, 2): (4096, 1024)}
        (record,) = entry(other)["memory"]
        assert "guarantee" not in record
        assert limits(live, "set", "--limit", "3Gi", "--request", "2Gi")["notes"] == []
    assert reserved_above(other, granted_bundle) == 0


def test_guarantee_always_outlives_the_container(
    mine: Installation, granted_bundle: Bundle
) -> None:
    """With limits.guarantee "always" it remains reserved, unless it is cleared first."""
    mine.settings["limits"] = {"guarantee": "always"}
    mine.configure()
    before = reserved_above(mine, granted_bundle)
    for is_cleared in (True, False):
        with wrapped(granted_bundle, mine, "runc", "v2") as live:
            assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (4096, 1024)}
            assert reserved_above(mine, granted_bundle) == before + 1024
            if is_cleared:
                limits(live, "clear", "--all")
                assert reserved_above(mine, granted_bundle) == before
        assert reserved_above(mine, granted_bundle) == before + (0 if is_cleared else 1024)


def test_guarantee_never_is_not_set(other: Installation, granted_bundle: Bundle) -> None:
    """The setting applies to the driver's own accounting too."""
    other.settings["limits"] = {"guarantee": "never"}
    other.configure()
    with wrapped(granted_bundle, other, "runc", "v2") as live:
        assert enforced_limits(other, live.pid) == {uuid(other, 2): (4096, 0)}
        assert entry(other)["memory"][0]["guarantee"] == "limits.guarantee: never"
        limits(live, "clear")
        assert enforced_limits(other, live.pid) == {uuid(other, 2): (4096, 0)}


def test_requested_guarantee_is_set_with_a_warning(
    mine: Installation, granted_bundle: Bundle
) -> None:
    """`limits set --request` sets it; `limits clear` releases what is reserved."""
    before = reserved_above(mine, granted_bundle)
    with wrapped(granted_bundle, mine, "runc", "v2") as live:
        (note,) = limits(live, "set", "--limit", "3Gi", "--request", "2Gi")["notes"]
        assert "remain reserved in the parent cgroups" in note
        assert f"gpuhook limits clear {live.id}" in note
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (3072, 2048)}
        assert reserved_above(mine, granted_bundle) == before + 2048
        assert "guarantee" not in entry(mine)["memory"][0]
        assert limits(live, "set", "--limit", "4Gi", "--request", "0")["notes"] == []
        assert reserved_above(mine, granted_bundle) == before
        limits(live, "set", "--limit", "4Gi", "--request", "2Gi")
        notes = " ".join(limits(live, "clear")["notes"])
        assert "its granted guarantee of 1Gi is not set" in notes
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (4096, 0)}
        assert entry(mine)["memory"][0]["guarantee"]
    assert reserved_above(mine, granted_bundle) == before


def test_repair_omits_the_guarantee(mine: Installation, granted_bundle: Bundle) -> None:
    """The driver refused the limit at the start: a repair sets it without its guarantee."""
    stub_limits.fail_setting(mine.node, uuid(mine, 2), stub_limits.NO_PERMISSION)
    with wrapped(granted_bundle, mine, "runc", "v2") as live:
        assert entry(mine)["memory"][0]["by"] == ""
        stub_limits.repair(mine.node, uuid(mine, 2))
        stub_limits.use_dmem(mine.node, uuid(mine, 2), everywhere=True)
        assert live.report("repair")["steps"] != []
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (4096, 0)}
        (record,) = entry(mine)["memory"]
        assert record["by"] == "driver"
        assert record["guarantee"]


def test_limit_is_set_on_scope_and_inner_cgroup(mine: Installation, granted_bundle: Bundle) -> None:
    """The ledger and `limits show` list both cgroups, the inner one first."""
    config = granted_bundle.config()
    config["linux"]["cgroupsPath"] += ".scope/container"
    granted_bundle.write(config)
    own = "/sys/fs/cgroup" + config["linux"]["cgroupsPath"]
    with wrapped(granted_bundle, mine, "runc", "v2") as live:
        (record,) = entry(mine)["memory"]
        assert record["cgroups"] == [own, str(Path(own).parent)]
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (4096, 0)}
        (gpu,) = limits(live, "show")["gpus"]
        assert (gpu["agrees"], gpu["cgroups"]) == (True, record["cgroups"])


@ENGINES
def test_missing_dmem_controller_is_reported(
    engine: str, mine: Installation, bundle_of: Bundles
) -> None:
    """The container is refused, and the log names the cgroup without the controller."""
    stub_limits.use_dmem(mine.node, uuid(mine, 2))
    made = bundle_of("debian", ["/bin/true"], [*asks("2"), f"{LIMIT}=1024"])
    result = mine.run(made, engine, "v2")
    assert result.rc != 0
    log = (mine.state / "hook.log").read_text(encoding="utf-8")
    assert "GH1251" in log
    assert "dmem is missing in cgroup.subtree_control of /sys/fs/cgroup" in log
