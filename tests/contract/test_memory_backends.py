# SPDX-License-Identifier: Apache-2.0
"""Memory limits on a node where the kernel's controller dmem holds them, and guarantees outlive.

The machine's kernel may have no such controller. The root's list of controllers names it all the
same to gpuhook's programs, and the driver takes every cgroup for one that has it enabled. Runtimes
see the machine as it is.
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
from tests.contract.limiting import LIMIT, entry, grant, held, uuid
from tests.contract.live import WAIT, Live, wrapped
from tests.contract.runtimes import ENGINES
from tests.simulated import stub_limits

CONTROLLERS = "/sys/fs/cgroup/cgroup.controllers"
SEEING = f"""#!/bin/sh
exec unshare --mount sh -c '
names=$(mktemp) && sed "s/$/ dmem/" {CONTROLLERS} >$names &&
mount --bind $names {CONTROLLERS} && rm $names && exec "$@"' sh %s "$@"
"""


def seeing_dmem(installation: Installation, place: Path) -> Installation:
    """Return the installation with programs that see the controller on this kernel."""
    place.mkdir()
    shutil.copy(installation.bindir / "gpuhook-runtime", place)
    for name in ("gpuhook", "gpuhook-hook"):
        (place / name).write_text(SEEING % (installation.bindir / name), encoding="ascii")
        (place / name).chmod(0o755)
    return replace(installation, bindir=place)


@pytest.fixture
def mine(spoiled: Installation, tmp_path: Path) -> Iterator[Installation]:
    """Give that node with a state of the test's own, and a driver that uses the controller."""
    apart = spoiled.apart(tmp_path / "apart")
    stub_limits.use_dmem(spoiled.node, uuid(spoiled, 2), everywhere=True)
    yield seeing_dmem(apart, tmp_path / "bin")
    stub_limits.mend(spoiled.node, uuid(spoiled, 2))


@pytest.fixture
def other(spoiled: Installation, tmp_path: Path) -> Installation:
    """Give that node with a driver that keeps its own account."""
    return spoiled.apart(tmp_path / "other")


@pytest.fixture
def granted(spoiled: Installation, bundle_of: Bundles) -> Bundle:
    """Give a container that is granted 4 GiB of a GPU, 1 GiB of it guaranteed."""
    return grant(spoiled, bundle_of("debian", WAIT, asks("2")), 2, 4096, 1024)


