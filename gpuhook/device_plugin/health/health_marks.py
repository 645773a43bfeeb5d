# SPDX-License-Identifier: Apache-2.0
"""Marks of unhealthy GPUs, the evidence that ends them, and their file in the state directory.

Only the plugin writes health/marks.json: a GPU that needs a reset remains marked when the plugin
restarts. `gpuhook health clear` creates a file in health/clear, named by the GPU, which the plugin
removes when it has cleared the marks; so the marks have one writer. The DRA driver has the same in
health-dra.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field, fields

from gpuhook.errors import GpuhookError, fault
from gpuhook.host import documents
from gpuhook.host.hot import files, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

FORMAT = 1
ALL = "all"  # instead of a GPU's UUID
PLUGIN, DRA = SERVICES = ("health", "health-dra")  # directories of the services
_MAX_SIZE = 1 << 20
# The ids of devices whose health is polled, so that they have no marks: see polled_health.py.
POLLED = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|amdgpu_xcp_[0-9]{1,6}")
_NAME = re.compile(rf"all|GPU-[0-9A-Za-z-]{{1,64}}|{POLLED.pattern}")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Identities that change with a reboot, a reload of the driver, or a replugged GPU.

    A value that cannot be read is None, or missing in `slots`, and proves nothing.
    """

    boot: str | None = None  # the kernel's boot id
    driver: str | None = None  # this load of the kernel module
    slots: Mapping[str, str] = field(default_factory=dict)  # the PCI device, by GPU UUID


@dataclass(frozen=True, slots=True)
class HealthMark:
    """One reason for not assigning a GPU, or one MIG instance of it, to containers.

    `instance` is (GPU instance, compute instance), None for the whole GPU; a compute instance None
    is all of the GPU instance. `source` is "xid 79", "lost", "absent" or "action". `by_driver`: the
    mark ends when the driver requires no action. `is_condition`: the mark lasts only while the
    condition does, and is not stored. `first` and `since` are the times of the first and the last
    such event, in seconds since 1970. The last three fields are the Evidence at the last one.
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
    first: float = 0.0
    boot: str | None = None
    driver: str | None = None
    slot: str | None = None

    @property
    def label(self) -> str:
        """The GPU in messages: "GPU 0 (GPU-...)", with the MIG instance of the mark."""
        name = self.gpu if self.index is None else f"GPU {self.index} ({self.gpu})"
        if self.instance is None:
            return name
        gpu_instance, compute_instance = self.instance
        inner = "" if compute_instance is None else f", compute instance {compute_instance}"
        return f"{name}, GPU instance {gpu_instance}{inner}"

    def hits(self, gpu: str, instance: tuple[int, int] | None) -> bool:
        """Return whether the mark applies to a device: a GPU, or an instance of it."""
        if gpu != self.gpu:
            return False
        if self.instance is None:
            return True
        gpu_instance, compute_instance = self.instance
        if instance is None or instance[0] != gpu_instance:
            return False
        return compute_instance is None or instance[1] == compute_instance

    def is_before(self, requested: float, now: float) -> bool:
        """Return whether the mark is older than a request to clear it.

        A mark of the future is older, too: the clock has been set back since.
        """
        return self.since <= requested or self.since > now

    def ended_by(self, now: Evidence) -> str:
        """Return the evidence that the GPU was restarted since, "" without any."""
        pairs = (
            ("the node was rebooted", self.boot, now.boot),
            ("the driver was reloaded", self.driver, now.driver),
            ("the GPU was reconnected", self.slot, now.slots.get(self.gpu)),
        )
        for words, then, today in pairs:
            if then is not None and today is not None and then != today:
                return words
        return ""


def document(mark: HealthMark) -> dict[str, object]:
    """Return `mark` as an object for JSON."""
    return asdict(mark)


def from_document(content: object) -> HealthMark | None:
    """Return the mark of an object made by document(), None for any other content."""
    if not isinstance(content, dict):
        return None
    texts = ("gpu", "source", "reason")
    if not all(isinstance(content.get(name), str) and content[name] for name in texts):
        return None
    known = {name.name: content[name.name] for name in fields(HealthMark) if name.name in content}
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
    "first": (int, float),
    "boot": _TEXT,
    "driver": _TEXT,
    "slot": _TEXT,
}


def _instance(content: object) -> tuple[int, int | None] | None:
    if not isinstance(content, (list, tuple)) or len(content) != 2:
        return None
    first, second = content
    if not isinstance(first, int) or not isinstance(second, (int, type(None))):
        return None
    return first, second


def directory(service: str = PLUGIN) -> str:
    return os.path.join(state.directory(), service)


def path(service: str = PLUGIN) -> str:
    return os.path.join(directory(service), "marks.json")


def read(service: str = PLUGIN) -> tuple[HealthMark, ...]:
    """Return the stored marks, () for a missing or faulty file.

    GpuHealth.update_evidence() decides whether they are still valid.
    """
    try:
        return stored_marks(service)
    except GpuhookError:
        return ()


def stored_marks(service: str = PLUGIN) -> tuple[HealthMark, ...]:
    """Return the stored marks, () without a file. Raises GH1865 for a faulty file."""
    where = path(service)
    try:
        content = _content(where)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise fault("GH1865", path=where, reason=error.strerror or error) from error
    except ValueError as error:
        raise fault("GH1865", path=where, reason="it was not written by the plugin") from error
    marks = content.get("marks")
    stored = map(from_document, marks if isinstance(marks, list) else [])
    return tuple(mark for mark in stored if mark is not None)


def _content(where: str) -> dict[str, Any]:
    if not state.usable(os.lstat(where)):
        raise fault("GH1865", path=where, reason="users other than root can write to it")
    content = documents.parse_json_object(files.read(where, _MAX_SIZE))
    if content.get("format") != FORMAT:
        raise ValueError(where)
    return content


def write(marks: Iterable[HealthMark], service: str = PLUGIN) -> None:
    """Store the marks that must outlive the plugin. Raises OSError."""
    stored = [document(mark) for mark in marks if not mark.is_condition]
    os.makedirs(directory(service), 0o755, exist_ok=True)
    text = json.dumps({"format": FORMAT, "marks": stored}, indent=2) + "\n"
    files.replace(path(service), text.encode(), mode=0o644)


def request_clear(gpu: str) -> None:
    """Request that the plugin, and a DRA driver, clear the marks of a GPU's UUID, or of ALL.

    Raises GH1860 and OSError.
    """
    if not _NAME.fullmatch(gpu):
        raise fault("GH1860", name=gpu)
    for service in SERVICES:
        if service == PLUGIN or os.path.isdir(directory(service)):
            requests = os.path.join(directory(service), "clear")
            os.makedirs(requests, 0o755, exist_ok=True)
            files.replace(os.path.join(requests, gpu), b"", mode=0o644)


def clear_requests(service: str = PLUGIN) -> dict[str, float]:
    """Return the time of each request, in seconds since 1970, by GPU."""
    requests: dict[str, float] = {}
    try:
        with os.scandir(os.path.join(directory(service), "clear")) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                if _NAME.fullmatch(entry.name) and state.usable(about):
                    requests[entry.name] = about.st_mtime
    except OSError:
        return requests
    return requests


def remove_request(gpu: str, service: str = PLUGIN) -> None:
    """Remove a request; a missing one is no error. Raises OSError."""
    try:
        os.unlink(os.path.join(directory(service), "clear", gpu))
    except FileNotFoundError:
        return
