# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container for commands, with what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gpuhook.containers.hot import ledger
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state
from gpuhook.memory_limits import guard_state, limit_plan, limit_state, visible_gpus
from gpuhook.memory_limits.limit_worker import LimitDrivers
from gpuhook.memory_limits.warm import limit_records
from gpuhook.request.memory_request import NO_LIMIT
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.hot.memory_vendors import vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.memory_limits.guard_state import Watched
    from gpuhook.memory_limits.limit_state import LimitState
    from gpuhook.request.memory_request import MemoryLimit
    from gpuhook.target.running_container import Target
    from gpuhook.vendors.interfaces.memory_interface import LimitDriver
    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.limit_device import LimitSupport


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """A container, by its ledger entry, and its limits; `found` is None if it is not visible."""

    container: str
    pod: dict[str, Any]
    limits: tuple[LimitState, ...]
    found: Found | None = None

    @property
    def name(self) -> str | None:
        """Return its name in its engine or pod, None if it is unknown."""
        return (self.found.name if self.found else "") or self.pod.get("container")

    @property
    def image(self) -> str | None:
        """Return its image, None if it is unknown."""
        return (self.found.image if self.found else "") or None

    def findings(self) -> list[GpuhookError]:
        """Return what is wrong: GH1785, GH1786."""
        found = (limit_state.finding(self.container, limit) for limit in self.limits)
        return [error for error in found if error is not None]

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "container": self.container,
            "pod": self.pod.get("pod"),
            "namespace": self.pod.get("namespace"),
            "name": self.name,
            "image": self.image,
            "gpus": [document(limit) for limit in self.limits],
        }


class LimitReader:
    """The drivers' limits; a context manager, in which a driver is opened on first use.

    `library` is "" if it is not found; `trouble` is why a driver could not be opened.
    """

    def __init__(self, find_library: Callable[[], str]) -> None:
        self._find = find_library
        self._drivers = LimitDrivers(self.find_library)
        self.trouble: GpuhookError | None = None

    def __enter__(self) -> LimitReader:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        self._drivers.__exit__(*exc)

    @cached_property
    def library(self) -> str:
        """Return the path of the driver's library, "" if it is not found."""
        try:
            return self._find()
        except GpuhookError:
            return ""

    def find_library(self) -> str:
        """Return the path of the driver's library. Raises GH1200 and GH1201."""
        return self.library or self._find()

    def driver(self, device: str) -> LimitDriver | None:
        """Return the driver of a device, None if it has no limits or does not answer."""
        try:
            return self._drivers.driver(device)
        except GpuhookError as error:
            self.trouble = self.trouble or error
            return None

    @cached_property
    def nodes(self) -> dict[Vendor, LimitSupport]:
        """Return whether this node can enforce limits, by vendor; the first one if none is here."""
        found = {
            vendor: vendor.limit_support(self.find_library, state.host_root())
            for vendor in vendors()
        }
        present = {vendor: support for vendor, support in found.items() if support.is_present}
        return present or dict(list(found.items())[:1])

    @cached_property
    def watched(self) -> dict[tuple[str, str], Watched]:
        """Return what the device plugin's guard watches, by container and device."""
        return guard_state.watched()


def entry_limits(
    entry: dict[str, Any], reader: LimitReader, found: Found | None
) -> ContainerLimits:
    """Return the limits in a ledger entry; `found` is its container, None if it is not visible."""
    watched = guard_state.guarded_devices(entry["id"], reader.watched)
    limits = limit_state.limits_of(entry, None, watched, reader.driver)
    return _view(entry["id"], entry, limits, reader, found)


def container_limits(target: Target, reader: LimitReader) -> ContainerLimits:
    """Return the limits of a running container on all of its GPUs, as far as they are known."""
    noted = limit_records.records_of(target.entry)
    gpus = []
    try:
        gpus = visible_gpus.visible_gpus(target, reader.find_library, noted)
    except GpuhookError as error:
        reader.trouble = reader.trouble or error
    names = [gpu.id for gpu in gpus if not gpu.is_divided]
    try:
        cgroups = limit_plan.directories(target)
    except GpuhookError as error:
        reader.trouble = reader.trouble or error
        cgroups = []
    found = limit_state.limits_of(target.entry, target.spec, names, reader.driver, cgroups)
    pod = ledger.pod_of(target.spec.get("annotations")) or target.entry
    return _view(target.found.id, pod, found, reader, target.found)


def _view(
    container: str,
    pod: dict[str, Any],
    states: Iterable[LimitState],
    reader: LimitReader,
    found: Found | None,
) -> ContainerLimits:
    """Return the limits with the state of the guard."""
    watched = guard_state.guarded_devices(container, reader.watched)
    limits = tuple(replace(limit, watched=watched.get(limit.gpu)) for limit in states)
    return ContainerLimits(container, pod, limits, found)


def document(limit: LimitState) -> dict[str, Any]:
    """Return a limit as JSON has it: bytes, and null for no limit and for unknown values."""
    record = limit.record
    return {
        "gpu": limit.gpu,
        "granted": _values(limit.granted),
        "ledger": _values(record.limit if record else None),
        "driver": _document(limit.hard, limit.soft) if limit.held else None,
        "used": used(limit),
        "by": by(limit),
        "guard": guard_state.document(limit.watched),
        "agrees": limit.agrees,
        "trouble": limit.trouble or (record.trouble if record else ""),
        "guarantee": record.guarantee if record else "",
        "cgroups": list(limit.held) or (record.cgroups if record else []),
    }


def by(limit: LimitState) -> str:
    """Return what enforces the limit: the driver or the kernel, by its own report or the ledger's.

    Otherwise the device plugin's guard, if it terminates processes above their limit.
    """
    record = limit.record
    is_held = record is not None and record.is_limited and record.is_enforced
    if limit.held:
        # A limit of all that the card has is a limit only if it was set.
        is_limited = any(one.is_limited for one in limit.held.values() if one)
        is_held = is_limited or (is_held and limit.agrees is True)
    return vendor_of(limit.gpu).limited_by if is_held else guard_state.by(limit.watched)


def used(limit: LimitState) -> int | None:
    """Return the container's memory, by the driver; else by the guard, if it is above a limit."""
    over = limit.watched.over if limit.watched else None
    return over["used"] if limit.used is None and over else limit.used


def _values(limit: MemoryLimit | None) -> dict[str, int | None] | None:
    return None if limit is None else _document(limit.hard, limit.soft)


def _document(hard: int, soft: int) -> dict[str, int | None]:
    return {"limit": None if hard == NO_LIMIT else hard, "request": soft}
