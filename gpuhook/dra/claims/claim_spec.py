# SPDX-License-Identifier: Apache-2.0
"""The CDI spec of a claim: one file for each claim, one device for each of its requests.

Runtimes cache specs, so names contain the UID of the claim and never get other devices. The first
line of a file is a comment with the claim: a damaged checkpoint is rebuilt from it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import spec_rules, spec_versions
from gpuhook.cdi.hot.container_edits import merged
from gpuhook.dra.claims import prepared_claim
from gpuhook.dra.claims.checkpoint import durable_file
from gpuhook.dra.claims.prepared_claim import PreparedDevice
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import documents
from gpuhook.host.error_text import worded
from gpuhook.host.hot import files
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Device, Spec
    from gpuhook.dra.claims.prepared_claim import PreparedClaim
    from gpuhook.dra.pool.pool_device import Pool

_RECORD = b"# gpuhook: "
_SUFFIX = ".yaml"
_MAX_SIZE = 16 << 20


def kind(driver: str) -> str:
    """Return the kind of the driver's CDI devices: k8s.gpu.nvidia.com/claim."""
    return f"k8s.{driver}/claim"


def prepared_devices(driver: str, prepared: PreparedClaim) -> tuple[PreparedDevice, ...]:
    """Return the answer to the kubelet: the devices of one request have one CDI device."""
    name = prepared.claim.name
    return tuple(
        PreparedDevice(
            one.request,
            one.pool,
            one.device,
            (f"{kind(driver)}={_device_name(name.uid, one.request)}",),
            one.share_id,
        )
        for one in prepared.claim.devices
    )


def document(
    prepared: PreparedClaim, pool: Pool, described: Spec, added: Callable[[str], ContainerEdits]
) -> Spec:
    """Return the spec of a claim; `described` has the edits of the node's devices by UUID.

    `added` returns the further edits of a request. Raises GH2605 for a device that the driver does
    not have, and GH1106 to GH1108.
    """
    by_uuid = {one["name"]: one["containerEdits"] for one in described.get("devices", ())}
    devices: dict[str, ContainerEdits] = {}
    for request in prepared.requests():
        parts = _edits_of_devices(prepared, request, by_uuid, pool)
        devices[request] = merged([*parts, added(request)])
    uid = prepared.claim.name.uid
    found: list[Device] = [
        {"name": _device_name(uid, request), "containerEdits": own}
        for request, own in _without_contradictions(devices).items()
    ]
    spec: Spec = {"cdiVersion": described["cdiVersion"], "kind": kind(pool.driver)}
    common = described.get("containerEdits")
    if common:
        spec["containerEdits"] = common
    spec["devices"] = found
    needed = spec_versions.needed({**spec})[0]
    spec["cdiVersion"] = max(needed, spec["cdiVersion"], key=spec_versions.VERSIONS.index)
    spec_rules.check(spec, f"{uid}{_SUFFIX}")
    return spec


def _edits_of_devices(
    prepared: PreparedClaim, request: str, by_uuid: Mapping[str, ContainerEdits], pool: Pool
) -> list[ContainerEdits]:
    """Return the edits of the devices of a request; raises GH2605."""
    pairs = zip(prepared.claim.devices, prepared.held, strict=True)
    held = [one for result, one in pairs if result.request == request]
    missing = next((one for one in held if one.uuid not in by_uuid), None)
    if missing is not None:
        raise fault("GH2605", claim=prepared.claim.name, device=missing.name, pool=pool.name)
    return [by_uuid[one.uuid] for one in held]


def _without_contradictions(devices: Mapping[str, ContainerEdits]) -> dict[str, ContainerEdits]:
    """Return the edits without variables that have several values.

    A container gets the devices of all requests that it names, and of two values of a variable one
    would apply to all devices.
    """
    values: dict[str, set[str]] = {}
    for edits in devices.values():
        for entry in edits.get("env", ()):
            values.setdefault(entry.partition("=")[0], set()).add(entry)
    several = {name for name, entries in values.items() if len(entries) > 1}
    if not several:
        return dict(devices)
    logger().warning("variables with several values are left out", names=sorted(several))
    return {request: _without_variables(edits, several) for request, edits in devices.items()}


def _without_variables(edits: ContainerEdits, names: Iterable[str]) -> ContainerEdits:
    left = [one for one in edits.get("env", ()) if one.partition("=")[0] not in names]
    rest: ContainerEdits = {**edits, "env": left}
    if not left:
        del rest["env"]
    return rest


def _device_name(uid: str, request: str) -> str:
    return f"{uid}-{request}"


class ClaimSpecs:
    """The specs of a driver's claims in a CDI directory. `boot` is the id of this boot."""

    def __init__(self, directory: str, driver: str, boot: str) -> None:
        self.directory = directory
        self.path_prefix = os.path.join(directory, f"gpuhook-{driver}-claim_")
        self._boot = boot

    def path(self, uid: str) -> str:
        return f"{self.path_prefix}{uid}{_SUFFIX}"

    def has(self, uid: str) -> bool:
        """Return whether a claim has a spec."""
        return os.path.exists(self.path(uid))

    def write(self, prepared: PreparedClaim, spec: Spec) -> None:
        """Write the spec of a claim; raises GH1590."""
        record = {"boot": self._boot, "claim": prepared.document()}
        text = _RECORD + json.dumps(record).encode() + b"\n"
        try:
            os.makedirs(self.directory, 0o755, exist_ok=True)
            data = text + spec_file.document(spec, "json").encode()
            durable_file.replace(self.path(prepared.claim.name.uid), data, 0o644)
        except OSError as error:
            raise worded(error) from error

    def remove(self, uid: str) -> None:
        """Remove the spec of a claim, if there is one; raises GH1590."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.path(uid))
        except OSError as error:
            raise worded(error) from error

    def uids(self) -> Iterator[str]:
        """Yield the UIDs of the claims that have a spec."""
        prefix = os.path.basename(self.path_prefix)
        with suppress(OSError):
            for name in os.listdir(self.directory):
                if name.startswith(prefix) and name.endswith(_SUFFIX):
                    yield name[len(prefix) : -len(_SUFFIX)]

    def record(self, uid: str) -> PreparedClaim | None:
        """Return the claim of a spec that was written since the machine booted, else None."""
        try:
            line = files.read(self.path(uid), _MAX_SIZE).partition(b"\n")[0]
            found = documents.parse_json_object(line.removeprefix(_RECORD))
            claim = prepared_claim.from_document(found["claim"])
        except (OSError, GpuhookError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return claim if found.get("boot") == self._boot and claim.claim.name.uid == uid else None
