# SPDX-License-Identifier: Apache-2.0
"""The claims of one driver in a test: an API server in memory, a pool, real files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuhook.device_plugin.api_server.client import StatusError
from gpuhook.device_plugin.gpu_policies.policy_service import PolicyService
from gpuhook.device_plugin.mps.mps_service import MpsService
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.dra.claims.checkpoint import recovery
from gpuhook.dra.claims.checkpoint.checkpoint_file import ClaimCheckpoint
from gpuhook.dra.claims.claim import ClaimName
from gpuhook.dra.claims.claim_reader import ClaimReader
from gpuhook.dra.claims.claim_spec import ClaimSpecs
from gpuhook.dra.claims.driver_state import DriverState
from gpuhook.dra.claims.preparation import Preparation
from gpuhook.dra.claims.prepared_claim import PreparedClaim, PreparedDevice
from gpuhook.dra.claims.settings.device_modes import DeviceModes
from gpuhook.dra.pool.pool_device import Pool, PoolDevice
from gpuhook.dra.pool.sharing_form import SharingForms
from gpuhook.errors import fault
from gpuhook.vendors.plugin.vendor_device import Device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Spec

DRIVER, NODE = "gpu.nvidia.com", "node1"


class MemoryServer:
    """The part of the API server's client that reads claims. `versions` are those it serves."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self.versions: tuple[str, ...] = ("v1", "v1beta2", "v1beta1")
        self.paths: list[str] = []
        self.before: Callable[[str], None] = lambda path: None

    def add(self, document: Mapping[str, Any]) -> None:
        self.claims[document["metadata"]["name"]] = document

    def get(self, path: str, purpose: object, query: object = None) -> Any:
        self.paths.append(path)
        self.before(path)
        words = path.split("/")
        found = self.claims.get(words[-1]) if words[3] in self.versions else None
        if found is None:
            needed = {"verb": "get", "resource": "resourceclaims", "feature": "claims"}
            raise fault("GH1864", **needed, status=404, reason="not found") from StatusError(404)
        return found


def gpu(number: int, uuid: str = "", **more: Any) -> PoolDevice:
    """Return a GPU of a pool; `more` are fields of the pool's device."""
    name = uuid or f"GPU-{number}"
    nodes = (f"/dev/nvidia{number}",)
    device = Device(name, str(number), name, number, nodes, nodes, memory_bytes=16 << 30)
    return PoolDevice(**{"name": f"gpu-{number}", "device": device, **more})


def described(*devices: PoolDevice, common: bool = True) -> Spec:
    """Return a CDI spec of devices by UUID."""
    spec: Spec = {"cdiVersion": "0.5.0", "kind": "k8s.device-plugin.nvidia.com/gpu"}
    if common:
        spec["containerEdits"] = {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}
    by_uuid = {one.device.uuid: one.device for one in devices}
    spec["devices"] = [
        {"name": uuid, "containerEdits": {"deviceNodes": [{"path": one.paths[-1]}]}}
        for uuid, one in by_uuid.items()
    ]
    return spec


class Statuses:
    """Keeps the claims whose status would be written, by name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def put(self, prepared: PreparedClaim, devices: object) -> None:
        self.names.append(prepared.claim.name.name)


class World:
    """A driver's claims below `place`, with eight GPUs. restart() makes a new driver there."""

    def __init__(self, place: Path, boot: str = "boot-1") -> None:
        self.place = place
        self.server = MemoryServer()
        self.statuses = Statuses()
        self.devices = tuple(map(gpu, range(8)))
        self.state = DriverState(
            Pool(DRIVER, NODE, self.devices), described(*self.devices), token="driver-1"
        )
        self.before_state: Callable[[], None] = lambda: None
        self.require_free: Callable[[PreparedClaim, Pool], None] = lambda intent, pool: None
        self.boot = boot
        self._mark: recovery.RunningMark | None = None
        self.restart()

    def restart(self, *, is_alone: bool = True) -> None:
        """Start a driver on the files of the last one, as after a kill."""
        directory = self.place / "plugins" / DRIVER
        directory.mkdir(parents=True, exist_ok=True)
        self.checkpoint = ClaimCheckpoint(str(directory), self.boot)
        self.specs = ClaimSpecs(str(self.place / "cdi"), DRIVER, self.boot)
        reader = ClaimReader(self.server, DRIVER, NODE)  # type: ignore[arg-type]
        modes = DeviceModes(PolicyService("/"), MpsService(), lambda: ())
        modes.use(SharingForms(), "", NodeSnapshot(is_dump=True))
        self.preparation = Preparation(
            DRIVER,
            reader,
            self.checkpoint,
            self.specs,
            self._current,
            require_free=self.require_free,
            modes=modes,
            status=self.statuses,  # type: ignore[arg-type]
        )
        recovery.recover(self.checkpoint, self.specs, reader.exists, is_alone=is_alone)

    def use(self, *devices: PoolDevice, token: str = "driver-1") -> None:
        """Give the pool these devices."""
        self.devices = devices
        pool = replace(self.state.pool, devices=devices)
        self.state = DriverState(pool, described(*devices), token=token)

    def _current(self) -> DriverState:
        self.before_state()
        return self.state

    def prepare(self, name: ClaimName) -> tuple[PreparedDevice, ...]:
        return self.preparation.prepare(name, lambda step: None)

    def unprepare(self, name: ClaimName) -> None:
        self.preparation.unprepare(name, lambda step: None)

    def prepared(self) -> list[str]:
        """Return the names of the claims in the checkpoint."""
        return sorted(one.claim.name.name for one in self.checkpoint.claims().values())

    def spec(self, name: ClaimName) -> Any:
        """Return the CDI spec of a claim, as a runtime reads it."""
        lines = Path(self.specs.path(name.uid)).read_text(encoding="utf-8").splitlines()
        return json.loads("\n".join(lines[1:]))

    def files(self) -> list[str]:
        """Return the names of all files below the place, without locks."""
        found = (one for one in self.place.rglob("*") if one.is_file())
        return sorted(one.name for one in found if one.suffix not in {".lock", ".running"})


def in_threads(*calls: Callable[[], object]) -> list[object]:
    """Run calls at the same time, and return their results or errors."""
    results: list[object] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = calls[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
