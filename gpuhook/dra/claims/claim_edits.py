# SPDX-License-Identifier: Apache-2.0
"""What the shares of a claim add to the edits of their devices. Pure.

They are the mounts and variables that the device plugin gives for a replica, so that runtime, hook,
guard and ledger treat both alike. A container may name several requests and claims, and has one
value of a variable: each device has its own names of variables.
"""

from __future__ import annotations

from binascii import crc32

from gpuhook.apply.rootfs.hook_args import Jobs
from gpuhook.device_plugin.allocate import compute_masks, interposers, memory_grants
from gpuhook.device_plugin.allocate.allocate import merged
from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.dra.claims.settings import claim_resources
from gpuhook.request.parse import Vocabulary
from gpuhook.request.replicas import CLAIM_ENV, SEPARATOR, claim_entry
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Spec
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.dra.claims.settings.claim_settings import NodeSharing
    from gpuhook.dra.claims.settings.device_share import DeviceShare

_OPTIONS = ["bind", "rprivate", "nosuid", "nodev"]


def edits(
    shares: Iterable[DeviceShare],
    of_claim: Collection[DeviceShare],
    node: NodeSharing,
    server: Callable[[DeviceShare], Allocation],
) -> ContainerEdits:
    """Return what the shares of one request add; `of_claim` are all shares of the claim.

    `server` returns the variables and mounts of the MPS server of a share. Raises what it raises,
    and GH1836 to GH1839 for interposers.
    """
    parts = [_of_share(one, of_claim, node, server(one)) for one in shares]
    return _container_edits(merged(parts))


def with_hook(described: Spec, domain: str, hook_path: str | None) -> Spec:
    """Return the spec of a vendor's devices with gpuhook's hook, as far as it has none.

    The hook sets memory limits and writes the ledger where the engine calls no gpuhook-runtime.
    """
    if hook_path is None or vendor_of_resource(domain).traces.HAS_FILES:
        return described
    common = described.get("containerEdits", {})
    hooks = [*common.get("hooks", []), Jobs(hook_path).hook()]
    return {**described, "containerEdits": {**common, "hooks": hooks}}


def _of_share(
    share: DeviceShare, of_claim: Collection[DeviceShare], node: NodeSharing, server: Allocation
) -> Allocation:
    suffix = f"{crc32(f'{share.claim.uid}/{share.request}/{share.device}'.encode()):08X}"
    names = (share.claim.namespace, share.claim.name, share.request)
    value = claim_entry(*names, share.uuid, share.share_id)
    identity = Allocation(envs={CLAIM_ENV + suffix: value})
    form = node.forms.forms.get(share.uuid)
    if share.is_admin or form is None:
        return identity
    if share.number is not None:
        replica = f"{share.uuid}{SEPARATOR}{share.number}"
        identity.envs[f"{Vocabulary.replicas_env}_{suffix}"] = replica
    resource = claim_resources.share_resource(share, form)
    counts = {share.uuid: 1}
    own = [unit for unit in resource.units if unit.replica == share.number]
    configured = node.configuration.own.interposers
    interposers.require(resource, counts, node.missing)
    return merged(
        [
            interposers.interposer_edits(resource, counts, configured),
            identity,
            server,
            _grant(resource, counts, of_claim),
            memory_grants.hints(resource, counts),
            compute_masks.compute_mask(resource, own),
        ]
    )


def _grant(
    resource: Resource, counts: dict[str, int], of_claim: Collection[DeviceShare]
) -> Allocation:
    """Return the mount of a limit, and its variables if all devices of the claim have the same."""
    grant = memory_grants.grants(resource, counts)
    limits = {one.memory for one in of_claim if not one.is_admin}
    return grant if len(limits) == 1 else Allocation(mounts=grant.mounts)


def _container_edits(allocation: Allocation) -> ContainerEdits:
    found: ContainerEdits = {}
    if allocation.envs:
        found["env"] = [f"{name}={value}" for name, value in allocation.envs.items()]
    if allocation.devices:
        found["deviceNodes"] = [
            {"path": one.container_path, "hostPath": one.host_path, "permissions": one.permissions}
            for one in allocation.devices
        ]
    if allocation.mounts:
        found["mounts"] = [
            {
                "hostPath": one.host_path,
                "containerPath": one.container_path,
                "options": ["ro" if one.read_only else "rw", *_OPTIONS],
            }
            for one in allocation.mounts
        ]
    return found
