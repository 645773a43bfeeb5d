# SPDX-License-Identifier: Apache-2.0
"""A simulated node whose devices claims share, by the code of the DRA driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpuhook.apply.spec import oci_spec
from gpuhook.cdi.hot.container_edits import merged
from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.gpu_policies.policy_service import PolicyService
from gpuhook.device_plugin.mps.mps_service import MpsService
from gpuhook.dra.claims.checkpoint.checkpoint_file import ClaimCheckpoint
from gpuhook.dra.claims.claim import ClaimName
from gpuhook.dra.claims.claim_reader import ClaimReader
from gpuhook.dra.claims.claim_spec import ClaimSpecs
from gpuhook.dra.claims.preparation import Preparation
from gpuhook.dra.claims.settings.device_modes import DeviceModes
from gpuhook.dra.claims.settings.device_share import DeviceShare
from gpuhook.dra.node_view import NodeView
from gpuhook.dra.pool.pool_device import SLOTS
from gpuhook.host import documents
from gpuhook.vendors.catalogue import vendor_of_resource
from tests.contract.bundles import Bundle
from tests.kubelet.allocated_claims import allocated, named, result, uid_of
from tests.unit.dra.claims.claims_world import MemoryServer, Statuses

NODE = "node1"
OWN: dict[str, Any] = {"apiVersion": "gpuhook.io/v1", "kind": "GpuConfig"}


def configuration(text: str) -> Configuration:
    reading = config_reader.read(text.encode(), "config.yaml")
    assert reading.configuration is not None, reading.findings
    return reading.configuration


class ClaimNode:
    """The drivers of a node below `place`, with the configuration `text`.

    restart() makes a new process of them, with the files of the last one.
    """

    def __init__(self, place: Path, launch: Launch, text: str, domain: str = "nvidia.com") -> None:
        self.launch = launch
        self.domain = domain
        self.driver = vendor_of_resource(domain).dra_driver
        self.place = place
        self.server = MemoryServer()
        self.statuses = Statuses()
        self.restart(text)

    def restart(self, text: str, *, is_used: bool = True) -> None:
        """Start with this configuration; unless `is_used`, before the first turn is over."""
        self.configuration = configuration(text)
        directory = self.place / "plugins" / self.driver
        directory.mkdir(parents=True, exist_ok=True)
        self.checkpoint = ClaimCheckpoint(str(directory), "boot")
        self.specs = ClaimSpecs(str(self.place / "claims"), self.driver, "boot")
        self.view = NodeView(self.launch)
        policies = PolicyService(self.launch.host_root, saved_policies.CLAIMS_FILE)
        self.modes = DeviceModes(policies, MpsService(), self.held)
        snapshot = self.view.take(self.configuration)
        root = self.configuration.flags.mps_root
        self.faults = self.modes.use(self.view.forms, root, snapshot) if is_used else ()
        reader = ClaimReader(self.server, self.driver, NODE)  # type: ignore[arg-type]
        current: Callable[[], Any] = lambda: self.view.state(self.domain)  # noqa: E731
        self.preparation = Preparation(
            self.driver,
            reader,
            self.checkpoint,
            self.specs,
            current,
            require_free=lambda intent, pool: None,
            modes=self.modes,
            status=self.statuses,  # type: ignore[arg-type]
        )

    def held(self) -> list[DeviceShare]:
        return [share for one in self.checkpoint.claims().values() for share in one.shares]

    def consumed(self, device: str, memory: str = "") -> dict[str, str]:
        """Return what a claim consumes of a device: as the scheduler, the defaults."""
        found = self.view.state(self.domain).pool.device(device)
        assert found is not None
        if not found.is_shared:
            return {}
        wanted = {name: str(one.default) for name, one in found.capacity.items() if name != SLOTS}
        return {**wanted, SLOTS: "1", **({"memory": memory} if memory else {})}

    def prepare(
        self,
        name: str,
        device: str = "gpu-0",
        *,
        memory: str = "",
        of_class: Sequence[Any] = (),
        of_claim: Sequence[Any] = (),
        **fields: Any,
    ) -> ClaimName:
        """Allocate a device to a claim, and prepare it; `memory` is an amount that it requests."""
        claim = named(name)
        shared = {"shareID": uid_of(f"share of {name}")} if self.consumed(device) else {}
        values = {
            **shared,
            "driver": self.driver,
            "consumedCapacity": self.consumed(device, memory),
            **fields,
        }
        sources = [("FromClass", one) for one in of_class] + [
            ("FromClaim", one) for one in of_claim
        ]
        config = [
            {"source": source, "opaque": {"driver": self.driver, "parameters": one}}
            for source, one in sources
        ]
        document = allocated(claim, result(device, **values), config=config)
        if memory:
            (request,) = document["spec"]["devices"]["requests"]
            request["exactly"] = {"capacity": {"requests": {"memory": memory}}}
        self.server.add(document)
        self.preparation.prepare(claim, lambda _: None)
        return claim

    def unprepare(self, claim: ClaimName) -> None:
        self.preparation.unprepare(claim, lambda _: None)

    def spec(self, claim: ClaimName) -> dict[str, Any]:
        """Return the CDI spec of a claim."""
        _, _, body = Path(self.specs.path(claim.uid)).read_bytes().partition(b"\n")
        return documents.parse_json_object(body)


def install_mps(place: Path) -> None:
    """Put the program that replaces the MPS control daemon into a directory."""
    place.mkdir(exist_ok=True)
    source = Path(__file__).parent.parent / "simulated/mps_control.py"
    shutil.copy(source, place / "nvidia-cuda-mps-control")


def given(
    made: Bundle, node: ClaimNode, *claims: ClaimName, root: str = "", hook_env: Sequence[str] = ()
) -> Bundle:
    """Apply the CDI devices of claims to a container, as an engine does.

    `hook_env` is added to the variables of the hooks, which on a node need none; `root` has the
    device nodes, instead of this machine.
    """
    config = made.config()
    for claim in claims:
        spec: Any = node.spec(claim)
        devices = [one["containerEdits"] for one in spec["devices"]]
        edits = merged([spec.get("containerEdits", {}), *devices])
        for hook in edits.get("hooks", ()):
            hook["env"] = [*hook.get("env", ()), *hook_env]
        for one in edits.get("deviceNodes", ()):
            one.setdefault("hostPath", f"{root}{one['path']}")
        oci_spec.apply(config, edits)
    made.write(config)
    return made
