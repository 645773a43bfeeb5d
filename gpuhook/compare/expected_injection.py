# SPDX-License-Identifier: Apache-2.0
"""What gpuhook would have given a container, by what that asked for: found out, nothing done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpuhook.cdi import spec_file as cdi_spec
from gpuhook.cdi.hot import registry
from gpuhook.compare import original_request
from gpuhook.entry import plan_context
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files
from gpuhook.request import plan
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.rootfs import hook_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.plan import Injection
    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs

_REFUSED = "GH1007"  # that a source does not count by the node's policy
_MAX_SPEC = 64 << 20
_EVERY = vocabulary.parse_capabilities("all")


@dataclass(frozen=True, slots=True)
class ForeignSpec:
    """What the specs of NVIDIA's tools on this node give: (source, destination), and variables."""

    mounts: frozenset[tuple[str, str]] = frozenset()
    variables: frozenset[str] = frozenset()


def _nothing() -> ContainerEdits:
    return {}


@dataclass(slots=True)
class ExpectedInjection:
    """The edits and jobs of a grant; nothing where `names` is empty or there is a `refusal`.

    `whole` and `whole_todo` are the grant for every capability, `others` the nodes of all of the
    host's devices. `foreign` is what other specs of this node give. `notes` are what the wrapper
    would have warned of.
    """

    names: list[str] = field(default_factory=list)
    where: str = ""
    capabilities: frozenset[str] = frozenset()
    edits: ContainerEdits = field(default_factory=_nothing)
    todo: list[Jobs] = field(default_factory=list)
    whole: ContainerEdits = field(default_factory=_nothing)
    whole_todo: list[Jobs] = field(default_factory=list)
    foreign: ForeignSpec = field(default_factory=ForeignSpec)
    others: ContainerEdits = field(default_factory=_nothing)
    refusal: GpuhookError | None = None
    notes: list[str] = field(default_factory=list)


class Giving:
    """What gpuhook plans by on a node.

    What does not depend on the container is found out once.
    """

    def __init__(self, context: PlanContext) -> None:
        self.context = context
        self.foreign = foreign(context.settings)
        self._whole: dict[tuple[str, ...], tuple[ContainerEdits, list[Jobs]]] = {}

    def whole(self, names: Sequence[str]) -> tuple[ContainerEdits, list[Jobs]]:
        """Return the edits and jobs for these names and every capability; do not change them."""
        key = tuple(names)
        if key not in self._whole:
            injection = plan.plan_names(names, _EVERY, self.context.node)
            self._whole[key] = injection.edits, injection.hook_jobs
        return self._whole[key]

    def others(self) -> ContainerEdits:
        """Return the edits for all of the host's devices, {} where they cannot be told."""
        try:
            return self.whole(("all",))[0]
        except GpuhookError:  # one of the others is described twice, or not at all
            return {}


def expected_injection(
    giving: Giving, spec: dict[str, Any], nodes: Collection[str], *, is_given: bool
) -> ExpectedInjection:
    """Return what gpuhook would have given for `spec`, a config.json without anybody's answer.

    Where the spec asks for nothing and the container was given GPUs
    all the same (`is_given`), the devices of its device nodes `nodes` are taken as the request.
    """
    context = giving.context
    heard = context.log.warnings
    found = ExpectedInjection()
    start = len(heard)
    try:
        found.capabilities = plan.capabilities(spec, context.settings, context.node)
        source = plan_context.source_logged(spec, context)
        refused = [warning for warning in heard[start:] if warning.code == _REFUSED]
        if source is not None:
            found.names, found.where = source.names, source.where
            _fill(found, giving, plan_context.plan_logged(spec, source, context))
        elif refused:
            found.refusal = refused[0]
        else:
            found.names = original_request.by_nodes(context.node, nodes) if is_given else []
            found.where = original_request.BY_NODES if found.names else ""
            if found.names:
                named = plan.plan_names(found.names, found.capabilities, context.node)
                _fill(found, giving, named)
    except GpuhookError as error:
        found.refusal = error
    found.notes = [error.message for error in heard[start:]]
    return found


def _fill(found: ExpectedInjection, giving: Giving, injection: Injection) -> None:
    if not injection.is_given:
        return
    found.todo = injection.hook_jobs
    found.edits = plan.with_void(injection.edits, vocabulary.VOCABULARY)
    found.whole, found.whole_todo = giving.whole(found.names)
    found.others, found.foreign = giving.others(), giving.foreign


def own_spec(settings: Settings, kind: str) -> str:
    """Return the path of a spec of `kind` that generate-cdi has written, "" if there is none.

    Nothing is compiled and kept for that. A file that cannot be read is passed over.
    """
    for directory in reversed(settings.spec_dirs):
        for path in registry.files(directory):
            spec = _read(path)
            if spec.get("kind") == kind and _is_ours(spec):
                return path
    return ""


def foreign(settings: Settings) -> ForeignSpec:
    """Return what the specs of NVIDIA's GPUs give that gpuhook has not written."""
    paths = [path for directory in settings.spec_dirs for path in registry.files(directory)]
    found = [spec for path in paths if (spec := _read(path)) and not _is_ours(spec)]
    mounts: set[tuple[str, str]] = set()
    variables: set[str] = set()
    for spec in found:
        if str(spec.get("kind")).partition("/")[0] != vocabulary.VENDOR:
            continue
        for part in (spec, *_objects(spec.get("devices"))):
            edits = part.get("containerEdits")
            edits = edits if isinstance(edits, dict) else {}
            for mount in _objects(edits.get("mounts")):
                source, place = mount.get("hostPath"), mount.get("containerPath")
                if isinstance(source, str) and isinstance(place, str):
                    mounts.add((source, place))
            env = edits.get("env")
            variables.update(
                e for e in (env if isinstance(env, list) else ()) if isinstance(e, str)
            )
    return ForeignSpec(frozenset(mounts), frozenset(variables))


def _objects(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _read(path: str) -> dict[str, Any]:
    """Return a spec, {} for a file that is not one."""
    try:
        spec = cdi_spec.parser(path)(files.read(path, _MAX_SPEC), path)
    except (GpuhookError, OSError):
        return {}
    return spec if isinstance(spec, dict) else {}


def _is_ours(spec: dict[str, Any]) -> bool:
    edits = spec.get("containerEdits")
    if not isinstance(edits, dict):
        return False
    hooks, env = edits.get("hooks"), edits.get("env")
    is_hooked = isinstance(hooks, list) and any(hook_args.is_ours(hook) for hook in hooks)
    return is_hooked or (isinstance(env, list) and hookless_mounts.ENV in env)
