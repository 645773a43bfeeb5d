# SPDX-License-Identifier: Apache-2.0
"""Devices that mounts request: /dev/null below a directory, at a path that names the device.

A path is a device's id, or `cdi/<vendor>/<class>/<name>` for a CDI name, which may also be written
`cdi/<vendor>/<class>=<name>`. An id may contain slashes, as those of old drivers do.
"""

from __future__ import annotations

from os.path import normpath

from gpuhook.cdi.hot.names import is_kind
from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_CDI = "cdi/"


def names(
    mounts: object, prefix: str, subdirectories: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return (the devices that `mounts` of a config.json name, malformed paths).

    `prefix` is the directory; its subdirectories `subdirectories` name devices of other kinds.
    """
    found, malformed = [], []
    for rest in below(mounts, prefix):
        if rest.partition("/")[0] in subdirectories:
            continue
        name = _cdi_name(rest[len(_CDI) :]) if rest.startswith(_CDI) or rest == "cdi" else rest
        if name is None:
            malformed.append(f"{normpath(prefix)}/{rest}")
        else:
            found.append(name)
    return found, malformed


def below(mounts: object, directory: str) -> Iterator[str]:
    """Yield the paths below `directory` at which /dev/null is mounted, relative to it."""
    start = normpath(directory) + "/"
    mark = start.strip("/").rpartition("/")[2]
    for mount in fastjson.objects(mounts):
        destination = mount.get("destination")
        if not isinstance(destination, str) or mark not in destination:
            continue
        path, source = normpath(destination), mount.get("source")
        if not path.startswith(start) or not isinstance(source, str):
            continue
        if normpath(source) == "/dev/null":
            yield path[len(start) :]


def _cdi_name(rest: str) -> str | None:
    """Return the qualified name that `<vendor>/<class>/<name>` means, None if it is malformed."""
    vendor, _, more = rest.partition("/")
    ends = [at for at in (more.find("/"), more.find("=")) if at >= 0]
    if not ends:
        return None
    kind, name = f"{vendor}/{more[: min(ends)]}", more[min(ends) + 1 :]
    return f"{kind}={name}" if is_kind(kind) and name else None
