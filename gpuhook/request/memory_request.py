# SPDX-License-Identifier: Apache-2.0
"""How much memory of each device a container may have: what it was granted, narrowed by its env.

A grant is a mount whose path says it, as a device plugin hands it out, of /dev/null. A tenant can
set any variable and mount a volume of its own there, and by both can only take away from a grant.
Where there is none, as outside of Kubernetes, the variables say all.
"""

from __future__ import annotations

from gpuhook.errors import fault
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


class MemoryLimit:
    """What one container may have of one device, in bytes.

    `hard`: no allocation goes beyond it. `soft`: so much is the container's own, whatever the
    others need; 0 is nothing. `is_asked`: the pod itself asks for it, not only its node's
    configuration; without it such a container had better not start.
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
    """What the variables ask for, in bytes; None where they say nothing."""

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
    """Return the grant of each device that the mounts of a spec tell, by device.

    Of two of one device the smaller amounts count, and who has added one asks for it. What is
    mounted does not matter: CRI-O leaves a mount out for a later one of the same path, and a pod's
    volumes come after its device plugin's mounts. A path that says something else grants nothing.
    """
    found: dict[str, MemoryLimit] = {}
    below = prefix + "/"
    mounts = spec.get("mounts")
    for mount in mounts if isinstance(mounts, list) else ():
        destination = mount.get("destination") if isinstance(mount, dict) else None
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
    """Return what the two variables ask for. Raises GH1022 for what is no number of MiB.

    An empty variable says nothing.
    """
    return MemoryRequest(
        _mebibytes(environment, words.memory_request_env),
        _mebibytes(environment, words.memory_limit_env),
    )


def _of_its_own(wanted: MemoryRequest, grants: Collection[MemoryLimit]) -> MemoryRequest:
    """Return what is `wanted` without what a device plugin says.

    It repeats a grant in the variables, for runtimes that know no mounts: that is not the pod's
    asking, and says nothing of devices that another resource, or nobody, limits.
    """
    softs, hards = {grant.soft for grant in grants}, {grant.hard for grant in grants}
    return MemoryRequest(
        None if wanted.request in softs else wanted.request,
        None if wanted.limit in hards else wanted.limit,
    )


def limits(spec: dict[str, Any], devices: Iterable[str], words: Vocabulary) -> list[MemoryLimit]:
    """Return what a container may have of each of `devices`; none for what nothing limits.

    `devices` are named as grants name them. Raises what memory_request() raises, and GH1023 if
    more is guaranteed than allowed.
    """
    grants = granted(spec, words.memory_prefix)
    wanted = _of_its_own(memory_request(parse.environment(spec), words), grants.values())
    if wanted.request and wanted.limit and wanted.request > wanted.limit:
        raise fault(
            "GH1023",
            request=wanted.request // MIB,
            limit=wanted.limit // MIB,
            request_env=words.memory_request_env,
            limit_env=words.memory_limit_env,
        )
    found = (narrowed(device, grants.get(device), wanted) for device in dict.fromkeys(devices))
    return [limit for limit in found if limit is not None]


def narrowed(device: str, grant: MemoryLimit | None, wanted: MemoryRequest) -> MemoryLimit | None:
    """Return `grant` with what is `wanted`, as far as that is less; None where nothing is limited.

    Who wants something else than the grant asks for the limit.
    """
    if grant is None:
        if not (wanted.limit or wanted.request):
            return None
        hard = wanted.limit or NO_LIMIT
        return MemoryLimit(device, hard, wanted.request or 0, is_asked=True)
    hard = min(grant.hard, wanted.limit or grant.hard)
    soft = min(grant.soft, wanted.request or grant.soft)
    is_asked = grant.is_asked or bool(wanted.limit or wanted.request)
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
        return None  # a driver takes no such limit, and a container without it has the whole card
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
