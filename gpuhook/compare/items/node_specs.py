# SPDX-License-Identifier: Apache-2.0
"""CDI specs of GPUs that need device nodes alone, and the one that an engine has applied."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.apply.spec import oci_spec
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson
from gpuhook.request import parse
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits

_ALL = "rwm"  # without permissions in the spec


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A CDI spec of this node: its device nodes by path, and its variables.

    `permissions` and the `numbers`, "238:0", are those of the nodes; most specs have no numbers.

    `by` is the name of an engine that applies it, unless it is gpuhook's own.
    """

    path: str
    permissions: dict[str, str]
    numbers: dict[str, str]
    env: tuple[str, ...]
    by: str
    is_own: bool


def node_spec(path: str, document: dict[str, Any], *, is_own: bool) -> NodeSpec | None:
    """Return the spec in a document, None if the vendor's specs have other traces.

    The document may have any form: another program wrote it.
    """
    known = {one.vocabulary.default_kind: one.traces.SPEC_INJECTOR for one in vendors()}
    by = known.get(str(document.get("kind")))
    if not by:
        return None
    parts = [document, *fastjson.objects(document, "devices")]
    nodes = [n for one in parts for n in fastjson.objects(one, "containerEdits", "deviceNodes")]
    permissions = {str(n.get("path")): str(n.get("permissions") or _ALL) for n in nodes}
    numbers = {str(n.get("path")): _number(n) for n in nodes if n.get("major") is not None}
    env = fastjson.strings(document, "containerEdits", "env")
    return NodeSpec(path, permissions, numbers, tuple(env), by, is_own)


def applied(
    config: dict[str, Any], nodes: Collection[str], specs: Iterable[NodeSpec]
) -> NodeSpec | None:
    """Return the spec whose edits a config.json has for the device nodes at `nodes`.

    An engine copies the permissions and the variables of a spec; other programs may pass the same
    nodes with others.
    """
    env = parse.variables(config)
    for one in specs:
        described = {path: one.permissions[path] for path in nodes if path in one.permissions}
        if described and described == accesses(config, described) and set(one.env) <= {*env}:
            return one
    return None


def stale_numbers(spec: NodeSpec, edits: ContainerEdits) -> Iterator[str]:
    """Yield a note on each node of `edits` whose number in a spec is not that of the host."""
    for node in edits.get("deviceNodes") or ():
        path = node["path"]
        try:
            number = _number(oci_spec.oci_device(node))
        except GpuhookError:
            continue  # the host no longer has it
        written = spec.numbers.get(path, number)
        if written != number:
            yield (
                f"{spec.path} has the number {written} of {path}, but the host's is {number}: the "
                "number of a boot before; gpuhook's specs have no numbers"
            )


def accesses(config: dict[str, Any], paths: Collection[str]) -> dict[str, str]:
    """Return the access that a config.json allows to those of the nodes `paths` that it adds."""
    numbers = {
        _number(one): str(one.get("path"))
        for one in fastjson.objects(config, "linux", "devices")
        if str(one.get("path")) in paths
    }
    found = {}
    for rule in fastjson.objects(config, "linux", "resources", "devices"):
        path = numbers.get(_number(rule))
        if path is not None and rule.get("allow") is True:
            found[path] = "".join(sorted(str(rule.get("access")), key=_ALL.find))
    return found


def _number(entry: Mapping[str, Any]) -> str:
    return f"{entry.get('major')}:{entry.get('minor')}"
