# SPDX-License-Identifier: Apache-2.0
"""NRI: the engine offers it to gpuhook's plugin, and no other plugin is in its way."""

from __future__ import annotations

import posixpath

from gpuhook.doctor.commands import register_commands
from gpuhook.engines.read.nri_config import CONTAINERD_KEY, RELEASES
from gpuhook.node_facts import nri_facts, program_facts
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, for_each, ok, unless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.node_facts.nri_facts import NriEngine

_NO_GPUS = "pods that request a GPU start without one, and no event says so"
_ENGINE, _RUNNING = "nri.engine", "nri.running"
_UNUSED = absent("the node does not use gpuhook's NRI plugin", nri_facts.UNIT)
_LINES = {
    "containerd": f"[plugins.'{CONTAINERD_KEY}'] disable = false",
    "crio": "[crio.nri] enable_nri = true",
}


def _unused(node: ExaminedNode) -> Finding | None:
    return None if nri_facts.uses_nri(node) else _UNUSED


@check(_ENGINE, "The engine of the kubelet offers NRI to gpuhook's plugin")
@unless(_unused)
@for_each(nri_facts.nri_engines, absent("neither containerd with CRI nor CRI-O is installed"))
def _engine(node: ExaminedNode, one: NriEngine) -> Finding:
    engine, here = one.here.engine, one.here
    if not one.nri.has_nri:
        version, needed = (".".join(map(str, n or ())) for n in (here.daemon, RELEASES[engine][0]))
        return Finding(
            FAILED,
            f"{engine} {version} has no NRI with plugins that connect",
            subject=here.name,
            meaning=_NO_GPUS,
            command=f"upgrade {engine} to {needed} or later, or use another route:"
            f" gpuhook configure {engine}",
            looked_at=(here.path,),
        )
    if not one.nri.is_enabled:
        return Finding(
            FAILED,
            f"NRI of {engine} is disabled; it needs {_LINES[engine]}",
            subject=here.name,
            meaning=_NO_GPUS,
            command=register_commands.register(node, here, options=" --route nri"),
            looked_at=here.configuration.files or (here.path,),
        )
    if not one.nri.has_connections:
        return Finding(
            FAILED,
            f"NRI of {engine} accepts no connections: it starts plugins itself only",
            subject=here.name,
            meaning=_NO_GPUS,
            command=f"remove {'nri_' * (engine == 'crio')}disable_connections from {here.path}"
            f" && {here.restart}",
            looked_at=here.configuration.files or (here.path,),
        )
    return ok(f"{engine} offers NRI at {one.nri.socket}", one.nri.socket, subject=here.name)


@check(_RUNNING, "gpuhook's NRI plugin runs once", needs=(_ENGINE,))
@unless(_unused)
def _running(node: ExaminedNode) -> Finding:
    found = nri_facts.nri_instances(node)
    pids = ", ".join(str(one.pid) for one in found)
    if len(found) > 1:
        return Finding(
            FAILED,
            f"{len(found)} processes run `gpuhook nri run`: {pids}",
            meaning='pods fail with "plugins ... both tried to set CDI device": the engine asks'
            " both, and they do not see each other's lock",
            command=f"keep either the DaemonSet or the unit: systemctl disable --now"
            f" {nri_facts.UNIT}",
        )
    if found:
        return ok(f"it has the index {found[0].index} and the name {found[0].name}")
    state = program_facts.unit(node, nri_facts.UNIT).get("active") or "not running"
    return Finding(
        FAILED,
        f"{nri_facts.UNIT} is enabled, and {state}",
        meaning=_NO_GPUS,
        command=f"systemctl restart {nri_facts.UNIT}; journalctl -n 20 -u {nri_facts.UNIT}",
        looked_at=(nri_facts.UNIT,),
    )


@check("nri.plugins", "NRI plugins have distinct names and indices", needs=(_ENGINE,))
@for_each(nri_facts.nri_engines, absent("neither containerd with CRI nor CRI-O is installed"))
def _plugins(node: ExaminedNode, one: NriEngine) -> Findings:
    if not one.nri.is_enabled:
        return absent(f"NRI of {one.here.engine} is disabled", one.here.path)
    launched, others = nri_facts.launched_plugins(node, one.nri)
    found = [*_unnamed(one, others), *_in_conflict(node, one, launched)]
    names = [posixpath.basename(path) for path in launched]
    names += [f"{own.index}-{own.name}" for own in nri_facts.nri_instances(node)]
    configured = node.tree.names(one.nri.plugin_config)
    texts = ", ".join(sorted(names)) or "no plugin of gpuhook, and none that the engine starts"
    also = f"; {one.nri.plugin_config} has {', '.join(configured)}" if configured else ""
    places = (one.nri.plugins, one.nri.plugin_config, one.nri.socket)
    return found or ok(f"{texts}{also}", *places, subject=one.here.name)


def _unnamed(one: NriEngine, others: list[str]) -> Iterator[Finding]:
    for path in others:
        yield Finding(
            WARNING,
            f"{path} has no name of a plugin, such as 10-name",
            subject=path,
            meaning=f"{one.here.engine} does not start its NRI, or not at all",
            command=f"mv {path} /root/ && {one.here.restart}",
            looked_at=(one.nri.plugins,),
        )


def _in_conflict(node: ExaminedNode, one: NriEngine, launched: dict[str, str]) -> Iterator[Finding]:
    """Yield the plugins that the engine starts and that have the name or index of gpuhook's."""
    for own in nri_facts.nri_instances(node):
        for path, index in launched.items():
            is_same_name = path.endswith(f"/{index}-{own.name}")
            if is_same_name or index == own.index:
                what = "name" if is_same_name else f"index {index}"
                yield Finding(
                    FAILED if is_same_name else WARNING,
                    f"{path} has the {what} of gpuhook's plugin, process {own.pid}",
                    subject=path,
                    meaning="both may change a container, and it does not start then"
                    if is_same_name
                    else "the order of the two is not defined: one may not see the changes of"
                    " the other",
                    command=f"mv {path} /root/ && {one.here.restart}"
                    if is_same_name
                    else "gpuhook nri run --index 11",
                    looked_at=(one.nri.plugins,),
                )


CHECKS = (_engine, _running, _plugins)
