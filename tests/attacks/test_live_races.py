# SPDX-License-Identifier: Apache-2.0
"""Races: a container changes its files without end while commands work on it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.attacker import LINK, Swapper, arguments, install, link_to, run_rounds
from tests.attacks.watched import untouched
from tests.contract.bundles import Bundle
from tests.contract.installation import LIBRARIES, Installation
from tests.contract.live import Live, sleeping, started
from tests.contract.test_hostile import Canary
from tests.depth import depth
from tests.figures import Figures
from tests.waiting import eventually

VERBS = ["attach", "inspect", "repair", "detach"]
ROUNDS = depth(4, 400, 10_000)
COMMANDS = depth(1, 10, 100)


def leaves(root: Path, host: Path) -> list[str]:
    """Make hostile files beside the files that gpuhook reads and writes; return the exchanges."""
    pairs = {
        "/etc/ld.so.cache": f"{LINK}{host}/ld.so.cache",
        "/etc/ld.so.conf": f"{LINK}{host}/ld.so.conf",
        "/etc/ld.so.conf.d": f"{LINK}{host}/ld.so.conf.d",
        "/etc/OpenCL": f"{LINK}{host}/nvidia",
        f"{LIBRARIES}/libcuda.so.1": f"/proc/1/root{host}/libcuda.so.1",
        "/usr/bin/nvidia-smi": f"{LINK}{host}/nvidia-smi",
        "/lib/firmware": "/proc/self/root",
    }
    words = []
    for path, target in pairs.items():
        own = root / path[1:]
        if not own.exists() and path in ("/etc/OpenCL", "/lib/firmware"):
            own.mkdir(parents=True)
        elif not own.exists():
            own.write_bytes(b"the image's")
        link_to(root / f"{path[1:]}.evil", target)
        words.append(f"x:{path}:{path}.evil")
    return words


def directories(root: Path, host: Path) -> list[str]:
    """Make links to directories of the host; return the exchanges with the image's directories."""
    pairs = {
        "/etc": f"{LINK}{host}",
        LIBRARIES: f"{LINK}{host}/x86_64-linux-gnu",
        "/usr/bin": f"/proc/1/root/../{LINK}{host}",
        "/usr/lib": f"{LINK}{host}",
    }
    words = []
    for number, (path, target) in enumerate(pairs.items()):
        link_to(root / f"evil{number}", target)
        words.append(f"x:{path}:/evil{number}")
    return words


