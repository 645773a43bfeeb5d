# SPDX-License-Identifier: Apache-2.0
"""Containers that podman gives AMD GPUs by the CDI spec of generate-cdi and refresh."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from tests.contract import engines
from tests.contract.integrations import MKNOD
from tests.contract.roots import Roots
from tests.contract.views import View, questions, view
from tests.simulated import amd_tree
from tests.simulated.amd_tree import DRM_MAJOR, AmdTree

pytestmark = pytest.mark.contract
KFD = "/dev/kfd"
# podman 4.3 reads no newer version, other podmans do.
OLD = ("--cdi-version", "0.5.0")


@pytest.fixture
def tree(tmp_path: Path) -> AmdTree:
    return amd_tree.build(tmp_path / "node", "mi300x-cpx", real_nodes=True)


def generate(tree: AmdTree, place: Path, *options: str) -> Path:
    """Write the node's spec to a directory of specs, and return that directory."""
    specs = place / "cdi"
    words = ["generate-cdi", "--vendor", "amd", "--host-root", str(tree.root), *options]
    words += ["--output-file", str(specs / "amd.yaml")]
    done = CliRunner().invoke(
        main, words, prog_name="gpuhook", env={"GPUHOOK_STATE_DIR": str(place / "state")}
    )
    assert done.exit_code == 0, done.stderr
    return specs


def seen(tree: AmdTree, place: Path, root: Path, *options: str) -> View:
    """Return the view of a container of podman with these options."""
    tries = [f"{DRM_MAJOR}:{one.render_minor}" for _, one in list(tree.node.devices())[:9]]
    done = engines.podman(
        place / "podman",
        root,
        ["/probe", *questions(tries=tries)],
        [*MKNOD, *options],
        cdi=place / "cdi",
    )
    assert done.rc == 0, done.stderr
    return view(done.stdout)


def drm(found: View) -> set[str]:
    return {path for path in found.nodes if path.startswith("/dev/dri/") or path == KFD}


@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        ("0", [0]),
        ("amdgpu_xcp_2", [3]),
        ("0:5", [5]),
        ("0000:05:00.0", [0]),
        ("GPU-08da87c12ef81b5d", range(8)),
    ],
)
def test_container_has_exactly_its_nodes(
    tree: AmdTree, tmp_path: Path, root_of: Roots, name: str, partitions: list[int]
) -> None:
    """The nodes have the host's present numbers, and the cgroup denies all others to KFD."""
    generate(tree, tmp_path, *OLD)
    found = seen(tree, tmp_path, root_of("debian"), f"--device=amd.com/gpu={name}")
    devices = list(tree.node.gpus[0].devices)
    own = [devices[index] for index in partitions]
    expected = {KFD, *(one.render_path for one in own), *(str(one.card_path) for one in own)}
    assert drm(found) == expected
    assert found.values("AMD_VISIBLE_DEVICES") == ["void"]
    kfd = (tree.root / KFD[1:]).stat().st_rdev
    assert (found.nodes[KFD].major, found.nodes[KFD].minor) == (os.major(kfd), os.minor(kfd))
    minors = {one.render_minor for one in own}
    for numbers, result in found.tries.items():
        is_own = int(numbers.partition(":")[2]) in minors
        assert (result not in ("EPERM", "EACCES")) == is_own, (numbers, result)


def test_user_of_the_container_may_open_its_nodes(
    tree: AmdTree, tmp_path: Path, root_of: Roots
) -> None:
    """A user without a group of the host opens the nodes that the host restricts to its groups."""
    options = (*OLD, "--driver-capabilities", "compute")
    generate(tree, tmp_path, *options)
    (tree.root / "dev/dri/renderD128").chmod(0o660)
    found = seen(tree, tmp_path, root_of("debian"), "--device=amd.com/gpu=0", "--user=1000:1000")
    assert (found.uid, drm(found)) == (1000, {KFD, "/dev/dri/renderD128"})
    for path in drm(found):
        assert found.nodes[path].allowed, found.nodes[path]


def test_newer_major_of_kfd(tree: AmdTree, tmp_path: Path, root_of: Roots) -> None:
    """A spec of an earlier boot gives the present /dev/kfd: it has no numbers."""
    generate(tree, tmp_path, *OLD)
    path = tree.root / KFD[1:]
    path.unlink()
    os.mknod(path, 0o20660, os.makedev(509, 0))
    found = seen(tree, tmp_path, root_of("debian"), "--device=amd.com/gpu=1")
    assert found.nodes[KFD].major == 509


def test_version_that_podman_does_not_read(tree: AmdTree, tmp_path: Path, root_of: Roots) -> None:
    """podman 4.3 skips a spec of CDI 0.6, which AMD's tool writes too; validate warns of that."""
    specs = generate(tree, tmp_path)
    done = engines.podman(
        tmp_path / "podman", root_of("debian"), options=["--device=amd.com/gpu=0"], cdi=specs
    )
    assert "unresolvable CDI devices amd.com/gpu=0" in done.stderr
    checked = CliRunner().invoke(
        main, ["cdi", "validate", "--host", str(specs / "amd.yaml")], prog_name="gpuhook"
    )
    assert checked.exit_code == 0
    assert "podman 4.3" in checked.stderr
