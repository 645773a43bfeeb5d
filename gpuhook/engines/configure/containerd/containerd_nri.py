# SPDX-License-Identifier: Apache-2.0
"""The route nri of containerd: its NRI is enabled, and no runtime is registered.

Up to 2.0, a later file replaces the whole table of the plugin: the last file with it is edited.
"""

from __future__ import annotations

from gpuhook.engines.configure import plan_checks
from gpuhook.engines.configure.containerd.containerd_target import edited_file, new_version
from gpuhook.engines.configure.engine_plan import EnginePlan, ExpectedConfig
from gpuhook.engines.read import nri_config, toml_document
from gpuhook.engines.read.nri_config import CONTAINERD_KEY, CONTAINERD_KEYS
from gpuhook.engines.toml.toml_edit import Setting
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.configure.containerd.containerd_locations import ContainerdLocation
    from gpuhook.engines.configure.engine_plan import ConfigChange, EngineNode
    from gpuhook.engines.read.containerd_config import Containerd

LINES = f"[plugins.'{CONTAINERD_KEY}'] disable = false"


def plan_nri(node: EngineNode, place: ContainerdLocation, read: Containerd) -> EnginePlan:
    """Return the changes. Raises GH2003, GH2020, GH2027, GH2713 and GH2714."""
    plan_checks.require_readable(read.configuration)
    nri = read.nri
    if not nri.has_nri:
        version, first = plan_checks.dotted(read.daemon or ()), nri_config.RELEASES["containerd"][0]
        needed = plan_checks.dotted(first)
        raise fault("GH2713", engine="containerd", version=version, needed=needed)
    if not read.has_cri:
        raise fault("GH2020", where=read.root)
    expected = ExpectedConfig({}, has_nri=True)
    if nri.is_enabled:
        return EnginePlan("containerd", (), expected, place.service, config=place.root)
    if place.kind != "file":
        raise fault("GH2714", where=place.root, distribution=place.distribution, lines=LINES)
    changes = tuple(_changes(node, read))
    return EnginePlan("containerd", changes, expected, place.service, config=place.root)


def _changes(node: EngineNode, read: Containerd) -> Iterator[ConfigChange]:
    settings: dict[str, list[Setting]] = {}
    written = [one for one in read.files if _key(one.document)]
    target = written[-1] if written else (read.files[0] if read.files else None)
    path = target.path if target else read.root
    version = target.version if target else new_version(read)
    key = (_key(target.document) if target else "") or CONTAINERD_KEYS[version < 2]
    if target is None:
        settings.setdefault(path, []).append(Setting(("version",), version))
    settings.setdefault(path, []).append(Setting(("plugins", key, "disable"), False))
    for file in read.files:
        disabled = toml_document.texts(file.document.get("disabled_plugins"))
        kept = [one for one in disabled if one not in CONTAINERD_KEYS]
        if len(kept) < len(disabled):
            settings.setdefault(file.path, []).append(Setting(("disabled_plugins",), kept))
    for one, wanted in settings.items():
        yield from edited_file(node, one, wanted)


def _key(document: dict[str, object]) -> str:
    """Return the key under which a file has the plugin's table, "" for none."""
    plugins = toml_document.table(document, "plugins")
    return next((key for key in CONTAINERD_KEYS if key in plugins), "")
