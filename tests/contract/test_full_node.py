# SPDX-License-Identifier: Apache-2.0
"""A node with whole GPUs, MIG instances, graphics, IMEX channels and the management device.

Containers have what generate-cdi describes, and nothing else, by each integration: the wrapper, the
prestart hook, and an engine that applies the spec itself.
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
WHOLE = "/dev/nvidia1"  # of GPU 2, the only one without MIG mode
PARENTS = {"/dev/nvidia0", "/dev/nvidia2"}
PRIVILEGED = {"capabilities": {"bounding": [*CAPABILITIES, "CAP_SYS_ADMIN"]}}
CHANNEL = "/dev/nvidia-caps-imex-channels/channel"
MANAGEMENT = "management.nvidia.com/gpu"
# Of GPU 2, by the kernel's names and by path.
GRAPHICS = {
    "/dev/dri/card3",
    "/dev/dri/renderD130",
    "/dev/dri/by-path/pci-0000:47:00.0-card",
    "/dev/dri/by-path/pci-0000:47:00.0-render",
}
# Requests for the instance 0:1 in the forms that each integration accepts.
FORMS = {
    "wrapper": ["0:1", "{uuid}", "MIG-{gpu}/8/0", "nvidia.com/gpu={uuid}"],
    "prestart": ["0:1", "{uuid}", "MIG-{gpu}/8/0"],
    "cdi": ["0:1", "{uuid}"],
}


@pytest.fixture(scope="module")
def full(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an installation on that node, with specs of each kind."""
    place = tmp_path_factory.mktemp("full")
    node = make_node(place / "node", with_32_bit(with_drm(dump_file.load("a100-mig"))))
    extra_nodes.add(node.host_root)
    made = installation(place, node, node8.bindir)
    made.generate("--mode", "management", output=made.specs / "management.yaml")
    made.generate("--mode", "imex", output=made.specs / "imex.yaml")
    return made


@pytest.fixture
def run_by(tmp_path: Path, root_of: Roots, bundle_of: Bundles) -> Through:
    """Return a function that runs a container with devices of a node by an integration."""

    places = (tmp_path / f"podman{number}" for number in range(9))

    def run_container(
        route: str, own: Installation, *names: str, env: Iterable[str] = (), **oci: object
    ) -> Result:
        root = root_of("debian")
        args = ["/probe", *node_questions(own)]
        if route == "cdi":
            kinds = [name if "=" in name else f"nvidia.com/gpu={name}" for name in names]
            words = [f"--device={name}" for name in kinds]
            words += [f"--env={entry}" for entry in env]
            integrations = Integrations(own, next(places))
            return integrations.by_podman(root, args, words, runtime="runc")
        made = bundle_of(root, args, [*asks(",".join(names), "all"), *env], **oci)
        return own.run(made) if route == "wrapper" else own.run_by_hook(made)

    return run_container


def numbers(own: Installation) -> dict[str, str]:
    """Return "major:minor" of each node below the node's /dev, by its path."""
    node_numbers = {}
    root = Path(own.node.dev_root)
    for path in sorted((root / "dev").rglob("*")):
        if path.is_char_device():
            device = path.stat().st_rdev
            node_numbers["/" + str(path.relative_to(root))] = (
                f"{os.major(device)}:{os.minor(device)}"
            )
    return node_numbers


def node_questions(own: Installation) -> list[str]:
    """Return the probe's questions: can each node of the host be opened?"""
    return questions("/dev/dri", tries=sorted(set(numbers(own).values())))


def assert_host_nodes(view: View, own: Installation, expected: Iterable[str]) -> None:
    """Assert that a container has these nodes of the host and can open them, and no others."""
    known = numbers(own)
    wanted = set(expected)
    nodes = {path: node for path, node in view.nodes.items() if path in known}
    assert set(nodes) == wanted
    for path, node in nodes.items():
        assert f"{node.major}:{node.minor}" == known[path], path
        assert node.allowed, path
    openable = {number for number, result in view.tries.items() if result != "EPERM"}
    assert openable == {known[path] for path in wanted}


def capability_nodes(*names: str) -> set[str]:
    """Return the capability nodes of instances."""
    return {f"{CAP}{minor}" for name in names for minor in NODES[name][1:]}


def all_capability_nodes(own: Installation) -> set[str]:
    """Return the capability nodes of all instances, without those of MIG administration."""
    return {path for path in numbers(own) if path.startswith(CAP)} - {f"{CAP}1", f"{CAP}2"}


@pytest.mark.parametrize("route", ROUTES)
def test_all_assigns_gpus_and_instances(route: str, full: Installation, run_by: Through) -> None:
    """`all` assigns the whole GPU with graphics and each instance, and nothing else."""
    view = run_by(route, full, "all").view
    instances = all_capability_nodes(full)
    assert len(instances) == 2 * 11 - 1  # two instances share their GPU instance
    assert_host_nodes(view, full, {*ALL_CONTROL, WHOLE, *PARENTS, *GRAPHICS, *instances})


