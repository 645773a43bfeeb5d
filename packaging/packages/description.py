# SPDX-License-Identifier: Apache-2.0
"""The packages, as data: what each is for, what it needs, and what it takes the place of."""

from __future__ import annotations

from dataclasses import dataclass

NAME = "gpuhook"
LICENSE = "Apache-2.0"
# The bindings of NVML, which come from PyPI: no distribution has a package of them.
VENDORED = "nvidia-ml-py"
VENDORED_LICENSE = "BSD-3-Clause"
SECTION = "admin"
REVISION = "1"
# Who builds the packages says otherwise (release.maintainer). No mail goes to this one: RFC 2606.
MAINTAINER = "The gpuhook authors <gpuhook@packages.invalid>"
PYTHON = "/usr/bin/python3"
CONFIG = "etc/gpuhook/config.yaml"
SAME = "= {version}"


@dataclass(frozen=True, slots=True)
class Need:
    """Another package: its names in Debian and in Fedora's family, and which versions will do."""

    deb: str
    rpm: str
    version: str = ""  # as ">= 3.9"; {version} is the one that is built

    def in_deb(self, version: str) -> str:
        """Return the need as a field of debian/control has it."""
        asked = self.version.format(version=version)
        return f"{self.deb} ({asked})" if asked else self.deb

    def in_rpm(self, version: str) -> str:
        """Return the need as a spec file's Requires has it."""
        return f"{self.rpm} {self.version.format(version=version)}".rstrip()


@dataclass(frozen=True, slots=True)
class Package:
    """One package. `described` is text of whole sentences, in paragraphs."""

    name: str
    summary: str
    described: str
    needs: tuple[Need, ...]
    suggests: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()  # packages that have the same files, and whose work it does


def ours(name: str) -> Need:
    """Return the need for another of these packages, of the same version."""
    return Need(name, name, SAME)


PACKAGES = (
    Package(
        name="gpuhook-runtime",
        summary="GPUs for containers: OCI runtime wrapper and hook",
        described=(
            "gpuhook-runtime is an OCI runtime that gives containers the NVIDIA GPUs they ask for,"
            " and then calls runc or crun. gpuhook-hook is what CDI specs and engines call while"
            " a container is made.\n"
            "This package is all that a container's start runs. It needs Python and its standard"
            " library, and configures no container engine."
        ),
        needs=(Need("python3", "python3", ">= 3.9"),),
        suggests=("gpuhook",),
    ),
    Package(
        name="gpuhook",
        summary="GPUs for containers: command line, CDI generator, services",
        described=(
            "gpuhook describes the GPUs of a node in CDI specs, registers its"
            " runtime with container engines and takes that back, gives GPUs to running"
            " containers, and says what is wrong where one has none.\n"
            "Its services keep the node's CDI specs up to date. They do nothing on a node that has"
            " no GPU."
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
        summary="GPUs for containers: device plugin of Kubernetes",
        described=(
            "The device plugin offers the GPUs of a node to its kubelet: whole, as MIG instances,"
            " or shared by time slices, by memory and by MPS. It watches their health and gives"
            " metrics.\n"
            "Clusters run it out of an image as a rule; this package is for nodes where it runs as"
            " a program of the host."
        ),
        needs=(
            ours("gpuhook"),
            Need("python3-grpcio", "python3-grpcio", ">= 1.51"),
            Need("python3-protobuf", "python3-protobuf", ">= 3.21"),
            Need("python3-prometheus-client", "python3-prometheus_client", ">= 0.16"),
        ),
    ),
    Package(
        name="gpuhook-nvidia-compat",
        summary="GPUs for containers: the names of NVIDIA's toolkit",
        described=(
            "The programs of NVIDIA's container toolkit by their own names, as thin fronts of"
            " gpuhook's: what engines, scripts and CDI specs call keeps working.\n"
            "It takes the place of NVIDIA's packages, which have the same files."
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
