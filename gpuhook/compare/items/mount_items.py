# SPDX-License-Identifier: Apache-2.0
"""Items of the driver's mounts: the file on the host, the path and the options."""

from __future__ import annotations

import os

from gpuhook.compare.items import known_differences
from gpuhook.compare.items.compare_item import MOUNT, compare_words
from gpuhook.inspect import inspection
from gpuhook.vendors import job_effects
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.known_difference import MOVED, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.cdi.hot.container_edits import Mount
    from gpuhook.compare.expected_injection import ExpectedInjection
    from gpuhook.compare.items.compare_item import Item
    from gpuhook.kernel.mountinfo import Mount as Mounted

_OPTIONS = ("ro", "nosuid", "nodev")
_NO_FILES = ("/dev/", "/proc/", "/sys/")


class ContainerMounts:
    """The comparison of mounts. `there` are the mounts with names of driver files.

    After items(), `bad` has the paths with a wrong or missing file, `moved` the paths whose file is
    mounted elsewhere, and `unexpected` the paths that only the container has, without a known
    reason.
    """

    def __init__(
        self, held: Live, spec: dict[str, Any], there: list[dict[str, Any]], by: str
    ) -> None:
        self._held = held
        self._spec = spec
        self._by = by
        # The last mount at a path hides the others.
        self._there = {
            mount["path"]: mount for mount in there if mount["path"] != job_effects.MASKED
        }
        self._all = {mount.target: mount.options for mount in held.root.mounts()}
        self._matched: set[str] = set()
        self.bad: set[str] = set()
        self.moved: set[str] = set()
        self.unexpected: set[str] = set()

    @property
    def files(self) -> list[str]:
        """The paths of the driver's mounts."""
        return list(self._there)

    def items(self, expected: ExpectedInjection) -> list[Item]:
        """Return the items of gpuhook's mounts, then of mounts that only the container has."""
        mounts = expected.edits.get("mounts") or []
        self._there |= self._others(expected)
        real = {m["containerPath"]: self._held.root.real(m["containerPath"]) for m in mounts}
        places = set(real.values())
        found = [self._one(m, real[m["containerPath"]], places, expected) for m in mounts]
        rest = [path for path in self._there if path not in places | self._matched]
        whole = {mount["containerPath"]: mount for mount in expected.whole.get("mounts") or ()}
        for path in sorted(rest):
            is_whole = path in whole and self._shows(path, whole[path]["hostPath"])
            reason = known_differences.extra_part(
                path, self._by, expected, is_whole=is_whole, is_privileged=False
            )
            found.append(compare_words(MOUNT, path, _description(self._there[path]), "", reason))
            self.unexpected |= {path} if not reason else set()
        return found

    def _others(self, expected: ExpectedInjection) -> dict[str, dict[str, Any]]:
        """Return the mounts of the driver by their source, or by a spec of a vendor."""
        hosts = [mount["hostPath"] for mount in expected.whole.get("mounts") or ()]
        known = {one for one in map(_identity, hosts) if one is not None}
        mounts = self._spec.get("mounts")
        named = {
            mount.get("destination")
            for mount in (mounts if isinstance(mounts, list) else ())
            if isinstance(mount, dict)
            and (mount.get("source"), mount.get("destination")) in expected.foreign.mounts
        }
        found = {}
        mounts_there = self._held.root.mounts()
        remote = _remote(mounts_there, known)
        for mount in mounts_there:
            place = mount.target
            if place in self._there or place == job_effects.MASKED or place.startswith(_NO_FILES):
                continue
            is_asked = bool(known) and not any(one.is_over(place) for one in remote)
            is_drivers = is_asked and self._identity(place) in known
            if is_drivers or place in named or _driver_version(mount.root):
                found[place] = inspection.mount_facts(mount)
        return found

    def _identity(self, place: str) -> tuple[int, int] | None:
        found = self._held.root.status(place)
        return None if found is None else (found.st_dev, found.st_ino)

    def _one(
        self, mount: Mount, place: str, places: Iterable[str], expected: ExpectedInjection
    ) -> Item:
        """Return the item of one mount that gpuhook would add at the resolved path `place`."""
        target, source = mount["containerPath"], mount["hostPath"]
        ours = f"{source} {','.join(_known_options(mount.get('options') or ()))}".rstrip()
        try:
            host = os.stat(source)
        except OSError as error:
            self.bad.add(target)
            there = _description(self._there[place]) if place in self._there else ""
            return compare_words(MOUNT, target, there, f"refused: {source}: {error.strerror}")
        if self._is(place, host):
            there = f"{source} {','.join(_known_options(self._options(place).split(',')))}".rstrip()
            return compare_words(MOUNT, target, there, ours)
        if place in self._there:
            self.bad.add(target)
            return compare_words(MOUNT, target, _description(self._there[place]), ours)
        elsewhere = self._elsewhere(host, places)
        if elsewhere:
            self._matched.add(elsewhere)
            self.moved.add(target)
            reason = known_differences.reason(self._by, Difference(MOVED, target))
            return compare_words(MOUNT, target, f"at {elsewhere}", ours, reason)
        self.bad.add(target)
        reason = known_differences.missing(target, self._by, expected)
        return compare_words(MOUNT, target, "", ours, reason)

    def _shows(self, place: str, source: str) -> bool:
        try:
            return self._is(place, os.stat(source))
        except OSError:
            return False

    def _is(self, place: str, host: os.stat_result) -> bool:
        found = self._held.root.status(place)
        return found is not None and os.path.samestat(found, host)

    def _elsewhere(self, host: os.stat_result, places: Iterable[str]) -> str:
        """Return another path with the host's file, "" for none."""
        for path in map(str, self._there):
            if path not in places and path not in self._matched and self._is(path, host):
                return path
        return ""

    def _options(self, place: str) -> str:
        while place not in self._all and place != "/":
            place = place.rpartition("/")[0] or "/"
        return self._all.get(place, "")


def _remote(mounts: Iterable[Mounted], known: Iterable[tuple[int, int]]) -> list[Mounted]:
    """Return the FUSE and NFS mounts without driver files: their servers may never answer.

    `known` are the driver's files on this host, by device and inode.
    """
    devices = {f"{os.major(device)}:{os.minor(device)}" for device, _ in known}
    return [
        one for one in mounts if one.is_remote and one.target != "/" and one.device not in devices
    ]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _known_options(options: Iterable[str]) -> list[str]:
    held = set(options)
    return [word for word in _OPTIONS if word in held]


def _description(mount: dict[str, Any]) -> str:
    """Describe a mount by the path in its file system, as the kernel reports it."""
    gone: str = " (removed on the host)" if mount["removed"] else ""
    version = _driver_version(mount["source"]) or _driver_version(mount["path"])
    of = f" of driver {version}" if version else ""
    name = str(mount["source"])
    return f"{name}{of} {','.join(_known_options(mount['options'].split(',')))}".rstrip() + gone


def _driver_version(path: str) -> str:
    """Return the version of a vendor's driver in a path, "" for none."""
    return next(filter(None, (vendor.traces.driver_version(path) for vendor in vendors())), "")
