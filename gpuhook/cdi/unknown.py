# SPDX-License-Identifier: Apache-2.0
"""What is said of a device that no spec of this host describes.

HOT, and loaded only for such a device.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.cache import Compiled
    from gpuhook.cdi.registry import Registry

_SHOWN = 12


def of(
    name: str, kind: str, specs: list[Compiled], registry: Registry, *, is_ours: bool
) -> GpuhookError:
    """Return GH1102 for the device `name`, or GH1104 where no spec is of its kind.

    `specs` are those of the kind, lowest priority first; `is_ours` says whether generate-cdi
    writes such.
    """
    dirs = ", ".join(registry.dirs)
    broken = "".join(
        f"; {spec.path} is broken: {_without(spec.path, spec.error.message)}"
        for spec in registry.broken[:4]
        if spec.error is not None
    )
    # Where specs are read from: elsewhere a new one would change nothing.
    place = registry.dirs[-1] if registry.dirs else "a directory of cdi.specDirs"
    if not specs:
        way = f"run `gpuhook generate-cdi --output {place}/nvidia.yaml`"
        if not is_ours:
            way = f"install what its vendor describes its devices with; specs go into {place}"
        return fault("GH1104", kind=kind, name=name, dirs=dirs, broken=broken, way=way)
    have = list(dict.fromkeys(device for spec in specs for device in spec.names()))
    shown = ", ".join(have[:_SHOWN]) + (", ..." if len(have) > _SHOWN else "")
    files = ", ".join(spec.path for spec in specs)
    way = "if the device is new, its vendor's tools describe it anew"
    if is_ours:
        newest = specs[-1].path  # the one that counts
        way = f"if the GPU is new, run `gpuhook generate-cdi --output {newest}`"
    return fault("GH1102", name=name, have=shown, files=files, broken=broken, way=way)


def _without(path: str, message: str) -> str:
    """Return a message about a file without the file's path in front."""
    return message[len(path) + 2 :] if message.startswith(path + ": ") else message
