# SPDX-License-Identifier: Apache-2.0
"""The section `sharing`: one of three strategies, and its entries.

`name`, `rename`, `devices` and `replicas` as a number are keys of NVIDIA's plugin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuhook.device_plugin.config.grammar.edit_values import NAME
from gpuhook.device_plugin.config.grammar.grammar import (
    Either,
    Entries,
    Key,
    Section,
    Values,
    key,
    keys_of,
)
from gpuhook.device_plugin.config.grammar.memory_values import LIMIT, LIMIT_OR_WORD, UNIT
from gpuhook.device_plugin.config.grammar.name_values import ALL, Devices, ResourceName
from gpuhook.device_plugin.config.grammar.value_kinds import BOOLEAN, Choice, ChoiceList, Whole

SHARED = ".shared"  # the suffix of renameByDefault
TIME_SLICING, MPS, NOT_SHARED = "time-slicing", "mps", "none"
MEMORY_UNITS = "memory-units"
TIME_SLICES = ("default", "short", "medium", "long")
COMPUTE_MODES = ("default", "exclusive-process")
HINTS = ("tensorflow", "pytorch", "jax", "cupy", "paddle")
PACKED, SPREAD = "packed", "spread"
DEFAULT_UNIT = 1 << 30  # bytes
UNITS = "gpumem"  # the name of memory units without `rename`, after the domain of the devices
MOST_CLIENTS = 48  # of MPS, on the newest devices
MOST_REPLICAS = 4096  # of one device; the kubelet takes lists of 4 MiB, some 65,000 devices


@dataclass(frozen=True, slots=True)
class SharedResource:
    """One entry of `sharing.*.resources`.

    `devices` is "all", a number of devices (the first ones), or names: an index "0", a MIG index
    "0:1", a UUID, a model ("Tesla T4"). `memory` limits the device memory of one replica: FAIR,
    UNLIMITED or bytes; None is the default of the strategy (see `limit`). In memory units, `unit`
    is the size of one, and a device has as many as fit.
    """

    name: str = key(ResourceName(), "The resource to share.")
    replicas: int = key(
        Either(
            Whole(1, MOST_REPLICAS),
            Section(
                dict,
                (
                    Key(
                        "memory",
                        LIMIT,
                        "The memory of each replica, which is also its limit; a device has as many "
                        "replicas as fit.",
                        "memory",
                        required=True,
                    ),
                ),
            ),
        ),
        "The number of containers that can share each device; 1 does not share it.",
        0,  # as many as replica_memory or unit fit into a device
        required=True,
    )
    rename: str | None = key(
        ResourceName(),
        "The name of the shared resource. Default: unchanged (memoryUnits: gpumem of the same "
        "domain).",
        None,
    )
    devices: str | int | tuple[str, ...] = key(
        Devices(),
        "The devices to share: all, a number (the first ones), or a list of names.",
        ALL,
        is_always_printed=True,
    )
    replica_memory: int | None = None  # bytes: `replicas: {memory: 4Gi}`
    memory: str | int | None = key(
        LIMIT_OR_WORD,
        "The memory limit of a replica: fair (an equal share), an amount, or none. Default: "
        "replicas.memory, else none (mps: the memory divided by the replicas, without a reserve).",
        None,
    )
    oversubscribe: bool = key(
        BOOLEAN,
        "Allow limits that add up to more than the memory of the device. The guaranteed part "
        "remains the fair share.",
        False,
    )
    unit: int | None = key(
        UNIT, "The memory of one unit: GiB, MiB or an amount. Default: GiB.", None
    )
    active_thread_percentage: int | None = key(
        Whole(1, 100),
        "The percentage of the threads that an MPS client can use. Default: 100 / replicas.",
        None,
    )
    time_slice: str | None = key(
        Choice(TIME_SLICES),
        "The length of a time slice: default, short, medium or long. Default: the driver's current "
        "setting.",
        None,
    )
    compute_mode: str | None = key(
        Choice(COMPUTE_MODES),
        "The compute mode of the device: default or exclusive-process. Default: the driver's "
        "current setting.",
        None,
    )
    compute_mask: bool | None = key(
        BOOLEAN,
        "Give each replica its own part of the compute units of an AMD GPU, by HSA_CU_MASK, as far "
        "as the GPU's architecture allows it, and if the node offers one resource of AMD GPUs. "
        "Programs can ignore the variable. Default: false.",
        None,
    )
    hints: tuple[str, ...] = key(
        ChoiceList(HINTS, may_be_empty=True),
        "The frameworks whose own variables are set from the memory limit: "
        f"{', '.join(HINTS)}. Default: none.",
        (),
    )
    interposer: str | None = key(
        NAME,
        "The entry of gpuhook.interposers that containers get with the device. Default: none.",
        None,
    )

    @property
    def limit(self) -> str | int | None:
        """The limit of one replica: FAIR, bytes or UNLIMITED; None is the strategy's default.

        The default of MPS divides the device without a reserve, as NVIDIA's plugin does; time
        slices have no limit.
        """
        return self.replica_memory if self.memory is None else self.memory

    def offered_name(self, *, by_default: bool) -> str:
        """Return the name of the shared resource; `by_default` is renameByDefault.

        renameByDefault has no effect on one replica, which is not shared, and none on an explicit
        name.
        """
        is_shared = self.replicas != 1
        return self.rename or self.name + (SHARED if by_default and is_shared else "")


@dataclass(frozen=True, slots=True)
class Sharing:
    """`sharing`: how several containers share a device."""

    strategy: str = NOT_SHARED  # NOT_SHARED, TIME_SLICING, MPS or MEMORY_UNITS
    rename_by_default: bool = key(BOOLEAN, "Name the shared resource <name>.shared.", False)
    refuses_more_than_one: bool = key(
        BOOLEAN,
        "Refuse a container that requests more than one replica.",
        False,
        name="failRequestsGreaterThanOne",
    )
    resources: tuple[SharedResource, ...] = ()
    policy: str = key(
        Choice((PACKED, SPREAD)),
        "The device that serves a request: packed selects the fullest one that has enough free "
        "units, spread the emptiest.",
        PACKED,
    )


# The runtime computes hints from the limit that it enforces: it does not know a limit of MPS.
_NOT_WITH_MPS = (
    (
        "hints",
        "is not supported with mps: the runtime that sets the variables does not know the limit",
        "remove it, and set the variables in the pod",
    ),
)
_NOT_WITH_UNITS = tuple(
    (name, "is not supported with memoryUnits: a unit is its own limit", "remove it")
    for name in ("memory", "replicas", "oversubscribe")
)
_NAMES = "name rename devices"
_SLICES = "timeSlice computeMode hints"


def _shared_resource(replicas: Any = 0, **fields: Any) -> SharedResource:
    if isinstance(replicas, dict):
        return SharedResource(replica_memory=replicas["memory"], **fields)
    return SharedResource(replicas=replicas, **fields)


def units_name(name: str) -> str:
    """Return the default name of the memory units of a resource, amd.com/gpumem of amd.com/gpu."""
    return f"{name.partition('/')[0]}/{UNITS}"


def _units(**fields: Any) -> SharedResource:
    defaults: Values = {"rename": units_name(fields["name"]), "unit": DEFAULT_UNIT}
    return SharedResource(**defaults | fields)


def _strategy(name: str, about: str, strategy: str, keys: str) -> Key:
    """Return the key of a strategy with some keys of Sharing, and its entries."""
    own = tuple(one for one in keys_of(Sharing) if one.name in keys.split())
    entries = Entries(ENTRIES[name], "resource", may_be_empty=False)
    listed = Key("resources", entries, "The resources to share.", "resources", required=True)
    # A container with two replicas still has one MPS client, with the limits of one replica.
    fixed = {"refuses_more_than_one": True} if strategy == MPS else {}

    def build(**fields: Any) -> Sharing:
        return Sharing(strategy=strategy, **fields | fixed)

    return Key(name, Section(build, (*own, listed)), about, strategy, may_be_null=name == "mps")


def _entry(
    keys: str,
    build: Any = _shared_resource,
    unserved: tuple[tuple[str, str, str], ...] = (),
) -> Section:
    known = {one.name: one for one in keys_of(SharedResource)}
    return Section(build, tuple(known[name] for name in keys.split()), unserved)


_BOTH = "renameByDefault failRequestsGreaterThanOne"
_REPLICAS = f"{_NAMES} replicas memory oversubscribe"
ENTRIES = {
    "timeSlicing": _entry(f"{_REPLICAS} {_SLICES} computeMask interposer"),
    "mps": _entry(f"{_REPLICAS} activeThreadPercentage interposer", unserved=_NOT_WITH_MPS),
    "memoryUnits": _entry(f"{_NAMES} unit {_SLICES} interposer", _units, _NOT_WITH_UNITS),
}
SHARING = Section(
    lambda **strategies: next(iter(strategies.values()), Sharing()),
    (
        _strategy("timeSlicing", "Share devices by time slicing.", TIME_SLICING, _BOTH),
        _strategy("mps", "Share devices by NVIDIA MPS.", MPS, _BOTH),
        _strategy(
            "memoryUnits", "Share devices by amounts of their memory.", MEMORY_UNITS, "policy"
        ),
    ),
)
STRATEGIES = {one.name: one.field for one in SHARING.keys}


def plain(sharing: Sharing) -> Values:
    """Return the section `sharing` of a file."""
    for one in SHARING.keys:
        if one.field == sharing.strategy and isinstance(one.kind, Section):
            values = one.kind.plain(sharing)
            for entry, made in zip(values["resources"], sharing.resources, strict=True):
                if one.field != MEMORY_UNITS:
                    size = made.replica_memory
                    entry["replicas"] = made.replicas if size is None else {"memory": size}
            return {one.name: values}
    return {}
