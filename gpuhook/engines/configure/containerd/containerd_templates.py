# SPDX-License-Identifier: Apache-2.0
"""k3s and rke2, which make containerd's configuration at each start, of a template if there is one.

Newer ones import a directory into what they make: then a drop-in is enough. Else the template has
their own ("base", since September 2023) and below it the handler. They register NVIDIA's runtimes
by themselves where they find such a program, and a table that is there twice is no TOML: so the
handler is left out for a name that they have (.ExtraRuntimes).
"""

from __future__ import annotations

import re

from gpuhook.engines.configure import toml_text
from gpuhook.engines.configure.engine_plan import ConfigChange, EnginePlan, ExpectedConfig
from gpuhook.engines.read.containerd_files import CRI_OF_2, CRI_OF_3
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.containerd.containerd_handler import Handler
    from gpuhook.engines.configure.containerd.containerd_locations import ContainerdLocation
    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
    from gpuhook.engines.read.containerd_config import Containerd

TEMPLATES = ("config-v3.toml.tmpl", "config.toml.tmpl")
BASE = '{{ template "base" . }}'
_INCLUDES_BASE = re.compile(r"\{\{-?\s*template\s+\"base\"")
_CGROUP = re.compile(r"^(\s*SystemdCgroup = )(?:true|false)$", re.MULTILINE)


def drop_ins(place: ContainerdLocation, read: Containerd) -> str:
    """Return the directory whose files are merged into what is made, "" where there is none."""
    directory = f"{place.root.rpartition('/')[0]}/config-v3.toml.d"
    is_read = read.version >= 3 and f"{directory}/*.toml" in read.imports
    return directory if is_read else ""


def plan(
    node: EngineNode,
    place: ContainerdLocation,
    read: Containerd,
    wanted: EngineOptions,
    handler: Handler,
) -> EnginePlan:
    """Return the template that registers the handler; raises GH2000, GH2023 and GH2026."""
    if wanted.is_default:
        said = f"{place.distribution} sets the default runtime by its own option"
        file = f"/etc/rancher/{place.distribution}/config.yaml"
        how = f"put `default-runtime: {wanted.name}` into {file}"
        raise fault("GH2026", where=place.root, said=said, how=how)
    directory = place.root.rpartition("/")[0]
    paths = _read(node, directory, read.version)
    for path in paths:
        own = toml_text.without_marked_lines(node.files.read(path) or b"").decode(
            "utf-8", "surrogateescape"
        )
        _check_name(path, own, read, wanted, place)
    written = [_change(node, path, wanted, handler) for path in paths]
    changes = tuple(one for one in written if one.before != one.after)
    notes = (*place.notes, *handler.notes)
    if any(one.before is None for one in written):
        notes += (f"the template has {BASE}: {place.distribution} knows it since September 2023",)
    if wanted.route == "cdi" and read.version < 3:
        said = "makes a configuration of containerd 1.7 in which CDI is off"
        raise fault("GH2029", where=place.root, said=f"{place.distribution} {said}")
    return EnginePlan("containerd", changes, ExpectedConfig({}), place.service, notes, config=None)


def _read(node: EngineNode, directory: str, version: int) -> list[str]:
    """Return the templates of which containerd's file is made, or will be made.

    One that made a version 3 takes the first that is there. One that made a version 2 may be of a
    release that knows the older name alone: the newer, where it is there, is for an upgrade.
    """
    newer, older = (f"{directory}/{one}" for one in TEMPLATES)
    there = [one for one in (newer, older) if node.files.read(one) is not None]
    if version >= 3:
        return there[:1] or [newer]
    return [*(one for one in there if one == newer), older]


def _change(node: EngineNode, path: str, wanted: EngineOptions, handler: Handler) -> ConfigChange:
    before = node.files.read(path)
    own = toml_text.without_marked_lines(before or b"").decode("utf-8", "surrogateescape")
    block = "\n".join(toml_text.block(_handler_lines(path, own, wanted, handler)))
    head = own if own.strip() else f"{BASE}\n"
    joint = "" if head.endswith("\n") else "\n"
    after = f"{head}{joint}{block}\n"
    return ConfigChange(path, before, after.encode("utf-8", "surrogateescape"))


def _check_name(
    path: str, own: str, read: Containerd, wanted: EngineOptions, place: ContainerdLocation
) -> None:
    """Raise a fault where the name is taken: by the template, or by the distribution itself."""
    table = re.compile(rf"^\s*\[.*\.runtimes\.[\"']?{re.escape(wanted.name)}[\"']?\]", re.MULTILINE)
    if table.search(own):
        raise fault("GH2023", where=path, name=wanted.name, by="this template")
    found = read.configuration.runtimes.get(wanted.name)
    if found is not None and found.path != wanted.program and found.gives_gpus:
        by = f"{place.distribution}, which found {found.path}"
        raise fault("GH2023", where=place.root, name=wanted.name, by=by)


def _handler_lines(path: str, own: str, wanted: EngineOptions, handler: Handler) -> list[str]:
    key = CRI_OF_3 if path.endswith(TEMPLATES[0]) else CRI_OF_2
    names = ("plugins", key, "containerd", "runtimes", wanted.name)
    lines = list(toml_text.table_lines(names, handler.table))
    has_base = not own.strip() or _INCLUDES_BASE.search(own) is not None
    if not has_base:
        return lines
    lines = [_CGROUP.sub(r"\1{{ .SystemdCgroup }}", line) for line in lines]
    name = toml_text.value_text(wanted.name)
    return [
        "{{ $isFree := true }}{{ range $name, $_ := .ExtraRuntimes }}",
        f"{{{{ if eq $name {name} }}}}{{{{ $isFree = false }}}}{{{{ end }}}}{{{{ end }}}}",
        "{{ if $isFree }}",
        *lines,
        "{{ end }}",
    ]


def without(content: bytes, *, is_new: bool) -> bytes | None:
    """Return a template less what is ours, None where nothing else is in one that we made.

    One that was there stays, even if all that it has is the distribution's own.
    """
    own = toml_text.without_marked_lines(content)
    return own if not is_new or own.replace(BASE.encode(), b"").strip() else None


def is_template(path: str) -> bool:
    """Return whether a file is one of their templates."""
    return path.endswith(".tmpl")
