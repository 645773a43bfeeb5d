# SPDX-License-Identifier: Apache-2.0
"""How a runtime can be told to give a container its GPUs, by the name and version that it reports.

Older runtimes ignore CDI names in an adjustment without a message: the container would start
without its GPUs. The table is nri's support by release of containerd and CRI-O.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

CDI, EXPANDED, UNSUPPORTED = "cdi", "expanded", "unsupported"
# Name -> the first release with NRI of this design, and the first that applies CDI names.
_RUNTIMES = {"containerd": ((1, 7), (2, 1)), "cri-o": ((1, 26), (1, 34))}
# Releases 2.0.0 to 2.0.3 of containerd report the end of their Go module's path.
_ALIASES = {"v2": "containerd", "crio": "cri-o"}
_DOCKER = "docker"
_CONTAINERD_ROOT = "/run/containerd/runc/k8s.io"  # of its shim, in the namespace of its CRI
_CONTAINERD_TASKS = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
_VERSION = re.compile(
    r"v?(\d{1,6})\.(\d{1,6})(?:\.\d+)*(?:[-~](?P<early>rc|beta|alpha|dev))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class RuntimeSupport:
    """The mode of adjustments for a runtime, and the reason for another mode than CDI."""

    mode: str
    reason: str = ""
    runtime: str = ""

    def state_root(self, handler: str) -> str:
        """Return the directory in which the low-level runtime keeps the state of containers.

        CRI-O's runtimes use their own defaults, and `handler` may be the name of one.
        """
        if self.runtime != "cri-o":
            return _CONTAINERD_ROOT
        names = ("crun", "runc")
        roots = [f"/run/{name}" for name in (*((handler,) if handler in names else ()), *names)]
        return next(filter(os.path.isdir, roots), roots[0])

    def bundle(self, identity: str) -> str:
        """Return the bundle of a container, "" if only the low-level runtime knows it."""
        return f"{_CONTAINERD_TASKS}/{identity}" if self.runtime == "containerd" else ""


def support_of(name: str, version: str) -> RuntimeSupport:
    """Return how this runtime gets adjustments; one that is not known gets expanded ones.

    >>> support_of("containerd", "v2.1.4").mode, support_of("v2", "2.0.1+unknown").mode
    ('cdi', 'expanded')
    """
    if name == _DOCKER:
        return RuntimeSupport(UNSUPPORTED, "Docker's NRI applies no devices and no hooks")
    known = _ALIASES.get(name, name)
    found = _VERSION.match(version)
    if known not in _RUNTIMES or found is None:
        return RuntimeSupport(EXPANDED, "it is not known whether it applies CDI names", known)
    first, first_cdi = _RUNTIMES[known]
    release = int(found[1]), int(found[2])
    if release < first:
        need = ".".join(map(str, first))
        return RuntimeSupport(UNSUPPORTED, f"NRI plugins need {known} {need} or newer", known)
    is_early = found["early"] and release == first_cdi
    if release < first_cdi or is_early or name == "v2":
        need = ".".join(map(str, first_cdi))
        return RuntimeSupport(EXPANDED, f"{known} applies CDI names from {need} on", known)
    return RuntimeSupport(CDI, "", known)
