# SPDX-License-Identifier: Apache-2.0
"""The keys below `sharing`: one section for each way to share devices.

`name`, `rename`, `devices` and whole `replicas` are those of NVIDIA's plugin.
"""

from __future__ import annotations

from gpuhook.device_plugin.config import configuration as facts
from gpuhook.device_plugin.config.grammar import memory_values
from gpuhook.device_plugin.config.grammar.edit_values import NAME
from gpuhook.device_plugin.config.grammar.grammar import Either, Entries, Key, Section
from gpuhook.device_plugin.config.grammar.name_values import Devices, ResourceName
from gpuhook.device_plugin.config.grammar.value_kinds import Boolean, Choice, ChoiceKind, Whole

MOST_REPLICAS = 4096  # of one device: the kubelet takes lists of 4 MiB, some 65,000 devices

_NAMES = (
    Key("name", ResourceName(), "The resource that is shared.", "name", required=True),
    Key("rename", ResourceName(), "What it is called when it is shared.", "rename"),
    Key(
        "devices",
        Devices(),
        "Which of its devices: all, the first ones by their count, or a list.",
        "devices",
    ),
)

_REPLICAS = (
    Key(
        "replicas",
        Either(
            memory_values.Replicas(1, MOST_REPLICAS),
            Section(
                (
                    Key(
                        "memory",
                        memory_values.LIMIT,
                        "As many replicas as fit: the memory of each, which is its limit, too.",
                        required=True,
                    ),
                )
            ),
        ),
        "How many containers may have each device; 1 is not shared.",
        "replicas",
        required=True,
    ),
    Key(
        "memory",
        memory_values.LimitValue(),
        "What a replica may have of a device's memory: fair (its part), an amount, or none (no "
        "limit).",
        "memory",
    ),
    Key(
        "oversubscribe",
        Boolean(),
        "Limits may add up to more than a device has; what is guaranteed stays the fair share.",
        "oversubscribe",
    ),
)

_SLICES = (
    Key(
        "timeSlice",
        Choice(facts.TIME_SLICES),
        "How long a process has the device at a time: default, short, medium or long.",
        "time_slice",
    ),
    Key(
        "computeMode",
        Choice(facts.COMPUTE_MODES),
        "The compute mode that the device is put in: default or exclusive-process.",
        "compute_mode",
    ),
)

_HINTS = (
    Key(
        "hints",
        ChoiceKind(facts.HINTS, may_be_empty=True),
        "The frameworks that are told of the limit by their own variables.",
        "hints",
    ),
)

_INTERPOSER = (
    Key(
        "interposer",
        NAME,
        "The one of gpuhook.interposers that containers get beside the device.",
        "interposer",
    ),
)

_CLIENT = (
    Key(
        "activeThreadPercentage",
        Whole(1, 100),
        "The part of the threads that an MPS client may use. Default: 100 / replicas.",
        "active_thread_percentage",
    ),
)

_UNIT = (
    Key(
        "unit",
        memory_values.UnitValue(),
        "The memory of one unit: GiB, MiB or an amount.",
        "unit",
    ),
)


_NOT_OF_UNITS = tuple(
    (name, "does not go with memoryUnits: units are their own limit", "leave it out")
    for name in ("memory", "replicas", "oversubscribe")
)

# The runtime computes hints from the limit that it is to set: of MPS it knows none.
_NOT_OF_MPS = (
    (
        "hints",
        (
            "does not go with mps: its server holds the limit, and the runtime that would set the "
            "variables does not know it"
        ),
        "leave it out, and set the variables in the pod",
    ),
)


def _entries(*keys: Key, unserved: tuple[tuple[str, str, str], ...] = ()) -> Entries:
    return Entries(Section(keys, unserved), "resource", may_be_empty=False)


def _strategy(entries: Entries) -> Section:
    return Section(
        (
            Key(
                "renameByDefault",
                Boolean(),
                "Call the shared resource <name>.shared.",
                "rename_by_default",
            ),
            Key(
                "failRequestsGreaterThanOne",
                Boolean(),
                "Refuse a container that asks for more than one replica.",
                "refuses_more_than_one",
            ),
            Key("resources", entries, "What is shared.", "resources", required=True),
        )
    )


_TIME_SLICING = _strategy(_entries(*_NAMES, *_REPLICAS, *_SLICES, *_HINTS, *_INTERPOSER))
_MPS = _strategy(_entries(*_NAMES, *_REPLICAS, *_CLIENT, *_INTERPOSER, unserved=_NOT_OF_MPS))
_MEMORY_UNITS = Section(
    (
        Key(
            "policy",
            Choice((facts.PACKED, facts.SPREAD)),
            "The device that a container gets its units of: the fullest that has them, or the "
            "emptiest.",
            "policy",
        ),
        Key(
            "resources",
            _entries(*_NAMES, *_UNIT, *_SLICES, *_HINTS, *_INTERPOSER, unserved=_NOT_OF_UNITS),
            "What is shared.",
            "resources",
            required=True,
        ),
    )
)

SHARING = Section(
    (
        Key("timeSlicing", _TIME_SLICING, "Share devices by time slices."),
        Key("mps", _MPS, "Share devices by NVIDIA MPS.", may_be_null=True),
        Key("memoryUnits", _MEMORY_UNITS, "Share devices by amounts of their memory."),
    )
)
