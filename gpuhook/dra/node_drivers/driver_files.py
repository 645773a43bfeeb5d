# SPDX-License-Identifier: Apache-2.0
"""What a driver has on this node: its sockets, and its prepared claims."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from gpuhook.device_plugin.health.recovery_evidence import boot_id
from gpuhook.dra.claims.checkpoint.checkpoint_file import Checkpoint, DamagedError
from gpuhook.dra.claims.claim_spec import ClaimSpecs
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.dra.claims.prepared_claim import PreparedClaim


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The kubelet's root directory, the CDI directory, and the directory with the host's /proc."""

    kubelet: str
    cdi: str
    host_root: str = "/"


class DriverFiles:
    """The files of the driver `name`."""

    def __init__(self, name: str, place: NodePlace) -> None:
        self.name = name
        self.directory = os.path.join(place.kubelet, "plugins", name)
        self.registry = os.path.join(place.kubelet, "plugins_registry")
        boot = boot_id(place.host_root) or ""
        self.checkpoint = Checkpoint(self.directory, boot)
        self.specs = ClaimSpecs(place.cdi, name, boot)

    def sockets(self) -> list[str]:
        """Return the paths of the sockets for claims, of each pod of the driver."""
        return _sockets(self.directory, "dra")

    def registrations(self) -> list[str]:
        """Return the paths of the sockets for the registration."""
        return _sockets(self.registry, self.name)

    def claims(self) -> tuple[dict[str, PreparedClaim], str]:
        """Return the prepared claims of this boot by UID, and why the checkpoint is not read.

        Without a checkpoint, they are those of the CDI specs.
        """
        found = {uid: one for uid in self.specs.uids() if (one := self.specs.record(uid))}
        try:
            claims, boot = self.checkpoint.load(self.checkpoint.path)
        except FileNotFoundError:
            return found, ""
        except DamagedError as error:
            return found, f"{self.checkpoint.path}: {error}"
        return (found | claims if boot == self.checkpoint.boot else found), ""

    def end(self, uid: str) -> None:
        """Undo a claim: its CDI spec, then its entry. Raises GH1590, GH2604 and OSError.

        A damaged checkpoint is left to the next driver, which finds no spec.
        """
        self.specs.remove(uid)
        try:
            self.checkpoint.change(lambda claims: _remove(uid, claims))
        except DamagedError:
            self.checkpoint.quarantine(self.checkpoint.path, "found by drain")


def node_drivers(place: NodePlace) -> list[DriverFiles]:
    """Return the drivers that this node has, or has had."""
    found = (DriverFiles(vendor.dra_driver, place) for vendor in vendors())
    return [one for one in found if os.path.isdir(one.directory)]


def _remove(uid: str, claims: dict[str, PreparedClaim]) -> None:
    claims.pop(uid, None)


def _sockets(directory: str, prefix: str) -> list[str]:
    """Return the visible sockets of a directory, "<prefix>.sock" or "<prefix>-<more>.sock"."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    own = (name for name in names if name.startswith((f"{prefix}.", f"{prefix}-")))
    paths = (os.path.join(directory, name) for name in own if name.endswith(".sock"))
    return sorted(path for path in paths if _is_socket(path))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
