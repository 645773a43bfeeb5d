# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container for each device: its grants, narrowed by its variables.

A grant is a mount of /dev/null whose path has the amounts, as a device plugin makes it. A tenant
can set any variable and mount a volume at such a path; both can only lower a grant. Without a
grant, as outside of Kubernetes, the variables set the limit.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host.hot import fastjson
from gpuhook.request import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

    from gpuhook.request.parse import Vocabulary

MIB = 1 << 20
_MAX_DIGITS = 9  # of MiB: a PiB
_ASKED = "asked"
_GIB = 1 << 30
NO_LIMIT = (1 << 64) - 1  # bytes: of a container with a request only
# What enforces a limit, in the ledger: the vendor's driver, or the kernel's controller.
BY_DRIVER, BY_KERNEL = "driver", "kernel"


class MemoryLimit:
    """The memory of one device for one container, in bytes.

    No allocation exceeds `hard`. `soft` is reserved for the container; 0 reserves nothing.
    `is_asked`: the pod itself requests the limit. If the driver cannot enforce it, such a container
    does not start.
    """

    __slots__ = ("device", "hard", "is_asked", "soft")

    def __init__(self, device: str, hard: int, soft: int = 0, *, is_asked: bool = False) -> None:
        self.device = device
        self.hard = hard
        self.soft = min(soft, hard)
        self.is_asked = is_asked

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryLimit) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"MemoryLimit{self._values()}"

    def _values(self) -> tuple[str, int, int, bool]:
        return self.device, self.hard, self.soft, self.is_asked


class MemoryRequest:
    """The values of the two variables, in bytes; None for one that is not set."""

    __slots__ = ("limit", "request")

    def __init__(self, request: int | None, limit: int | None) -> None:
        self.request = request
        self.limit = limit


def mount_path(prefix: str, limit: MemoryLimit) -> str:
    """Return the container path of the mount that grants `limit`, whole MiB of it.

    >>> mount_path("/run/m", MemoryLimit("GPU-1", 4 << 30, 1 << 30))
    '/run/m/GPU-1,hard=4096,soft=1024'
    """
    words = [limit.device, f"hard={limit.hard // MIB}", f"soft={limit.soft // MIB}"]
    return "/".join((prefix, ",".join([*words, _ASKED] if limit.is_asked else words)))


def granted(spec: dict[str, Any], prefix: str) -> dict[str, MemoryLimit]:
    """Return the grant of each device by the mounts of a spec, by device.

    Of two grants for one device the smaller amounts apply, and the limit is the pod's own request.
    The source of the mount is ignored: CRI-O leaves a mount out for a later one of the same path,
    and a pod's volumes come after its device plugin's mounts. Another path below `prefix` grants
    nothing.
    """
    found: dict[str, MemoryLimit] = {}
    below = prefix + "/"
    for mount in fastjson.objects(spec, "mounts"):
        destination = mount.get("destination")
        if not isinstance(destination, str) or not destination.startswith(below):
            continue
        limit = _parsed(destination[len(below) :])
        if limit is not None:
            found[limit.device] = _both(found.get(limit.device, limit), limit)
    return found


def _both(one: MemoryLimit, other: MemoryLimit) -> MemoryLimit:
    if one == other:
        return one
    hard, soft = min(one.hard, other.hard), min(one.soft, other.soft)
    return MemoryLimit(one.device, hard, soft, is_asked=True)


def memory_request(environment: Mapping[str, str], words: Vocabulary) -> MemoryRequest:
    """Return the values of the two variables. Raises GH1022 for a value other than MiB.

    An empty variable is not set.
    """
    return MemoryRequest(
        _mebibytes(environment, words.memory_request_env),
        _mebibytes(environment, words.memory_limit_env),
    )


def _own_request(requested: MemoryRequest, grants: Collection[MemoryLimit]) -> MemoryRequest:
    """Return the request `requested` without the amounts that a device plugin repeats in variables.

    It repeats a grant for runtimes that do not know the mounts. That is not a request of the pod,
    and does not apply to devices that have no grant.
    """
    softs, hards = {grant.soft for grant in grants}, {grant.hard for grant in grants}
    return MemoryRequest(
        None if requested.request in softs else requested.request,
        None if requested.limit in hards else requested.limit,
    )


def limits(spec: dict[str, Any], devices: Iterable[str], words: Vocabulary) -> list[MemoryLimit]:
    """Return the limit of each of `devices` that has one.

    `devices` are named as in grants. Raises the faults of memory_request(), and GH1023 for a
    request above the limit.
    """
    grants = granted(spec, words.memory_prefix)
    requested = _own_request(memory_request(parse.environment(spec), words), grants.values())
    if requested.request and requested.limit and requested.request > requested.limit:
        raise fault(
            "GH1023",
            request=requested.request // MIB,
            limit=requested.limit // MIB,
            request_env=words.memory_request_env,
            limit_env=words.memory_limit_env,
        )
    found = (narrowed(device, grants.get(device), requested) for device in dict.fromkeys(devices))
    return [limit for limit in found if limit is not None]


def narrowed(
    device: str, grant: MemoryLimit | None, requested: MemoryRequest
) -> MemoryLimit | None:
    """Return `grant` lowered by the request `requested`; None if neither sets a limit.

    A request makes the limit one that the pod itself requests.
    """
    if grant is None:
        if not (requested.limit or requested.request):
            return None
        hard = requested.limit or NO_LIMIT
        return MemoryLimit(device, hard, requested.request or 0, is_asked=True)
    hard = min(grant.hard, requested.limit or grant.hard)
    soft = min(grant.soft, requested.request or grant.soft)
    is_asked = grant.is_asked or bool(requested.limit or requested.request)
    return MemoryLimit(device, hard, soft, is_asked=is_asked)


def amount(size: int) -> str:
    """Return bytes as Kubernetes writes them: 4Gi, 3776Mi; "none" for NO_LIMIT.

    >>> amount(4 << 30), amount(3776 << 20)
    ('4Gi', '3776Mi')
    """
    if size == NO_LIMIT:
        return "none"
    if size and size % _GIB == 0:
        return f"{size // _GIB}Gi"
    return f"{size // MIB}Mi"


def _parsed(name: str) -> MemoryLimit | None:
    device, *rest = name.split(",")
    is_asked = rest[-1:] == [_ASKED]
    pairs = [word.partition("=") for word in (rest[:-1] if is_asked else rest)]
    if not device or [key for key, _, _ in pairs] != ["hard", "soft"]:
        return None
    if not all(_is_number(value) for _, _, value in pairs):
        return None
    hard, soft = (int(value) * MIB for _, _, value in pairs)
    if not hard:
        return None  # a driver refuses such a limit, and a container without one has the whole GPU
    return MemoryLimit(device, hard, soft, is_asked=is_asked)


def _mebibytes(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    if not _is_number(text) or not int(text):
        raise fault("GH1022", name=name, value=text)
    return int(text) * MIB


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
