# SPDX-License-Identifier: Apache-2.0
"""Why a GPU is unhealthy, and what may end that: marks, and the evidence that wipes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is another after a reboot, a reload of the driver, or a GPU's being plugged in anew.

    Each is None, or missing in `slots`, where it cannot be read; that proves nothing.
    """

    boot: str | None = None  # the kernel's boot id
    driver: str | None = None  # the loaded kernel module, this very loading of it
    slots: Mapping[str, str] = field(default_factory=dict)  # by GPU UUID: its PCI device


@dataclass(frozen=True, slots=True)
class HealthMark:
    """One reason for which a GPU, or one MIG instance of it, is not given to containers.

    `instance` is (GPU instance, compute instance), the latter None for all of the GPU instance;
    without it the mark is on the GPU as a whole. `source` is "xid 79", "lost", "absent" or
    "action". `by_driver`: the driver's word that it needs no action wipes the mark. `is_condition`:
    it holds as long as it is seen, and proves nothing later. `since` is in seconds since 1970. The
    last three are the Evidence as it was then.
    """

    gpu: str
    source: str
    reason: str
    remedy: str = ""
    index: int | None = None
    instance: tuple[int, int | None] | None = None
    by_driver: bool = True
    is_condition: bool = False
    since: float = 0.0
    boot: str | None = None
    driver: str | None = None
    slot: str | None = None

    @property
    def label(self) -> str:
        """The GPU as people call it: "GPU 0 (GPU-...)", with the MIG instance if it is one's."""
        name = self.gpu if self.index is None else f"GPU {self.index} ({self.gpu})"
        if self.instance is None:
            return name
        gpu_instance, compute_instance = self.instance
        inner = "" if compute_instance is None else f", compute instance {compute_instance}"
        return f"{name}, GPU instance {gpu_instance}{inner}"

    def hits(self, gpu: str, instance: tuple[int, int] | None) -> bool:
        """Return whether a device of `gpu`, an instance of it or the whole, is meant."""
        if gpu != self.gpu:
            return False
        if self.instance is None:
            return True
        gpu_instance, compute_instance = self.instance
        if instance is None or instance[0] != gpu_instance:
            return False
        return compute_instance is None or instance[1] == compute_instance

    def ended_by(self, now: Evidence) -> str:
        """Return what has proved since that the GPU was started anew, "" if nothing has."""
        pairs = (
            ("the node was booted anew", self.boot, now.boot),
            ("the driver was loaded anew", self.driver, now.driver),
            ("the GPU was plugged in anew", self.slot, now.slots.get(self.gpu)),
        )
        for words, then, today in pairs:
            if then is not None and today is not None and then != today:
                return words
        return ""


def document(mark: HealthMark) -> dict[str, object]:
    """Return `mark` as an object for JSON."""
    return asdict(mark)


def from_document(found: object) -> HealthMark | None:
    """Return the mark that an object of document() says, None for anything else."""
    if not isinstance(found, dict):
        return None
    texts = ("gpu", "source", "reason")
    if not all(isinstance(found.get(name), str) and found[name] for name in texts):
        return None
    known = {name.name: found[name.name] for name in fields(HealthMark) if name.name in found}
    known["instance"] = _instance(known.get("instance"))
    for name, kinds in _KINDS.items():
        if name in known and not isinstance(known[name], kinds):
            del known[name]
    return HealthMark(**known)


_TEXT = (str, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    "remedy": (str,),
    "index": (int, type(None)),
    "by_driver": (bool,),
    "is_condition": (bool,),
    "since": (int, float),
    "boot": _TEXT,
    "driver": _TEXT,
    "slot": _TEXT,
}


def _instance(found: object) -> tuple[int, int | None] | None:
    if not isinstance(found, (list, tuple)) or len(found) != 2:
        return None
    first, second = found
    if not isinstance(first, int) or not isinstance(second, (int, type(None))):
        return None
    return first, second
