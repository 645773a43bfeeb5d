# SPDX-License-Identifier: Apache-2.0
"""What a driver has on this node: its sockets, and its prepared claims."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.device_plugin.health.recovery_evidence import boot_id
from gpuhook.dra.claims.checkpoint.checkpoint_file import ClaimCheckpoint, DamagedError
from gpuhook.dra.claims.claim_spec import ClaimSpecs
from gpuhook.dra.kubelet import socket_paths
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.dra.claims.prepared_claim import PreparedClaim


@dataclass(frozen=True, slots=True)
class DriverPlace:
    """The kubelet's root directory, the CDI directory, and the directory with the host's /proc."""

    kubelet: str
    cdi: str
    host_root: str = "/"


class LocalDriver:
    """The files of the driver `name`."""

    def __init__(self, name: str, place: DriverPlace) -> None:
        self.name = name
        self.directory = os.path.join(place.kubelet, "plugins", name)
        self.registry = os.path.join(place.kubelet, "plugins_registry")
        boot = boot_id(place.host_root) or ""
        self.checkpoint = ClaimCheckpoint(self.directory, boot)
        self.specs = ClaimSpecs(place.cdi, name, boot)

    def sockets(self) -> list[str]:
        """Return the paths of the sockets for claims, of each pod of the driver."""
        return socket_paths.sockets(self.directory, socket_paths.SERVICE)

    def registrations(self) -> list[str]:
        """Return the paths of the sockets for the registration."""
        return socket_paths.sockets(self.registry, self.name)

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


def node_drivers(place: DriverPlace) -> list[LocalDriver]:
    """Return the drivers that this node has, or has had."""
    found = (LocalDriver(vendor.dra_driver, place) for vendor in vendors())
    return [one for one in found if os.path.isdir(one.directory)]


def _remove(uid: str, claims: dict[str, PreparedClaim]) -> None:
    claims.pop(uid, None)