@pytest.mark.parametrize(
    ("route", "form"), [(route, form) for route, forms in FORMS.items() for form in forms]
)
def test_mig_instance_has_its_nodes_only(
    route: str, form: str, full: Installation, run_by: Through
) -> None:
    """A MIG instance has its GPU's node and its two capabilities, and no graphics."""
    name = form.format(uuid=uuid(full, "0:1"), gpu=full.gpu(0).uuid)
    view = run_by(route, full, name).view
    assert_host_nodes(view, full, {*ALL_CONTROL, "/dev/nvidia0", *capability_nodes("0:1")})
    assert view.paths["/dev/dri"].kind == "missing"


@pytest.mark.parametrize("route", ROUTES)
def test_instances_and_a_whole_gpu_by_mixed_names(
    route: str, full: Installation, run_by: Through
) -> None:
    """One request has names of all forms; two instances share the node of their GPU instance."""
    names = ("2", "1:1", uuid(full, "1:2"))
    view = run_by(route, full, *names).view
    expected = {*ALL_CONTROL, WHOLE, *GRAPHICS, "/dev/nvidia2", *capability_nodes("1:1", "1:2")}
    assert_host_nodes(view, full, expected)


@pytest.mark.parametrize("route", ROUTES)
def test_management_device_has_all_nodes_and_needs_privileges(
    route: str, full: Installation, run_by: Through
) -> None:
    """The management device has all nodes; a variable requests it in privileged containers only."""
    view = run_by(route, full, f"{MANAGEMENT}=all", process=PRIVILEGED).view
    nodes = {path for path in numbers(full) if path.startswith("/dev/nvidia")}
    nodes -= {path for path in nodes if path.startswith(("/dev/nvidia-fs", "/dev/nvidia-nvswitch"))}
    assert_host_nodes(view, full, nodes)
    if route != "cdi":
        done = run_by(route, full, f"{MANAGEMENT}=all")
        assert done.rc != 0
        assert "GH1009" in done.stderr


@pytest.mark.parametrize("route", ROUTES)
def test_channel_is_added_to_an_instance(route: str, full: Installation, run_by: Through) -> None:
    """A container has the IMEX channel that it requests, in addition to its instance."""
    channel_request = {"names": ["nvidia.com/imex-channel=3"], "env": []}
    if route != "cdi":
        channel_request = {"names": [], "env": ["NVIDIA_IMEX_CHANNELS=3"]}
    view = run_by(route, full, "0:1", *channel_request["names"], env=channel_request["env"]).view
    assert_host_nodes(
        view, full, {*ALL_CONTROL, "/dev/nvidia0", *capability_nodes("0:1"), f"{CHANNEL}3"}
    )


@pytest.mark.parametrize("route", ROUTES)
def test_requirement_excludes_the_gpu_of_an_instance(
    route: str, full: Installation, run_by: Through
) -> None:
    """A requirement that the instance's GPU does not meet is refused; an alternative is
    accepted.
    """
    failing = "NVIDIA_REQUIRE_X=arch>=9.0 brand=tesla,driver>=535"
    done = run_by(route, full, "0:1", env=[failing])
    assert done.rc != 0
    output = done.stderr + done.log
    assert "GH1044" in output
    assert "the GPU of /dev/nvidia0: arch>=9.0 (it is 8.0)" in output
    met = f"{failing} brand=nvidia,driver>=535,cuda>=12.4"
    view = run_by(route, full, "0:1", env=[met]).view
    assert_host_nodes(view, full, {*ALL_CONTROL, "/dev/nvidia0", *capability_nodes("0:1")})


@pytest.mark.parametrize("route", ROUTES)
def test_spec_without_nvml_has_the_same_nodes(
    route: str, full: Installation, run_by: Through, tmp_path: Path
) -> None:
    """Without NVML the spec has the same nodes; unknown facts meet each requirement."""
    own = full.apart(tmp_path / "proc")
    (own.state / "node.json").unlink()
    own.generate("--mode", "proc")
    view = run_by(route, own, "all").view
    expected = {*ALL_CONTROL, WHOLE, *PARENTS, *GRAPHICS, *all_capability_nodes(own)}
    assert_host_nodes(view, own, expected)
    view = run_by(route, own, "0:1", env=["NVIDIA_REQUIRE_X=cuda>=13.0,arch>=9.0"]).view
    assert_host_nodes(view, own, {*ALL_CONTROL, "/dev/nvidia0", *capability_nodes("0:1")})
    done = run_by(route, own, "0:1", env=["NVIDIA_REQUIRE_X=cuda>=13.1"])
    assert done.rc != 0
    assert "cuda>=13.1 (it is 13.0)" in done.stderr + done.log


@pytest.mark.parametrize("route", ["wrapper", "prestart"])
def test_coherence_kinds_have_gpus_and_instances(
    route: str, full: Installation, run_by: Through, tmp_path: Path
) -> None:
    """GPUs that are not coherent are also devices of a separate kind, whole and as instances."""
    own = full.apart(tmp_path / "coherence")
    own.generate("--feature-flag", "enable-coherent-annotations")
    assert (own.specs / "nvidia.noncoherent.yaml").exists()
    names = [f"nvidia.com/gpu.noncoherent={name}" for name in ("0:1", "2")]
    view = run_by(route, own, *names).view
    expected = {*ALL_CONTROL, WHOLE, *GRAPHICS, "/dev/nvidia0", *capability_nodes("0:1")}
    assert_host_nodes(view, own, expected)
    done = run_by(route, own, "nvidia.com/gpu.coherent=all")
    assert done.rc != 0
    assert "GH1104" in done.stderr
