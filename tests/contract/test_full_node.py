# SPDX-License-Identifier: Apache-2.0
"""A node with everything: whole GPUs and MIG instances, graphics, IMEX channels, the management.

What generate-cdi says of it arrives in real containers, and nothing besides, by each route: the
wrapper, the prestart hook, and an engine that applies the spec itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.contract.bundles import CAPABILITIES, Bundles
from tests.contract.installation import ALL_CONTROL, Installation, asks, installation
from tests.contract.integrations import Integrations
from tests.contract.roots import Roots
from tests.contract.runtimes import Result
from tests.contract.test_mig import CAP, NODES, uuid
from tests.contract.views import View, questions
from tests.simulated import extra_nodes
from tests.simulated.graphics import with_32_bit, with_drm
from tests.simulated.node import make_node

Through = Callable[..., Result]

ROUTES = ("wrapper", "prestart", "cdi")
WHOLE = "/dev/nvidia1"  # of the GPU 2, the one that is not in MIG mode
PARENTS = {"/dev/nvidia0", "/dev/nvidia2"}
PRIVILEGED = {"capabilities": {"bounding": [*CAPABILITIES, "CAP_SYS_ADMIN"]}}
CHANNEL = "/dev/nvidia-caps-imex-channels/channel"
MANAGEMENT = "management.nvidia.com/gpu"
# Of the GPU 2, by the kernel's names and by its place.
GRAPHICS = {
    "/dev/dri/card3",
    "/dev/dri/renderD130",
    "/dev/dri/by-path/pci-0000:47:00.0-card",
    "/dev/dri/by-path/pci-0000:47:00.0-render",
}
# Requests for the instance 0:1 by the names that each route takes.
FORMS = {
    "wrapper": ["0:1", "{uuid}", "MIG-{gpu}/8/0", "nvidia.com/gpu={uuid}"],
    "prestart": ["0:1", "{uuid}", "MIG-{gpu}/8/0"],
    "cdi": ["0:1", "{uuid}"],
}


@pytest.fixture(scope="module")
def full(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Give gpuhook on that node, with specs of its GPUs, its management and its channels."""
    place = tmp_path_factory.mktemp("full")
    node = make_node(place / "node", with_32_bit(with_drm(dump_file.load("a100-mig"))))
    extra_nodes.add(node.host_root)
    made = installation(place, node, node8.bindir)
    made.generate("--mode", "management", output=made.specs / "management.yaml")
    made.generate("--mode", "imex", output=made.specs / "imex.yaml")
    return made


@pytest.fixture
def through(tmp_path: Path, root_of: Roots, bundle_of: Bundles) -> Through:
    """Return a function: a container that requests devices of a node, by a route."""

    places = (tmp_path / f"podman{number}" for number in range(9))

    def ran(
        route: str, own: Installation, *names: str, env: Iterable[str] = (), **oci: object
    ) -> Result:
        root = root_of("debian")
        args = ["/probe", *probe(own)]
        if route == "cdi":
            kinds = [name if "=" in name else f"nvidia.com/gpu={name}" for name in names]
            words = [f"--device={name}" for name in kinds]
            words += [f"--env={entry}" for entry in env]
            integrations = Integrations(own, next(places))
            return integrations.by_podman(root, args, words, runtime="runc")
        made = bundle_of(root, args, [*asks(",".join(names), "all"), *env], **oci)
        return own.run(made) if route == "wrapper" else own.run_hooked(made)

    return ran


def numbers(own: Installation) -> dict[str, str]:
    """Return "major:minor" of every node below the node's /dev, by its path."""
    found = {}
    root = Path(own.node.dev_root)
    for path in sorted((root / "dev").rglob("*")):
        if path.is_char_device():
            device = path.stat().st_rdev
            found["/" + str(path.relative_to(root))] = f"{os.major(device)}:{os.minor(device)}"
    return found


def probe(own: Installation) -> list[str]:
    """Return the questions: may each node of the host be opened?"""
    return questions("/dev/dri", tries=sorted(set(numbers(own).values())))


def assert_nodes(view: View, own: Installation, expected: Iterable[str]) -> None:
    """Assert that a container has these nodes of the host, may open them, and no others."""
    known = numbers(own)
    wanted = set(expected)
    held = {path: node for path, node in view.nodes.items() if path in known}
    assert set(held) == wanted
    for path, node in held.items():
        assert f"{node.major}:{node.minor}" == known[path], path
        assert node.allowed, path
    may = {number for number, told in view.tries.items() if told != "EPERM"}
    assert may == {known[path] for path in wanted}


def caps(*names: str) -> set[str]:
    """Return the capability nodes of instances."""
    return {f"{CAP}{minor}" for name in names for minor in NODES[name][1:]}


def every_instance(own: Installation) -> set[str]:
    """Return the capability nodes of all instances: those of the administration are none."""
    return {path for path in numbers(own) if path.startswith(CAP)} - {f"{CAP}1", f"{CAP}2"}


@pytest.mark.parametrize("route", ROUTES)
def test_all_of_a_mixed_node(route: str, full: Installation, through: Through) -> None:
    """Whole GPUs with their graphics, and every instance; no channel, fabric or administration."""
    view = through(route, full, "all").view
    instances = every_instance(full)
    assert len(instances) == 2 * 11 - 1  # two instances share their GPU instance
    assert_nodes(view, full, {*ALL_CONTROL, WHOLE, *PARENTS, *GRAPHICS, *instances})


