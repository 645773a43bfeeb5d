# SPDX-License-Identifier: Apache-2.0
"""What is planned for containerd is read as containerd will read it, before anything is written."""

from __future__ import annotations

from gpuhook.engines.configure.overlay_files import Replaced
from gpuhook.engines.read import containerd_config as reader
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.containerd.containerd_handler import Handler
    from gpuhook.engines.configure.containerd.containerd_locations import ContainerdLocation
    from gpuhook.engines.configure.engine_options import EngineNode, EngineOptions
    from gpuhook.engines.configure.engine_plan import ConfigChange
    from gpuhook.engines.read.containerd_config import Containerd


def checked(
    node: EngineNode,
    place: ContainerdLocation,
    *,
    before: Containerd,
    changes: tuple[ConfigChange, ...],
    wanted: EngineOptions,
    handler: Handler,
) -> Containerd:
    """Return the configuration with the changes; raises GH2025 where something is wrong."""
    files = Replaced(node.files, {one.path: one.after for one in changes})
    after = reader.read(files, place.root, place.daemon)
    for said in _wrong(before, after, wanted, handler):
        where = changes[-1].path if changes else place.root
        raise fault("GH2025", where=where, said=said)
    return after


def _wrong(
    before: Containerd, after: Containerd, wanted: EngineOptions, handler: Handler
) -> list[str]:
    found = [f"{one.where} {one.said}" for one in after.configuration.fatal]
    runtimes = after.configuration.runtimes
    ours = runtimes.get(wanted.name)
    if ours is None or ours.path != handler.program:
        other = next((one.by for one in after.ignored if one.runtime.name == wanted.name), "")
        by = f": {other} replaces it" if other else ""
        found.append(f"the runtime {wanted.name} would not count{by}")
    lost = [name for name in before.configuration.runtimes if name not in runtimes]
    if lost:
        found.append(f"the runtimes {', '.join(lost)} would be lost")
    default = wanted.name if wanted.is_default else before.configuration.default
    if after.configuration.default != default:
        found.append(f"the default runtime would be {after.configuration.default}")
    if not after.has_cri:
        found.append("the plugin cri would be disabled")
    return found
