# SPDX-License-Identifier: Apache-2.0
"""The kinds of parameters in device classes and claims, and their keys.

gpuhook's kind has the keys of the device plugin's `sharing`, and applies to all devices. The kinds
of a vendor's own driver apply to GPUs or to instances, so that claims for that driver work
unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from gpuhook.device_plugin.config.grammar.edit_values import NAME
from gpuhook.device_plugin.config.grammar.grammar import Key, Section, key, section_of
from gpuhook.device_plugin.config.grammar.memory_values import LIMIT
from gpuhook.device_plugin.config.grammar.value_kinds import (
    BOOLEAN,
    Choice,
    ChoiceList,
    UnfitError,
    ValueKind,
    Whole,
    unfit,
)
from gpuhook.device_plugin.config.sharing_section import COMPUTE_MODES, HINTS, TIME_SLICES
from gpuhook.host.hot.settings import AUTO, REFUSE, START

OWN_VERSION, OWN_KIND = "gpuhook.io/v1", "GpuConfig"
TIME_SLICING_STRATEGY, MPS_STRATEGY = STRATEGY_WORDS = ("TimeSlicing", "MPS")
INTERVALS = tuple(map(str.capitalize, TIME_SLICES))
DEFAULT_LIMIT = "default"  # the key of a limit for all other devices
_DEVICE = re.compile(r"[0-9]{1,3}|[A-Za-z]+-[0-9A-Za-z-]+|default")


@dataclass(frozen=True, slots=True)
class MpsSettings:
    """`mps`: the device is used through an MPS server.

    `memory` limits each client on each device in bytes, `limits` on those that they name: by index,
    by UUID or with DEFAULT_LIMIT.
    """

    active_thread_percentage: int | None = key(
        Whole(1, 100), "The percentage of the threads that a client can use.", None
    )
    memory: int | None = key(LIMIT, "The memory of each client on each device.", None)
    limits: tuple[tuple[str, int], ...] = ()

    def limit(self, position: int, uuid: str) -> int | None:
        """Return the limit of a client on the device at a position of the claim."""
        named = dict(self.limits)
        names = (uuid, str(position), DEFAULT_LIMIT)
        return next((named[name] for name in names if name in named), self.memory)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """`memory`: the limit of a claim on each device, and what happens if nothing enforces it."""

    limit: int | None = key(LIMIT, "The most memory of a device that a claim may use.", None)
    on_failure: str | None = key(
        Choice((AUTO, REFUSE, START)),
        "Without enforcement: refuse the claim, start its pods, or auto: refuse it if it requests "
        "the capacity `memory` itself.",
        None,
    )


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """The settings of a device for a claim. None: no entry sets it."""

    time_slice: str | None = key(Choice(TIME_SLICES), "The length of a time slice.", None)
    compute_mode: str | None = key(Choice(COMPUTE_MODES), "The compute mode of the device.", None)
    mps: MpsSettings | None = key(section_of(MpsSettings), "Use an MPS server.", None)
    memory: MemorySettings = key(
        section_of(MemorySettings), "The memory of a device.", MemorySettings()
    )
    compute_mask: bool | None = key(BOOLEAN, "Give the claim its own compute units.", None)
    hints: tuple[str, ...] | None = key(
        ChoiceList(HINTS, may_be_empty=True), "The frameworks that learn the memory limit.", None
    )
    interposer: str | None = key(NAME, "An entry of gpuhook.interposers.", None)

    def with_later(self, later: DeviceSettings) -> DeviceSettings:
        """Return these settings with those that a later entry sets.

        A server and time slices exclude each other: the later one applies. Of two memory limits the
        smaller one does, and `refuse` remains: a claim cannot raise the limit of its class.
        """
        chosen = {
            one.name: value
            for one in fields(later)
            if one.name != "memory" and (value := getattr(later, one.name)) is not None
        }
        if "mps" in chosen:
            chosen = {"time_slice": None, "compute_mode": None} | chosen
        elif "time_slice" in chosen:
            chosen["mps"] = None
        limits = [one.memory.limit for one in (self, later) if one.memory.limit is not None]
        policies = (later.memory.on_failure, self.memory.on_failure)
        policy = REFUSE if REFUSE in policies else policies[0] or policies[1]
        memory = MemorySettings(min(limits, default=None), policy)
        return replace(self, memory=memory, **chosen)


@dataclass(frozen=True, slots=True)
class ConfigKind:
    """A kind of parameters: its keys, and whether it is for GPUs, instances, or all devices.

    `refusal` is why gpuhook refuses all of its objects.
    """

    section: Section
    is_for_instances: bool | None = None
    refusal: str = ""


class DeviceLimits(ValueKind):
    """Limits by device: an index, a UUID or `default`."""

    __slots__ = ()

    def parse(self, value: object) -> tuple[tuple[str, int], ...]:
        if not isinstance(value, dict):
            raise unfit("a mapping", value)
        found = []
        for name, size in value.items():
            if not isinstance(name, str) or not _DEVICE.fullmatch(name):
                raise unfit("a mapping of indices, UUIDs or `default`", name)
            try:
                found.append((name, int(LIMIT.parse(size))))
            except UnfitError as error:
                raise UnfitError(f"{name}: {error.message}", error.hint) from error
        return tuple(found)


_NO_USERS = "gpuhook's MPS servers have one user: containers of several users share it already"


class _OneUser(ValueKind):
    """False: the server of several users is not supported."""

    __slots__ = ()

    def parse(self, value: object) -> bool:
        if BOOLEAN.parse(value):
            raise UnfitError("must be false, found true", _NO_USERS)
        return False


def _mps(
    percentage: int | None = None,
    limit: int | None = None,
    limits: tuple[tuple[str, int], ...] = (),
    **_checked: bool,
) -> MpsSettings:
    return MpsSettings(percentage, limit, limits)


def _sharing(
    strategy: str, interval: str | None = None, mps: MpsSettings | None = None
) -> DeviceSettings:
    if strategy == MPS_STRATEGY:
        return DeviceSettings(mps=mps or MpsSettings())
    return DeviceSettings(time_slice=interval and interval.lower())


def _whole(sharing: DeviceSettings | None = None) -> DeviceSettings:
    return sharing or DeviceSettings()


_INTERVAL = Section(
    lambda interval=None: interval,
    (Key("interval", Choice(INTERVALS), "The time slice.", "interval"),),
)
_MPS = Section(
    _mps,
    (
        Key("defaultActiveThreadPercentage", Whole(1, 100), "Threads of a client.", "percentage"),
        Key("defaultPinnedDeviceMemoryLimit", LIMIT, "Memory of a client.", "limit"),
        Key("defaultPerDevicePinnedMemoryLimit", DeviceLimits(), "The same by device.", "limits"),
        Key("multiUser", _OneUser(), "A server for several users.", "multi_user"),
    ),
)
_STRATEGY = Key("strategy", Choice(STRATEGY_WORDS), "How to share.", "strategy", required=True)
_SLICES = Key("timeSlicingConfig", _INTERVAL, "The time slices.", "interval")
_SERVER = Key("mpsConfig", _MPS, "The MPS server.", "mps")


def _kind(*keys: Key, is_for_instances: bool) -> ConfigKind:
    sharing = Key("sharing", Section(_sharing, (_STRATEGY, *keys)), "Sharing.", "sharing")
    return ConfigKind(Section(_whole, (sharing,)), is_for_instances)


def _refused(reason: str) -> ConfigKind:
    return ConfigKind(Section(dict, ()), refusal=reason)


_DOMAINS = "gpuhook has no compute domains: keep the vendor's driver for them"
OWN = ConfigKind(section_of(DeviceSettings))
# The kinds of the driver whose apiVersion a vendor names.
OF_VENDOR = {
    "GpuConfig": _kind(_SLICES, _SERVER, is_for_instances=False),
    "MigDeviceConfig": _kind(_SERVER, is_for_instances=True),
    "VfioDeviceConfig": _refused("gpuhook passes no whole PCI devices to virtual machines"),
    "ComputeDomainChannelConfig": _refused(_DOMAINS),
    "ComputeDomainDaemonConfig": _refused(_DOMAINS),
}


def contradiction(values: dict[str, Any]) -> tuple[str, str] | None:
    """Return (path, message) of a key that another one of well-formed values excludes."""
    sharing = values.get("sharing") or {}
    word = {"timeSlicingConfig": TIME_SLICING_STRATEGY, "mpsConfig": MPS_STRATEGY}
    for name, strategy in word.items():
        if name in sharing and sharing.get("strategy") != strategy:
            return f"sharing.{name}", f"needs the strategy {strategy}"
    for name in ("timeSlice", "computeMode"):
        if name in values and "mps" in values:
            return name, "excludes `mps`: the server sets it, or needs none"
    return None
