# SPDX-License-Identifier: Apache-2.0
"""The packages as data: purpose, dependencies, and the packages that they replace."""

from __future__ import annotations

from dataclasses import dataclass

NAME = "gpuhook"
RUNTIME = "gpuhook-runtime"
STANDALONE_NAME = "gpuhook-standalone"
LICENSE = "Apache-2.0"
# The bindings of NVML from PyPI: no distribution packages them.
VENDORED = "nvidia-ml-py"
VENDORED_LICENSE = "BSD-3-Clause"
SECTION = "admin"
REVISION = "1"
# release.maintainer overrides it. The address is undeliverable: RFC 2606.
MAINTAINER = "The gpuhook authors <gpuhook@packages.invalid>"
PYTHON = "/usr/bin/python3"
CONFIG = "etc/gpuhook/config.yaml"
SAME = "= {version}"


@dataclass(frozen=True, slots=True)
class Need:
    """A dependency: its names in Debian and Fedora, and the required version."""

    deb: str
    rpm: str
    version: str = ""  # as ">= 3.9"; {version} is the one that is built

    def in_deb(self, version: str) -> str:
        """Return the dependency in the syntax of debian/control."""
        asked = self.version.format(version=version)
        return f"{self.deb} ({asked})" if asked else self.deb

    def in_rpm(self, version: str) -> str:
        """Return the dependency in the syntax of a spec file's Requires."""
        return f"{self.rpm} {self.version.format(version=version)}".rstrip()


@dataclass(frozen=True, slots=True)
class Package:
    """One package. `described` is its long description, one paragraph per line."""

    name: str
    summary: str
    described: str
    needs: tuple[Need, ...]
    suggests: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()  # packages with the same files, which it replaces
    machine: str = ""  # such as x86_64; "" for every one

    @property
    def has_command(self) -> bool:
        """Whether it contains the command line and the services."""
        return self.name in (NAME, STANDALONE_NAME)

    @property
    def has_runtime(self) -> bool:
        """Whether it contains the programs of a container's start."""
        return self.name in (RUNTIME, STANDALONE_NAME)

    @property
    def has_modules(self) -> bool:
        """Whether it contains modules whose byte code is made on the node."""
        return self.name in (NAME, RUNTIME, f"{NAME}-device-plugin")

    def provides(self, form: str) -> list[str]:
        """Return what it replaces, and in `form` those of its own release."""
        own = [name for name in self.replaces if name.startswith(NAME)]
        return [form.format(name) if name in own else name for name in self.replaces]


def ours(name: str) -> Need:
    """Return the dependency on another gpuhook package of the same version."""
    return Need(name, name, SAME)


PACKAGES = (
    Package(
        name="gpuhook-runtime",
        summary="GPUs for containers: OCI runtime wrapper and hook",
        described=(
            "gpuhook-runtime is an OCI runtime that adds the requested NVIDIA and AMD GPUs to"
            " containers, and then runs runc or crun. gpuhook-hook is the hook that CDI specs and"
            " engines call while a container is created.\n"
            "This package contains all programs of a container's start. It needs Python and its"
            " standard library, and configures no container engine."
        ),
        needs=(Need("python3", "python3", ">= 3.9"),),
        suggests=("gpuhook",),
    ),
    Package(
        name="gpuhook",
        summary="GPUs for containers: command line, CDI generator, services",
        described=(
            "gpuhook generates CDI specs for the GPUs of a node, registers its runtime with"
            " container engines and undoes that, attaches GPUs to running containers, and"
            " diagnoses why a container does not see its GPU.\n"
            "Its services keep the node's CDI specs up to date. They do nothing on a node without"
            " a GPU."
        ),
        needs=(
            ours("gpuhook-runtime"),
            Need("python3", "python3", ">= 3.10"),
            Need("python3-click", "python3-click", ">= 8.1"),
            Need("python3-jsonschema", "python3-jsonschema", ">= 4.10"),
            Need("python3-structlog", "python3-structlog", ">= 22.3"),
            Need("python3-tomlkit", "python3-tomlkit", ">= 0.11.7"),
            Need("python3 (>= 3.11) | python3-tomli", "(python3 >= 3.11 or python3-tomli)"),
            Need("python3-yaml", "python3-pyyaml", ">= 6.0"),
        ),
        suggests=("gpuhook-device-plugin",),
    ),
    Package(
        name="gpuhook-device-plugin",
        summary="GPUs for containers: Kubernetes device plugin",
        described=(
            "The device plugin offers the GPUs of a node to its kubelet: whole, as MIG instances,"
            " or shared by time slicing, by memory or by MPS. It monitors their health and serves"
            " metrics.\n"
            "Clusters usually run it from an image; this package is for nodes on which it runs on"
            " the host."
        ),
        needs=(
            ours("gpuhook"),
            Need("python3-grpcio", "python3-grpcio", ">= 1.51"),
            Need("python3-protobuf", "python3-protobuf", ">= 3.21"),
        ),
    ),
    Package(
        name="gpuhook-nvidia-compat",
        summary="GPUs for containers: commands with the names of NVIDIA's toolkit",
        described=(
            "Commands with the names of NVIDIA's container toolkit that run gpuhook, so that"
            " existing engine configurations, scripts and CDI specs keep working.\n"
            "It replaces NVIDIA's packages, which contain the same files."
        ),
        needs=(ours("gpuhook"),),
        replaces=(
            "nvidia-container-toolkit",
            "nvidia-container-toolkit-base",
            "nvidia-container-runtime",
            "nvidia-container-runtime-hook",
        ),
    ),
)

STANDALONE = Package(
    name=STANDALONE_NAME,
    summary="GPUs for containers: all programs, with their own Python",
    described=(
        "gpuhook-standalone contains the programs of gpuhook-runtime, gpuhook and"
        " gpuhook-device-plugin under the same names, with the Python, the libraries and the C"
        " library that they need. It is for distributions whose Python or packages are too old"
        " for gpuhook, and replaces these packages.\n"
        "Its services keep the node's CDI specs up to date. They do nothing on a node without a"
        " GPU. It configures no container engine."
    ),
    needs=(),
    replaces=(RUNTIME, NAME, f"{NAME}-device-plugin"),
)
