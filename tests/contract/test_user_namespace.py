# SPDX-License-Identifier: Apache-2.0
"""Containers with a user namespace: nodes are bind mounts, new files belong to its root."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import CONTROL, DRIVER_LIBRARIES, LIBRARIES, Installation, asks
from tests.contract.runtimes import ENGINES
from tests.contract.views import questions

MAPPED = 100000
MAPPING = [{"containerID": 0, "hostID": MAPPED, "size": 65536}]
NAMESPACES = [{"type": name} for name in ("pid", "ipc", "uts", "mount", "network", "user")]
# Only the host's root may mount these.
NOT_OURS = ("/sys", "/sys/fs/cgroup", "/dev/mqueue")


def let_through(path: Path) -> None:
    """Let the mapped user enter the directories above `path`, which pytest makes private."""
    for directory in path.parents:
        if directory.stat().st_mode & 0o777 == 0o700:
            directory.chmod(0o711)


def mapped(bundle: Bundle) -> Bundle:
    """Put a bundle into a user namespace whose root owns the root file system."""
    subprocess.run(["chown", "-R", f"{MAPPED}:{MAPPED}", str(bundle.root)], check=True)
    let_through(bundle.root / "any")
    config = bundle.config()
    config["mounts"] = [m for m in config["mounts"] if m["destination"] not in NOT_OURS]
    config["linux"].update(namespaces=NAMESPACES, uidMappings=MAPPING, gidMappings=MAPPING)
    bundle.write(config)
    return bundle


@ENGINES
def test_gpu_in_a_user_namespace(engine: str, node8: Installation, bundle_of: Bundles) -> None:
    """The container's root is another user of the host: the links belong to that user."""
    let_through(Path(node8.node.driver_root) / "any")
    link = f"{LIBRARIES}/libcuda.so.1"
    command = [
        "/probe",
        *questions(link, "/etc/ld.so.cache", runs=[["/dlprobe", *DRIVER_LIBRARIES]]),
    ]
    bundle = mapped(bundle_of("debian", command, asks("2")))
    view = node8.run(bundle, engine).view
    assert set(view.gpus()) == {*CONTROL, node8.device(2)}
    assert all(node.allowed for node in view.gpus().values())
    assert all("real" in found for found in view.runs[0].found().values())
    assert {(entry.kind, entry.uid) for entry in view.paths.values()} == {("link", 0), ("file", 0)}
