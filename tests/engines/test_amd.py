# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs by the CDI spec of generate-cdi, in Docker, podman and containerd of each release."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.vendors.spec.spec_choices import SPEC_VERSIONS
from tests.contract.views import View, questions, view
from tests.engines import containerd as containerds
from tests.engines import docker_engine, podman_user
from tests.engines.engine_node import EngineNode
from tests.simulated import amd_tree
from tests.simulated.amd_tree import DRM_MAJOR, AmdTree

Covers = Callable[..., None]
TREE, SPEC, KFD = "/tmp/amd", "/var/run/cdi/amd.yaml", "/dev/kfd"
OLDEST, _, WITH_GROUPS = SPEC_VERSIONS
RENDER, VIDEO = 109, 44


@pytest.fixture(scope="module")
def tree(node: EngineNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmdTree]:
    """Yield AMD GPUs on the node; their spec is removed in the end."""
    made = amd_tree.build(tmp_path_factory.mktemp("amd"), "mi300x8", real_nodes=True)
    subprocess.run(["cp", "-a", made.root, node.path(TREE)], check=True)
    yield made
    node.path(SPEC).unlink(missing_ok=True)


def generate(node: EngineNode, version: str) -> None:
    words = ("--vendor", "amd", "--host-root", TREE, "--cdi-version", version)
    node.check("gpuhook", "generate-cdi", *words, "--output-file", SPEC)


def asked(tree: AmdTree) -> list[str]:
    """Return the arguments of the probe that tries each render node."""
    tries = [f"{DRM_MAJOR}:{one.render_minor}" for _, one in tree.node.devices()]
    return ["/probe", *questions(tries=tries)]


def assert_nodes(tree: AmdTree, seen: View, *indices: int) -> None:
    """Assert that a container has the nodes of these devices alone, and may open them alone."""
    own = [device for _, device in tree.node.devices() if device.index in indices]
    expected = {KFD, *(one.render_path for one in own), *(str(one.card_path) for one in own)}
    assert {path for path in seen.nodes if path.startswith("/dev/dri/") or path == KFD} == expected
    assert all(seen.nodes[path].allowed for path in expected)
    minors = {one.render_minor for one in own}
    for numbers, result in seen.tries.items():
        is_own = int(numbers.partition(":")[2]) in minors
        assert (result not in ("EPERM", "EACCES")) == is_own, (numbers, result)


@pytest.mark.parametrize("version", SPEC_VERSIONS)
def test_podman(
    node: EngineNode, podman_image: str, tree: AmdTree, version: str, covers: Covers
) -> None:
    """podman 4.3 reads CDI 0.5 alone; podman 5 reads groups, too."""
    podman = podman_user.PodmanUser(node, is_rootless=False, runtime="runc")
    generate(node, version)
    words = ["podman", "--runtime", "runc", "run", "--rm", "--network=none", "--cap-add=MKNOD"]
    done = podman.run(*words, "--device=amd.com/gpu=3", podman_image, *asked(tree))
    if podman.version < (5,) and version != OLDEST:
        assert "unresolvable CDI devices" in done.stderr
        return
    seen = view(done.stdout)
    assert_nodes(tree, seen, 3)
    has_groups = version == WITH_GROUPS
    assert ({RENDER, VIDEO} <= set(seen.groups)) == has_groups
    user = [*words, "--user=1000:1000", "--device=amd.com/gpu=3", podman_image, *asked(tree)]
    seen = view(podman.run(*user).stdout)
    assert all(seen.nodes[path].open == "ENXIO" for path in (KFD, "/dev/dri/renderD152")), seen
    covers("podman", node.version("podman", "--version"), "--device amd.com/gpu=")


@pytest.mark.releases("trixie", "forky")
@pytest.mark.parametrize("version", SPEC_VERSIONS)
def test_docker(
    node: EngineNode, docker_image: str, tree: AmdTree, version: str, covers: Covers
) -> None:
    """`docker run --device`, by the index and by `all`; Docker ignores the groups of CDI 0.7."""
    generate(node, version)
    text = '{"features": {"cdi": true}}'
    with docker_engine.daemon_json(node, text), docker_engine.dockerd(node):
        for name, indices in (("3", (3,)), ("all", range(8))):
            words = ["docker", "run", "--rm", "--network=none", f"--device=amd.com/gpu={name}"]
            seen = view(node.check(*words, docker_image, *asked(tree)))
            assert_nodes(tree, seen, *indices)
            assert seen.groups == (0,)
    covers("docker", node.version("docker", "--version"), "--device amd.com/gpu=")


@pytest.mark.releases("trixie", "forky")
@pytest.mark.parametrize("version", SPEC_VERSIONS)
def test_containerd(node: EngineNode, tree: AmdTree, version: str, covers: Covers) -> None:
    """A CDI name in the CRI's field, as the kubelet gives it."""
    generate(node, version)
    given = Allocation(cdi_devices=("amd.com/gpu=3",))
    with (
        containerds.configured(node),
        containerds.containerd(node) as server,
        server.pod("amd", "") as pod,
    ):
        seen = server.view(pod, given, *asked(tree)[1:])
    assert_nodes(tree, seen, 3)
    assert ({RENDER, VIDEO} <= set(seen.groups)) == (version == WITH_GROUPS)
    covers("containerd", containerds.version(node), "CRI field, amd.com/gpu")
