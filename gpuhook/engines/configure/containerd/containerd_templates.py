# SPDX-License-Identifier: Apache-2.0
"""The templates of k3s and rke2, from which they generate containerd's configuration at each start.

If the generated file imports a directory, as newer releases do, a drop-in is enough. Otherwise the
template includes theirs ("base", since September 2023), and then has the handler. k3s and rke2
register NVIDIA's runtimes if they find the programs. A table that occurs twice is invalid TOML, so
the template leaves the handler out for a name that they have (.ExtraRuntimes).
"""

from __future__ import annotations

import re

from gpuhook.engines.configure.engine_plan import ConfigChange, EnginePlan, ExpectedConfig
from gpuhook.engines.read.containerd_files import CRI_OF_2, CRI_OF_3
from gpuhook.engines.toml import toml_text
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.configure.containerd.containerd_handler import Handler
    from gpuhook.engines.configure.containerd.containerd_locations import ContainerdLocation
    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
    from gpuhook.engines.read.containerd_config import Containerd

TEMPLATES = ("config-v3.toml.tmpl", "config.toml.tmpl")
BASE = '{{ template "base" . }}'
_INCLUDES_BASE = re.compile(r"\{\{-?\s*template\s+\"base\"")
_CGROUP = re.compile(r"^(\s*SystemdCgroup = )(?:true|false)$", re.MULTILINE)


def drop_ins(place: ContainerdLocation, read: Containerd) -> str:
    """Return the directory that the generated file imports, "" for none."""
    directory = f"{place.root.rpartition('/')[0]}/config-v3.toml.d"
    is_read = read.version >= 3 and f"{directory}/*.toml" in read.imports
    return directory if is_read else ""


def is_needed(place: ContainerdLocation, read: Containerd) -> bool:
    """Return whether only a template changes the configuration: no drop-in is read."""
    return place.kind == "template" and not drop_ins(place, read)


def plan(
    node: EngineNode,
    place: ContainerdLocation,
    read: Containerd,
    options: EngineOptions,
    handlers: Mapping[str, Handler],
) -> EnginePlan:
    """Return the templates with the handler. Raises GH2023, GH2026 and GH2029."""
    if options.is_default:
        reason = f"{place.distribution} has its own option for the default runtime"
        file = f"/etc/rancher/{place.distribution}/config.yaml"
        how = f"put `default-runtime: {options.name}` into {file}"
        raise fault("GH2026", where=place.root, said=reason, how=how)
    directory = place.root.rpartition("/")[0]
    written = []
    for path in _paths(node, directory, read.version):
        before = node.files.read(path)
        own = toml_text.without_marked_lines(before or b"").decode("utf-8", "surrogateescape")
        for one in options.of_each_name():
            _check_name(path, own, read, one, place)
        written.append(ConfigChange(path, before, _content(path, own, handlers)))
    changes = tuple(one for one in written if one.before != one.after)
    notes = (*place.notes, *(note for one in handlers.values() for note in one.notes))
    if any(one.before is None for one in written):
        notes += (
            f"the template has {BASE}: {place.distribution} has supported it since September 2023",
        )
    if options.route == "cdi" and read.version < 3:
        reason = "generates a configuration of containerd 1.7 with CDI disabled"
        raise fault("GH2029", where=place.root, said=f"{place.distribution} {reason}")
    return EnginePlan("containerd", changes, ExpectedConfig({}), place.service, notes, config=None)


def _paths(node: EngineNode, directory: str, version: int) -> list[str]:
    """Return the templates from which containerd's file is generated, now or after an upgrade.

    A release that generated a version 3 file uses the first existing template. A release that
    generated version 2 may only know the older name; an existing newer one is for an upgrade.
    """
    newer, older = (f"{directory}/{one}" for one in TEMPLATES)
    existing = [one for one in (newer, older) if node.files.read(one) is not None]
    if version >= 3:
        return existing[:1] or [newer]
    return [*(one for one in existing if one == newer), older]


def _content(path: str, own: str, handlers: Mapping[str, Handler]) -> bytes:
    """Return a template with the handlers; `own` is its text without gpuhook's part."""
    lines = [
        line
        for name, handler in handlers.items()
        for line in _handler_lines(path, own, name, handler)
    ]
    block = "\n".join(toml_text.block(lines))
    head = own if own.strip() else f"{BASE}\n"
    joint = "" if head.endswith("\n") else "\n"
    return f"{head}{joint}{block}\n".encode("utf-8", "surrogateescape")


def _check_name(
    path: str, own: str, read: Containerd, options: EngineOptions, place: ContainerdLocation
) -> None:
    """Raise GH2023 if the template, or the distribution itself, has a runtime with that name."""
    table = re.compile(
        rf"^\s*\[.*\.runtimes\.[\"']?{re.escape(options.name)}[\"']?\]", re.MULTILINE
    )
    if table.search(own):
        raise fault("GH2023", where=path, name=options.name, by="this template")
    found = read.configuration.runtimes.get(options.name)
    if found is not None and found.path != options.program and found.gives_gpus:
        by = f"{place.distribution}, which found {found.path}"
        raise fault("GH2023", where=place.root, name=options.name, by=by)


def _handler_lines(path: str, own: str, runtime: str, handler: Handler) -> list[str]:
    key = CRI_OF_3 if path.endswith(TEMPLATES[0]) else CRI_OF_2
    names = ("plugins", key, "containerd", "runtimes", runtime)
    lines = list(toml_text.table_lines(names, handler.table))
    has_base = not own.strip() or _INCLUDES_BASE.search(own) is not None
    if not has_base:
        return lines
    lines = [_CGROUP.sub(r"\1{{ .SystemdCgroup }}", line) for line in lines]
    name = toml_text.value_text(runtime)
    return [
        "{{ $isFree := true }}{{ range $name, $_ := .ExtraRuntimes }}",
        f"{{{{ if eq $name {name} }}}}{{{{ $isFree = false }}}}{{{{ end }}}}{{{{ end }}}}",
        "{{ if $isFree }}",
        *lines,
        "{{ end }}",
    ]


def without(content: bytes, *, is_new: bool) -> bytes | None:
    """Return a template without gpuhook's part; None for a new template with nothing else.

    A template that existed before is kept, even if it only includes the distribution's.
    """
    own = toml_text.without_marked_lines(content)
    return own if not is_new or own.replace(BASE.encode(), b"").strip() else None


def is_template(path: str) -> bool:
    """Return whether a file is a template of k3s or rke2."""
    return path.endswith(".tmpl")
