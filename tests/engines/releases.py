# SPDX-License-Identifier: Apache-2.0
"""The Debian releases of the matrix, and the engines that each has.

bookworm has Docker 20.10, containerd 1.6, podman 4.3, runc 1.1 and crun 1.8; trixie Docker 26.1,
containerd 1.7, podman 5.4, runc 1.1 and crun 1.21; forky Docker 28, containerd 2.1, podman 5.8,
runc 1.3 and crun 1.28.
"""

from __future__ import annotations

from tests.contract.debian_host import Release

_COMMON: tuple[str, ...] = (
    "containerd",
    "runc",
    "crun",
    "podman",
    "buildah",
    "docker.io",
    "docker-compose",
)
_COMMON += ("iproute2", "iptables", "procps", "uidmap", "fuse-overlayfs", "dbus", "ca-certificates")
_NEWER = (*_COMMON, "docker-cli", "netavark", "passt", "catatonit", "conmon")

RELEASES = {
    "bookworm": Release("bookworm", (*_COMMON, "slirp4netns")),
    "trixie": Release("trixie", _NEWER),
    "forky": Release("forky", _NEWER),
}
