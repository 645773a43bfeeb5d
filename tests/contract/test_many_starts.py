# SPDX-License-Identifier: Apache-2.0
"""Thousands of containers in a row, from create to delete: nothing of them remains on the node."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuhook.kernel.libc import LIBC
from tests import growth
from tests.contract import roots
from tests.contract.bundles import CGROUP, Bundle
from tests.contract.installation import Installation, asks
from tests.contract.limiting import LIMIT
from tests.contract.live import sleeping
from tests.contract.runtimes import CGROUPS, Container, container
from tests.depth import depth
from tests.figures import Figures
from tests.simulated import stub_limits

# The ledger removes entries of exited containers at the latest when it has this number.
LEDGER = 512 + 64
RECORDS, RECORD = 32, 256 << 10  # of the loader's files, and bytes of one
_PR_SET_CHILD_SUBREAPER = 36
# Of other processes of this machine, which load programs and start containers too.
OTHERS = 64


@dataclass(frozen=True)
class Remains:
    """What is left of containers: numbers by name, of the node and of the runtime."""

    counts: dict[str, int]
    root: dict[str, tuple[object, ...]]


@pytest.fixture
def parent() -> Iterator[None]:
    """Make this process the parent of orphans: containers' processes, which it waits for."""
    LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("engine", "cgroup", "limit", "rounds"),
    [
        ("runc", "host", "", depth(2, 20, 7000)),
        ("runc", "v2", "2048", depth(2, 10, 2000)),
        ("crun", "v2", "", depth(2, 10, 1000)),
    ],
    ids=["runc", "runc-limit", "crun"],
)
@pytest.mark.usefixtures("parent")
def test_starts(
    engine: str,
    cgroup: str,
    limit: str,
    rounds: int,
    mine: Installation,
    tmp_path: Path,
    figures: Figures,
    machine: Callable[[], None],
) -> None:
    """No file, mount, cgroup, program or process grows in number over many containers."""
    env = asks("2,3") + ([f"{LIMIT}={limit}"] if limit else [])
    bundle = sleeping(tmp_path, "debian", env, ["/bin/true"])
    with placed(bundle) as group:
        own = mine.on(engine, TMPDIR=str(tmp_path / "tmp"))
        made = container(bundle, [mine.runtime], engine, cgroup, own)
        config = bundle.file.read_text(encoding="utf-8")
        _live(made, config, f"{group}-first")
        before = _remains(mine, bundle, group)
        for number in range(rounds):
            _live(made, config, f"{group}-{number}")
            machine()
        after = _remains(mine, bundle, group)
    name = f"{engine}{', memory limit' if limit else ''}"
    figures.record(f"containers started in a row, {name}", str(rounds))
    for what, count in after.counts.items():
        most = before.counts[what] + _spare(what, mine, rounds)
        figures.record(f"{what}, {name}", f"{before.counts[what]} to {count}", f"{most}")
        assert count <= most, (what, before.counts, after.counts)
    assert after.root == before.root
    if limit:
        assert stub_limits.recorded(mine.node) == []


@contextmanager
def placed(bundle: Bundle) -> Iterator[str]:
    """Put the bundle's containers into their own cgroup, whose name this yields."""
    group = f"starts-{os.getpid()}"
    config = bundle.config()
    config["linux"]["cgroupsPath"] = f"/{CGROUP}/{group}/one"
    bundle.write(config)
    (bundle.path.parent / "tmp").mkdir(exist_ok=True)
    try:
        yield group
    finally:
        for hierarchy in (CGROUPS, *CGROUPS.iterdir()):
            with suppress(OSError):
                (hierarchy / CGROUP / group).rmdir()


def _live(made: Container, config: str, identity: str) -> None:
    """Create, start and delete a container as an engine does, which writes each config.json."""
    one = replace(made, id=identity)
    (one.bundle / "config.json").write_text(config, encoding="utf-8")
    pidfile = one.bundle / "pid"
    try:
        created = one.create("--pid-file", str(pidfile))
        assert created.rc == 0, created
        pid = int(pidfile.read_text(encoding="utf-8"))
        started = one.call("start")
        assert started.rc == 0, started
        assert os.waitpid(pid, 0) == (pid, 0)
        deleted = one.call("delete")
        assert deleted.rc == 0, deleted
    except BaseException:
        one.delete()
        raise


def _remains(installation: Installation, bundle: Bundle, group: str) -> Remains:
    state = growth.Directory(installation.state)
    logs = (bundle.path / name for name in ("log", "stdout", "stderr"))
    return Remains(
        {
            "files of gpuhook in /run": state.files,
            "bytes of gpuhook in /run": state.bytes,
            "files in /tmp": growth.Directory(bundle.path.parent / "tmp").files,
            "files of the bundle and the runtime": growth.Directory(bundle.path).files,
            "bytes of logs": sum(path.stat().st_size for path in logs if path.exists()),
            "mounts": growth.mounts(),
            "cgroups": growth.cgroups(f"{CGROUP}/{group}"),
            "BPF programs": growth.programs(),
            "zombies": growth.zombies([1, os.getpid()]),
        },
        roots.listing(bundle.root),
    )


def _spare(what: str, installation: Installation, rounds: int) -> int:
    """Return how much a number may grow: the ledger is swept above a number of entries."""
    entries = min(rounds, LEDGER)
    if what == "files of gpuhook in /run":
        return entries + RECORDS
    if what == "bytes of gpuhook in /run":
        largest = max(path.stat().st_size for path in (installation.state / "containers").iterdir())
        return entries * (largest + 8) + RECORDS * RECORD
    return OTHERS if what in ("BPF programs", "zombies") else 0
