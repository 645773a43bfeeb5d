# SPDX-License-Identifier: Apache-2.0
"""The options of a CDI spec of device nodes alone, and the spec that a vendor makes of them."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Spec

DEFAULT_HOOK_PATH = "/usr/bin/gpuhook-hook"  # in specs with hooks

# Versions of CDI that differ in what a spec of device nodes can say: for podman 4.3, for podman
# 4.6 and containerd 1.7 on, and for engines that add groups to a container's user.
SPEC_VERSIONS = ("0.5.0", "0.6.0", "0.7.0")
DEFAULT_VERSION = "0.6.0"
DESCRIBED = "what generate-cdi would write"  # in place of the path of a spec file


@dataclass(frozen=True, slots=True)
class SpecChoices:
    """The options for one spec. `capabilities` None means all; no `device_ids` means all.

    `inventory` is the node's dump, None for the node below `host_root`. `dev_root` has its /dev.
    `newest` is the newest version of CDI that the spec may need. `has_numbers`: device nodes have
    the numbers of the node, which is not this machine.
    """

    inventory: str | None = None
    host_root: str = "/"
    dev_root: str = "/"
    device_ids: tuple[str, ...] = ()
    with_all: bool = True
    capabilities: frozenset[str] | None = None
    newest: str = DEFAULT_VERSION
    has_numbers: bool = False


@dataclass(frozen=True, slots=True)
class DescribedDevices:
    """A spec of device nodes, and warnings about omitted devices.

    `token` changes with the node's devices, "" if it is unknown.
    """

    spec: Spec
    token: str
    warnings: tuple[str, ...] = ()