def above(installation: Installation, made: Bundle) -> int:
    """Return the MiB that are reserved of the GPU in the cgroup above the container's."""
    path = "/sys/fs/cgroup" + str(Path(made.config()["linux"]["cgroupsPath"]).parent)
    found = [one.soft // MIB for one in stub_limits.known(installation.node) if one.path == path]
    return found[0] if found else 0


def limits(live: Live, verb: str, *words: str) -> dict[str, Any]:
    """Return the report of `gpuhook limits VERB CONTAINER WORDS`."""
    done = live.gpuhook("limits", live.id, *words, "-o", "json", name=verb)
    assert done.rc == 0, done
    (one,) = json.loads(done.stdout)["containers"]
    return dict(one)


@ENGINES
def test_no_guarantee_is_left_behind(engine: str, mine: Installation, granted: Bundle) -> None:
    """By itself none is set there; the record has what was granted, and why it is not all."""
    with wrapped(granted, mine, engine, "v2") as live:
        assert held(mine, live.pid) == {uuid(mine, 2): (4096, 0)}
        (record,) = entry(mine)["memory"]
        assert (record["by"], record["soft"]) == ("driver", 0)
        assert record["granted"] == {"hard": 4096 * MIB, "soft": 1024 * MIB, "asked": False}
        (gpu,) = limits(live, "show")["gpus"]
        assert gpu["guarantee"] == record["guarantee"] != ""
        assert (gpu["agrees"], gpu["driver"]["request"]) == (True, 0)
        said = live.gpuhook("limits", live.id, name="show").stderr
        assert "the granted guarantee, 1Gi, is left out: the kernel's controller dmem" in said
        assert live.report("repair")["steps"] == []
    assert above(mine, granted) == 0


def test_the_guarantee_of_another_backend(other: Installation, granted: Bundle) -> None:
    """With the driver's own account it is set, and ends with the container."""
    with wrapped(granted, other, "runc", "v2") as live:
        assert held(other, live.pid) == {uuid(other, 2): (4096, 1024)}
        (record,) = entry(other)["memory"]
        assert "guarantee" not in record
        assert limits(live, "set", "--limit", "3Gi", "--request", "2Gi")["notes"] == []
    assert above(other, granted) == 0


def test_a_guarantee_that_is_always_set(mine: Installation, granted: Bundle) -> None:
    """It outlives the container, as the documentation says, unless it is cleared before."""
    mine.settings["limits"] = {"guarantee": "always"}
    mine.configure()
    before = above(mine, granted)
    for is_cleared in (True, False):
        with wrapped(granted, mine, "runc", "v2") as live:
            assert held(mine, live.pid) == {uuid(mine, 2): (4096, 1024)}
            assert above(mine, granted) == before + 1024
            if is_cleared:
                limits(live, "clear", "--all")
                assert above(mine, granted) == before
        assert above(mine, granted) == before + (0 if is_cleared else 1024)


def test_a_guarantee_that_is_never_set(other: Installation, granted: Bundle) -> None:
    """On the driver's own account, too."""
    other.settings["limits"] = {"guarantee": "never"}
    other.configure()
    with wrapped(granted, other, "runc", "v2") as live:
        assert held(other, live.pid) == {uuid(other, 2): (4096, 0)}
        assert entry(other)["memory"][0]["guarantee"] == "limits.guarantee: never"
        limits(live, "clear")
        assert held(other, live.pid) == {uuid(other, 2): (4096, 0)}


def test_a_guarantee_that_a_person_sets(mine: Installation, granted: Bundle) -> None:
    """It is done as it was said, with a warning; clear gives back what is reserved."""
    before = above(mine, granted)
    with wrapped(granted, mine, "runc", "v2") as live:
        (note,) = limits(live, "set", "--limit", "3Gi", "--request", "2Gi")["notes"]
        assert "remain reserved in the cgroups above" in note
        assert f"gpuhook limits clear {live.id}" in note
        assert held(mine, live.pid) == {uuid(mine, 2): (3072, 2048)}
        assert above(mine, granted) == before + 2048
        assert "guarantee" not in entry(mine)["memory"][0]
        assert limits(live, "set", "--limit", "4Gi", "--request", "0")["notes"] == []
        assert above(mine, granted) == before
        limits(live, "set", "--limit", "4Gi", "--request", "2Gi")
        notes = " ".join(limits(live, "clear")["notes"])
        assert "its granted guarantee of 1Gi is left out" in notes
        assert held(mine, live.pid) == {uuid(mine, 2): (4096, 0)}
        assert entry(mine)["memory"][0]["guarantee"]
    assert above(mine, granted) == before


def test_repair_keeps_it_left_out(mine: Installation, granted: Bundle) -> None:
    """Also of a limit that the driver did not take when the container was made."""
    stub_limits.fail_setting(mine.node, uuid(mine, 2), stub_limits.NO_PERMISSION)
    with wrapped(granted, mine, "runc", "v2") as live:
        assert entry(mine)["memory"][0]["by"] == ""
        stub_limits.mend(mine.node, uuid(mine, 2))
        stub_limits.use_dmem(mine.node, uuid(mine, 2), everywhere=True)
        assert live.report("repair")["steps"] != []
        assert held(mine, live.pid) == {uuid(mine, 2): (4096, 0)}
        (record,) = entry(mine)["memory"]
        assert record["by"] == "driver"
        assert record["guarantee"]


def test_a_scope_and_the_cgroup_in_it(mine: Installation, granted: Bundle) -> None:
    """Both are the container's own, and both are printed, as a process reads its own."""
    config = granted.config()
    config["linux"]["cgroupsPath"] += ".scope/container"
    granted.write(config)
    own = "/sys/fs/cgroup" + config["linux"]["cgroupsPath"]
    with wrapped(granted, mine, "runc", "v2") as live:
        (record,) = entry(mine)["memory"]
        assert record["cgroups"] == [own, str(Path(own).parent)]
        assert held(mine, live.pid) == {uuid(mine, 2): (4096, 0)}
        (gpu,) = limits(live, "show")["gpus"]
        assert (gpu["agrees"], gpu["cgroups"]) == (True, record["cgroups"])


@ENGINES
def test_a_cgroup_without_the_controller(
    engine: str, mine: Installation, bundle_of: Bundles
) -> None:
    """No runtime can enable what this kernel has not: the refusal says what is missing."""
    stub_limits.use_dmem(mine.node, uuid(mine, 2))
    made = bundle_of("debian", ["/bin/true"], [*asks("2"), f"{LIMIT}=1024"])
    result = mine.run(made, engine, "v2")
    assert result.rc != 0
    log = (mine.state / "hook.log").read_text(encoding="utf-8")
    assert "GH1251" in log
    assert "dmem is missing in cgroup.subtree_control of /sys/fs/cgroup" in log
