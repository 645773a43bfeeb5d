# SPDX-License-Identifier: Apache-2.0
"""Races: a process that shares a root file system or a volume attacks while containers start.

Most rounds call the work of the wrapper and of the createContainer hook in this process; others
start containers with the launchers.
"""

from __future__ import annotations

import os
import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.rootfs.hook_args import Jobs
from gpuhook.entry.hooks import apply_hook
from gpuhook.entry.hooks.hook_root import HookRoot
from gpuhook.entry.hooks.oci_state import HookState
from gpuhook.errors import GpuhookError
from gpuhook.host.hot.engine_log import EngineLog
from gpuhook.vendors.hot import rootfs_jobs
from tests.attacks.attacker import LINK, link_to, on_host
from tests.attacks.test_live_races import directories, growth, leaves
from tests.attacks.watched import untouched, watched
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import LIBRARIES, Installation, asks
from tests.contract.live import prestart
from tests.contract.roots import Roots
from tests.contract.runtimes import Result, run
from tests.contract.test_hostile import Canary, with_tmpfs_over_loader_configuration
from tests.depth import depth
from tests.figures import Figures

ROUNDS = depth(20, 500, 10_000)
STARTS = depth(2, 10, 200)
ATTACKS = {"leaves": leaves, "directories": directories, "growth": growth}


def jobs_of(installation: Installation) -> Jobs:
    """Return the jobs of the hook in this node's CDI spec."""
    document = yaml.safe_load(installation.spec.read_text(encoding="utf-8"))
    (jobs,) = hook_args.own_jobs(document["containerEdits"])
    return jobs


def by_wrapper(made: Bundle, jobs: Jobs, log: EngineLog) -> None:
    """Do what the wrapper does in a root file system."""
    assert log.container == ""
    work = rootfs_jobs.RootfsWork()
    rootfs_jobs.do(str(made.path), made.config(), {}, [jobs], engine=[], work=work)


def by_hook(made: Bundle, jobs: Jobs, log: EngineLog) -> None:
    """Do what the createContainer hook does in a root file system."""
    state = HookState({"id": "attacked", "bundle": str(made.path)})
    with HookRoot(state) as root:
        apply_hook.file_system(root, jobs, state.spec, log)


def ended(rounds: int, work: Callable[[], None]) -> Counter[str]:
    """Do the work again and again; return how often it was done or refused."""
    found: Counter[str] = Counter()
    for _ in range(rounds):
        try:
            work()
        except (GpuhookError, OSError):
            found["refused"] += 1
        except Exception:
            pytest.fail(traceback.format_exc())
        else:
            found["done"] += 1
    return found


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("attack", list(ATTACKS))
@pytest.mark.parametrize("by", ["wrapper", "hook"])
def test_root_is_attacked_by_a_process_on_the_host(
    by: str,
    attack: str,
    node8: Installation,
    canary: Canary,
    tmp_path: Path,
    root_of: Roots,
    bundle_of: Bundles,
    figures: Figures,
) -> None:
    """Neither the wrapper nor the hook leaves the root, and neither keeps a descriptor."""
    root, log = root_of("debian"), EngineLog("test", str(tmp_path / "log"))
    made, jobs = bundle_of(root, ["/probe"], asks("0")), jobs_of(node8)
    work = by_wrapper if by == "wrapper" else by_hook
    swaps = ATTACKS[attack](root, canary.path)
    work(made, jobs, log)  # imports what it needs
    before = len(os.listdir("/proc/self/fd"))
    with untouched(canary), on_host(root, swaps) as swapper:
        found = ended(ROUNDS, lambda: work(made, jobs, log))
        changes = swapper.changes
    assert len(os.listdir("/proc/self/fd")) == before
    canary.assert_not_copied_to(root)
    what = f"races of a root's {attack} with the {by}"
    ended_as = f"{found['done']} done, {found['refused']} refused"
    figures.record(f"{what}: rounds", f"{ROUNDS} ({ended_as}), {changes} changed files")


def started_by(way: str, installation: Installation, made: Bundle, engine: str) -> Result:
    """Start a container by the wrapper, by the wrapper's hook, or by the prestart hook."""
    if way == "prestart":
        return run(made, [engine], engine)
    return installation.run_with_state(made, engine)


def prepared(way: str, installation: Installation, made: Bundle) -> Any:
    """Change a bundle so that it gets its GPU in this way."""
    if way == "prestart":
        made.write({**made.config(), "hooks": prestart(installation)})
    elif way == "hook":
        with_tmpfs_over_loader_configuration(made)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("engine", ["runc", "crun"])
@pytest.mark.parametrize("way", ["wrapper", "hook", "prestart"])
@pytest.mark.parametrize("attack", ["leaves", "directories"])
def test_containers_start_in_an_attacked_root(
    attack: str,
    way: str,
    engine: str,
    node8: Installation,
    canary: Canary,
    root_of: Roots,
    bundle_of: Bundles,
    figures: Figures,
) -> None:
    """The same with the launchers and a real runtime: a container starts, or an error says why."""
    root = root_of("debian")
    made = bundle_of(root, ["/probe"], asks("2"))
    prepared(way, node8, made)
    swaps = ATTACKS[attack](root, canary.path)
    found: Counter[str] = Counter()
    with watched(canary, engine), on_host(root, swaps) as swapper:
        for _ in range(STARTS):
            done = started_by(way, node8, made, engine)
            assert "Traceback" not in done.stderr + done.log
            found["started" if done.rc == 0 else "refused"] += 1
        changes = swapper.changes
    canary.assert_not_copied_to(root)
    what = f"starts in a root whose {attack} change, by {way}, {engine}"
    how = f"{found['started']} started, {found['refused']} refused"
    figures.record(what, f"{STARTS} ({how}), {changes} changed files")


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("engine", ["runc", "crun"])
def test_container_starts_with_an_attacked_volume(
    engine: str,
    node8: Installation,
    canary: Canary,
    tmp_path: Path,
    bundle_of: Bundles,
    figures: Figures,
) -> None:
    """Another container changes a volume at gpuhook's directories: the volume gets no new file."""
    volume = tmp_path / "volume"
    (volume / "own").mkdir(parents=True)
    shutil.copytree(canary.path, volume / "own/copy")
    link_to(volume / "evil", f"{LINK}{canary.path}")
    made = bundle_of("debian", ["/probe"], asks("2"))
    for path in ("/etc/ld.so.conf.d", f"{LIBRARIES}/nvidia", "/etc/OpenCL"):
        made.mount(volume / "own", path, "rbind", "rw", "rprivate")
    names = ["own/copy/nvidia", "own/copy/ld.so.conf.d"]
    for number in range(len(names)):
        link_to(volume / f"evil{number}", f"/proc/1/root{canary.path}")
    swaps = [f"x:/{name}:/evil{number}" for number, name in enumerate(names)]
    with watched(canary, engine), on_host(volume, swaps) as swapper:
        for _ in range(STARTS):
            done = node8.run_with_state(made, engine)
            assert "Traceback" not in done.stderr + done.log
        changes = swapper.changes
    found = [path.name for path in (volume / "own").rglob("*gpuhook*")]
    assert found == []
    figures.record(
        f"starts with an attacked volume, {engine}", f"{STARTS}, {changes} changed files"
    )