@pytest.mark.parametrize(
    ("route", "form"), [(route, form) for route, forms in FORMS.items() for form in forms]
)
def test_an_instance_alone(route: str, form: str, full: Installation, through: Through) -> None:
    """The node of its GPU and its two capabilities: nothing of its neighbours, and no graphics."""
    name = form.format(uuid=uuid(full, "0:1"), gpu=full.gpu(0).uuid)
    view = through(route, full, name).view
    assert_nodes(view, full, {*ALL_CONTROL, "/dev/nvidia0", *caps("0:1")})
    assert view.paths["/dev/dri"].kind == "missing"


@pytest.mark.parametrize("route", ROUTES)
def test_instances_beside_a_whole_gpu(route: str, full: Installation, through: Through) -> None:
    """Names of all sorts in one request; two instances that share a GPU instance have its node."""
    names = ("2", "1:1", uuid(full, "1:2"))
    view = through(route, full, *names).view
    expected = {*ALL_CONTROL, WHOLE, *GRAPHICS, "/dev/nvidia2", *caps("1:1", "1:2")}
    assert_nodes(view, full, expected)


@pytest.mark.parametrize("route", ROUTES)
def test_the_management(route: str, full: Installation, through: Through) -> None:
    """Every node of the driver, the capabilities of the administration and the channels too; a
    variable requests them in privileged containers alone."""
    view = through(route, full, f"{MANAGEMENT}=all", process=PRIVILEGED).view
    nodes = {path for path in numbers(full) if path.startswith("/dev/nvidia")}
    nodes -= {path for path in nodes if path.startswith(("/dev/nvidia-fs", "/dev/nvidia-nvswitch"))}
    assert_nodes(view, full, nodes)
    if route != "cdi":
        done = through(route, full, f"{MANAGEMENT}=all")
        assert done.rc != 0
        assert "GH1009" in done.stderr


@pytest.mark.parametrize("route", ROUTES)
def test_a_channel(route: str, full: Installation, through: Through) -> None:
    """The channel that is requested comes beside the GPU, and no other."""
    beside = {"names": ["nvidia.com/imex-channel=3"], "env": []}
    if route != "cdi":
        beside = {"names": [], "env": ["NVIDIA_IMEX_CHANNELS=3"]}
    view = through(route, full, "0:1", *beside["names"], env=beside["env"]).view
    assert_nodes(view, full, {*ALL_CONTROL, "/dev/nvidia0", *caps("0:1"), f"{CHANNEL}3"})


@pytest.mark.parametrize("route", ROUTES)
def test_a_requirement(route: str, full: Installation, through: Through) -> None:
    """One that the GPU of the instance does not meet keeps the container; an alternative helps."""
    failing = "NVIDIA_REQUIRE_X=arch>=9.0 brand=tesla,driver>=535"
    done = through(route, full, "0:1", env=[failing])
    assert done.rc != 0
    said = done.stderr + done.log
    assert "GH1044" in said
    assert "the GPU of /dev/nvidia0: arch>=9.0 (it is 8.0)" in said
    held = f"{failing} brand=nvidia,driver>=535,cuda>=12.4"
    view = through(route, full, "0:1", env=[held]).view
    assert_nodes(view, full, {*ALL_CONTROL, "/dev/nvidia0", *caps("0:1")})


@pytest.mark.parametrize("route", ROUTES)
def test_without_nvml(route: str, full: Installation, through: Through, tmp_path: Path) -> None:
    """By mode proc's spec the same nodes arrive; what it knows of the driver is judged, and what
    no one knows of the GPU excludes no container."""
    own = full.apart(tmp_path / "proc")
    (own.state / "node.json").unlink()
    own.generate("--mode", "proc")
    view = through(route, own, "all").view
    expected = {*ALL_CONTROL, WHOLE, *PARENTS, *GRAPHICS, *every_instance(own)}
    assert_nodes(view, own, expected)
    view = through(route, own, "0:1", env=["NVIDIA_REQUIRE_X=cuda>=13.0,arch>=9.0"]).view
    assert_nodes(view, own, {*ALL_CONTROL, "/dev/nvidia0", *caps("0:1")})
    done = through(route, own, "0:1", env=["NVIDIA_REQUIRE_X=cuda>=13.1"])
    assert done.rc != 0
    assert "cuda>=13.1 (it is 13.0)" in done.stderr + done.log


@pytest.mark.parametrize("route", ["wrapper", "prestart"])
def test_kinds_of_coherence(
    route: str, full: Installation, through: Through, tmp_path: Path
) -> None:
    """GPUs that are not coherent are a separate kind as well, whole and in parts."""
    own = full.apart(tmp_path / "coherence")
    own.generate("--feature-flag", "enable-coherent-annotations")
    assert (own.specs / "nvidia.noncoherent.yaml").exists()
    names = [f"nvidia.com/gpu.noncoherent={name}" for name in ("0:1", "2")]
    view = through(route, own, *names).view
    expected = {*ALL_CONTROL, WHOLE, *GRAPHICS, "/dev/nvidia0", *caps("0:1")}
    assert_nodes(view, own, expected)
    done = through(route, own, "nvidia.com/gpu.coherent=all")
    assert done.rc != 0
    assert "GH1104" in done.stderr
