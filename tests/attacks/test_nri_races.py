# SPDX-License-Identifier: Apache-2.0
"""Races against containers that get their GPUs by NRI: the plugin's answer, and the hook in it.

A process on the host exchanges files of the root file system, or of a volume, with links to the
host while the plugin answers CreateContainer and the runtime starts the container.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.attacks.attacker import LINK, link_to, on_host
from tests.attacks.test_create_races import ATTACKS, STARTS
from tests.attacks.watched import watched
from tests.contract.bundles import Bundle, Bundles, rule
from tests.contract.installation import LIBRARIES, Installation
from tests.contract.nri_node import state_of
from tests.contract.roots import Roots
from tests.contract.runtimes import Result, lifecycle
from tests.contract.test_hostile import Canary
from tests.depth import cases
from tests.figures import Figures
from tests.nri.fake_runtime import FakePlugin, FakeRuntime, container, pod
from tests.nri.nri_plugin import NriPlugin, nri_plugin

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]


@pytest.fixture
def node(node8: Installation, tmp_path: Path) -> Iterator[Installation]:
    """Yield an installation whose state hooks find at its usual place."""
    made = node8.apart(tmp_path / "apart", nri={"namespaces": ["default"]})
    with state_of(made):
        yield made


@pytest.fixture
def connected(node: Installation, tmp_path: Path) -> Iterator[tuple[FakePlugin, NriPlugin]]:
    """Yield a plugin as containerd 1.7 sees it, and its process."""
    runtime = FakeRuntime(tmp_path / "nri/nri.sock")
    with nri_plugin(node, runtime.path, "--plugin-directory", str(tmp_path)) as plugin:
        link = runtime.accept()
        link.start("containerd", "1.7.24~ds1")
        yield link, plugin
    runtime.close()


def adjust(config: dict[str, Any], adjustment: Any) -> None:
    """Change a config.json as a runtime with NRI does."""
    variables = {one.key: one.value for one in adjustment.env}
    env = [one for one in config["process"]["env"] if one.partition("=")[0] not in variables]
    config["process"]["env"] = [*env, *(f"{key}={value}" for key, value in variables.items())]
    for mount in adjustment.mounts:
        made = {"destination": mount.destination, "type": mount.type, "source": mount.source}
        config["mounts"].append({**made, "options": list(mount.options)})
    linux = config["linux"]
    for one in adjustment.linux.devices:
        node = {"path": one.path, "type": one.type, "major": one.major, "minor": one.minor}
        linux.setdefault("devices", []).append(node)
        linux["resources"]["devices"].append(rule(one.major, one.minor))
    config["hooks"] = {
        "createContainer": [
            {"path": hook.path, "args": list(hook.args), "env": list(hook.env)}
            for hook in adjustment.hooks.create_container
        ]
    }


def start(made: Bundle, link: FakePlugin, engine: str) -> Result:
    """Ask the plugin, and start the container with its answer."""
    before, identity = made.config(), f"gpuhook-test-{uuid4().hex[:12]}"
    asking = container(["NVIDIA_VISIBLE_DEVICES=2"], identity=identity)
    for one in before["mounts"][2:]:
        asking.mounts.add(**one)
    config = made.config()
    adjust(config, link.create(pod(), asking).adjust)
    made.write(config)
    try:
        with lifecycle(made, [engine], engine, container_id=identity) as one:
            return one.run()
    finally:
        made.write(before)


def started(made: Bundle, link: FakePlugin, plugin: NriPlugin, engine: str, gpu: str) -> str:
    """Start containers again and again; return how these ended."""
    found: Counter[str] = Counter()
    for _ in range(STARTS):
        done = start(made, link, engine)
        assert "Traceback" not in done.stderr + done.log + plugin.text()
        if done.rc == 0:
            assert gpu in done.view.gpus()
        found["started" if done.rc == 0 else "refused"] += 1
    assert plugin.process.poll() is None
    return f"{STARTS} ({found['started']} started, {found['refused']} refused)"


@pytest.mark.parametrize("engine", cases(["runc", "crun"], ["runc"]))
@pytest.mark.parametrize("attack", ["leaves", "directories"])
def test_root_is_attacked(
    attack: str,
    engine: str,
    node: Installation,
    connected: tuple[FakePlugin, NriPlugin],
    canary: Canary,
    root_of: Roots,
    bundle_of: Bundles,
    figures: Figures,
) -> None:
    """Neither the plugin nor its hook opens or changes a file of the host."""
    root = root_of("debian")
    made = bundle_of(root, ["/probe"])
    swaps = ATTACKS[attack](root, canary.path)
    with watched(canary, engine), on_host(root, swaps) as swapper:
        ended = started(made, *connected, engine, node.device(2))
        changes = swapper.changes
    canary.assert_not_copied_to(root)
    what = f"starts by NRI in a root whose {attack} change, {engine}"
    figures.record(what, f"{ended}, {changes} changed files")


@pytest.mark.parametrize("engine", cases(["runc", "crun"], ["crun"]))
def test_volume_is_attacked(
    engine: str,
    node: Installation,
    connected: tuple[FakePlugin, NriPlugin],
    canary: Canary,
    tmp_path: Path,
    bundle_of: Bundles,
    figures: Figures,
) -> None:
    """A volume lies over gpuhook's directories: the hook makes no file in it."""
    volume = tmp_path / "volume"
    shutil.copytree(canary.path, volume / "own/copy")
    made = bundle_of("debian", ["/probe"])
    for path in ("/etc/ld.so.conf.d", f"{LIBRARIES}/nvidia", "/etc/OpenCL"):
        made.mount(volume / "own", path, "rbind", "rw", "rprivate")
    link_to(volume / "evil", f"{LINK}{canary.path}")
    with watched(canary, engine), on_host(volume, ["x:/own/copy/nvidia:/evil"]) as swapper:
        ended = started(made, *connected, engine, node.device(2))
        changes = swapper.changes
    assert [path.name for path in (volume / "own").rglob("*gpuhook*")] == []
    what = f"starts by NRI with an attacked volume, {engine}"
    figures.record(what, f"{ended}, {changes} changed files")
