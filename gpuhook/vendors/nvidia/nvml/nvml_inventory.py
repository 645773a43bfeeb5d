# SPDX-License-Identifier: Apache-2.0
"""The driver and its GPUs as NVML reports them, through pynvml on a library at a given path.

pynvml by itself opens the libnvidia-ml.so.1 that the host's loader finds, so it is made to use a
library opened by full path (see nvml_sessions.py). A fact that the GPU or an old library does not
report is None; a GPU that is lost meanwhile is listed with the reason. Source: nvml.h.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, TypeVar

import pynvml

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.inventory.inventory import FactRule, Gpu, fact_rules
from gpuhook.vendors.nvidia.nvml import nvml_device, nvml_mig, nvml_sessions
from gpuhook.vendors.nvidia.warm import nvml_constants
from gpuhook.vendors.nvidia.warm.nvml_library import version_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_MOST_GPUS = 256  # the minors of the major 195
# Errors after which no answer of the GPU is reliable.
_LOST = nvml_constants.LOSSES


@contextmanager
def opened(path: str, module_version: str | None = None) -> Iterator[Nvml]:
    """Load the NVML library at `path`, start it, and shut it down at the end.

    NVML counts its starts: opened within opened, in this thread or another, is one library that
    runs until the last of them ends. `module_version` (of the loaded kernel module) is for the
    message about a mismatch. Raises GH1202 to GH1206.
    """
    try:
        library = nvml_sessions.load(path)
    except OSError as error:
        raise fault("GH1202", path=path, reason=error) from error
    with nvml_sessions.used(library):
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise _start_fault(error, path, module_version) from error
        try:
            yield Nvml(path)
        finally:
            nvml_device.answered(pynvml.nvmlShutdown)


def _start_fault(error: Any, path: str, module_version: str | None) -> Exception:
    code = error.value
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return fault(
            "GH1203",
            path=path,
            library=version_of(path) or "unknown version",
            module=module_version or "of another version",
        )
    if code in (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND):
        return fault("GH1204", path=path, reason=error)
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        return fault("GH1205", path=path)
    if code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
        return fault("GH1202", path=path, reason="it has no nvmlInit: not an NVML library")
    return fault("GH1206", path=path, reason=error)


class Nvml:
    """The started NVML that pynvml calls."""

    def __init__(self, path: str) -> None:
        self._path = path

    def driver_version(self) -> str | None:
        """Return the version of the driver, "580.95.05"."""
        return nvml_device.answered(pynvml.nvmlSystemGetDriverVersion)

    def cuda_version(self) -> str | None:
        """Return the highest CUDA version that the driver supports, "13.0"."""
        number = nvml_device.answered(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        return None if number is None else f"{number // 1000}.{number % 1000 // 10}"

    def gpus(self) -> tuple[Gpu, ...]:
        """Return all GPUs by index, including lost ones. Raises GH1206."""
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise fault("GH1206", path=self._path, reason=error) from error
        if count > _MOST_GPUS:
            raise fault("GH1206", path=self._path, reason=f"it reports {count} GPUs")
        return tuple(_gpu(index) for index in range(count))


class _LostError(Exception):
    """The GPU was lost between two calls."""


def _gpu(index: int) -> Gpu:
    facts: dict[str, Any] = {}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return Gpu(index=index, lost=_LOST.get(error.value) or f"NVML says: {error}")
    try:
        for name, question in QUESTIONS.items():
            facts[name] = question(handle)
        if facts["mig_mode"] == "enabled":
            uuid, memory = facts["uuid"], facts["memory_bytes"]
            facts["instances"] = nvml_mig.instances(handle, _call, uuid, memory)
    except _LostError as error:
        facts["lost"] = str(error)
    return Gpu(index=index, **facts)


def _call(call: Callable[..., T], *arguments: object) -> T | None:
    """Return the answer, None if there is none; raises _LostError."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        code = error.value
        if code in _LOST:
            raise _LostError(_LOST[code]) from error
        return None
    except UnicodeDecodeError:  # garbage of a library must not end the program
        return None


def _pci_bus_id(handle: object) -> str | None:
    info = _call(pynvml.nvmlDeviceGetPciInfo, handle)
    if info is None:
        return None
    # Older structures have no busId, and four digits of the domain.
    text = info.busId or info.busIdLegacy
    if isinstance(text, bytes):  # pynvml's structures decode it or not, by release
        text = text.decode("ascii", "replace")
    domain, _, rest = text.partition(":")
    return f"{domain:0>8}:{rest}".upper()


def _compute_capability(handle: object) -> str | None:
    pair = _call(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    return None if pair is None else f"{pair[0]}.{pair[1]}"


def _memory_bytes(handle: object) -> int | None:
    memory = _call(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else int(memory.total)


def _mig_mode(handle: object) -> str | None:
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
            return "unsupported"
        if error.value in _LOST:
            raise _LostError(_LOST[error.value]) from error
        return None
    return "enabled" if current == pynvml.NVML_DEVICE_MIG_ENABLE else "disabled"


def _reader(rule: FactRule) -> Callable[[object], Any]:
    """Return the question for a fact that NVML returns as one number or text."""

    def ask(handle: object) -> Any:
        value = _call(getattr(pynvml, rule.nvml), handle)
        return value if rule.words is None else rule.words.get(value)

    return ask


# Facts that NVML returns as a structure or as several values.
_READERS: dict[str, Callable[[object], Any]] = {
    "pci_bus_id": _pci_bus_id,
    "compute_capability": _compute_capability,
    "memory_bytes": _memory_bytes,
    "mig_mode": _mig_mode,
}


def _questions() -> dict[str, Callable[[object], Any]]:
    """Return the question of each fact, those that identify the GPU first: it may get lost."""
    rules = fact_rules(Gpu)
    named = [name for name, rule in rules.items() if rule.nvml or name in _READERS]
    named.sort(key=lambda name: name not in ("uuid", "pci_bus_id"))
    return {name: _READERS.get(name) or _reader(rules[name]) for name in named}


QUESTIONS = _questions()