def nodes(root: Path, host: Path) -> list[str]:
    """Return operations that replace device nodes by other files."""
    assert root.is_dir()
    names = ["nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]
    return [f"n:/dev/{name}:{LINK}{host}/shadow" for name in names]


def growth(root: Path, host: Path) -> list[str]:
    """Return operations on files and directories that grow while they are read."""
    assert host.is_dir()
    (root / "pipe").mkdir()
    mkfifo = f"n:/etc/ld.so.cache:{LINK}{host}/ld.so.cache"
    grows = ["g:/etc/ld.so.conf:", "g:/etc/ld.so.conf.d/00-gpuhook.conf:"]
    return [mkfifo, *grows, "d:/etc/ld.so.conf.d:", f"d:{LIBRARIES}:", "d:/dev:"]


def mounts(root: Path, host: Path) -> list[str]:
    """Return operations that mount a volume of the host, or a tmpfs, over gpuhook's directories."""
    assert host.is_dir()
    (root / "vol").mkdir()
    volumes = [f"m:/vol:{path}" for path in ("/etc", LIBRARIES, "/usr/bin", "/etc/ld.so.conf.d")]
    return [word for volume in volumes for word in (volume, "t:/dev:", volume, "t:/usr/lib:")]


ATTACKS = {
    "leaves": [leaves],
    "directories": [directories],
    "nodes": [nodes, leaves],
    "growth": [growth, leaves],
    "mounts": [mounts, leaves],
}


def attacked(place: Path, name: str, host: Path) -> tuple[Bundle, Swapper]:
    """Return the bundle of a container whose first process attacks."""
    made = sleeping(place)
    groups = [attack(made.root, host) for attack in ATTACKS[name]]
    install(made.root)
    config = made.config()
    config["process"]["args"] = arguments(*groups)
    made.write(config)
    if name == "mounts":
        with_mounts(made, place)
    return made, Swapper(made.root, len(groups))


def with_mounts(made: Bundle, place: Path) -> None:
    """Let the container mount; it has a directory of the host as a volume."""
    config = made.config()
    sets = config["process"]["capabilities"]
    for name in sets:
        sets[name] = [*sets[name], "CAP_SYS_ADMIN"]
    made.write(config)
    (place / "vol").mkdir()
    (place / "vol/mine").write_text("as it was", encoding="utf-8")
    made.mount(place / "vol", "/vol", "rbind", "rw", "rprivate")


def assert_volume_unchanged(place: Path) -> None:
    """Assert that the volume, if there is one, has nothing new."""
    assert sorted(path.name for path in place.glob("vol/*")) in ([], ["mine"])


def assert_foreseen(result: dict[str, Any]) -> str:
    """Assert that no round ended by an unforeseen error or left a descriptor; return a summary."""
    assert result["unforeseen"] == [], "\n".join(result["unforeseen"])
    before, after = result["open"]
    assert after <= before, result
    total: Counter[str] = Counter()
    for verb, ended in result["ended"].items():
        total[f"{verb} done"] += ended.get("done", 0)
        total["refused"] += sum(ended.values()) - ended.get("done", 0)
    return ", ".join(f"{count} {what}" for what, count in total.items())


def assert_command(live: Live, verb: str) -> None:
    """Call a command, which succeeds or prints a known error."""
    words = ["--device", "2"] if verb in ("attach", "detach") else []
    done = live.gpuhook(verb, *words, *["--force"] * (verb == "detach"))
    assert done.rc in (0, 1), done
    assert "Traceback" not in done.stderr, done
    assert done.rc == 0 or "GH" in done.stderr or "left over" in done.stderr, done


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("attack", list(ATTACKS))
def test_container_attacks_commands(
    attack: str, node8: Installation, canary: Canary, tmp_path: Path, figures: Figures
) -> None:
    """No exchange of files leads a command out of the container, also after many rounds."""
    made, swapper = attacked(tmp_path / "own", attack, canary.path)
    with started(made, node8) as live, untouched(canary):
        eventually(swapper.is_busy)
        result = run_rounds(live, ROUNDS, VERBS)
        swapper.stop()
        changes = swapper.changes
        live.gpuhook("detach", "--device", "2", "--force")
    canary.assert_not_copied_to(made.root)
    assert_volume_unchanged(tmp_path / "own")
    ended = assert_foreseen(result)
    figures.record(f"races of a container's {attack}: rounds", f"{ROUNDS} ({ended})")
    figures.record(f"races of a container's {attack}: changed files", f"{changes}")


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("pair", [("runc", "host"), ("crun", "v2")])
@pytest.mark.parametrize("attack", list(ATTACKS))
def test_container_attacks_the_program(
    attack: str,
    pair: tuple[str, str],
    node8: Installation,
    canary: Canary,
    tmp_path: Path,
    figures: Figures,
) -> None:
    """The same with `gpuhook`, its worker process, and `explain`, on both runtimes."""
    made, swapper = attacked(tmp_path / "own", attack, canary.path)
    with started(made, node8, *pair) as live, untouched(canary):
        eventually(swapper.is_busy)
        for _ in range(COMMANDS):
            for verb in (*VERBS, "explain"):
                assert_command(live, verb)
        swapper.stop()
        changes = swapper.changes
    canary.assert_not_copied_to(made.root)
    assert_volume_unchanged(tmp_path / "own")
    what = f"races of a container's {attack} with the commands, {pair[0]}"
    figures.record(what, f"{COMMANDS * (len(VERBS) + 1)} commands, {changes} changed files")
