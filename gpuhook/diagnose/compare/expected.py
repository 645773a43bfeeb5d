# SPDX-License-Identifier: Apache-2.0
"""What gpuhook would have given a container, by what that asked for: found out, nothing done."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.diagnose.compare import asked
from gpuhook.errors import GpuhookError
from gpuhook.programs import granting
from gpuhook.vendors.nvidia import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from gpuhook.cdi.edits import ContainerEdits
    from gpuhook.diagnose.node.described import Heard
    from gpuhook.grant.resolve import Grant
    from gpuhook.programs.granting import Granting
    from gpuhook.vendors.nvidia.jobs import Jobs

_EVERY = words.parse_capabilities("all")


def _nothing() -> ContainerEdits:
    return {}


@dataclass(slots=True)
class Expected:
    """The edits and jobs of a grant; nothing where `names` is empty or there is a `refusal`.

    `whole` is the grant for every capability, `others` the nodes of all of the host's devices.
    `notes` are what the wrapper would have warned of.
    """

    names: list[str] = field(default_factory=list)
    where: str = ""
    capabilities: frozenset[str] = frozenset()
    edits: ContainerEdits = field(default_factory=_nothing)
    todo: list[Jobs] = field(default_factory=list)
    whole: ContainerEdits = field(default_factory=_nothing)
    others: ContainerEdits = field(default_factory=_nothing)
    refusal: GpuhookError | None = None
    notes: list[str] = field(default_factory=list)


def of(
    grants: Granting, log: Heard, spec: dict[str, Any], nodes: Collection[str], *, is_given: bool
) -> Expected:
    """Return what gpuhook would have given for `spec`, a config.json without anybody's answer.

    `log` is that of `grants`. Where the spec asks for nothing and the container was given GPUs
    all the same (`is_given`), the devices of its device nodes `nodes` are taken as the request.
    """
    found = Expected()
    start = len(log.warnings)
    try:
        found.capabilities = granting.capabilities_of(spec)
        source = grants.source(spec)
        refused = log.warnings[start:]
        if source is not None:
            found.names, found.where = source.names, source.where
            grant = grants.of(spec, source)
        elif refused:
            found.refusal, grant = refused[0], None
        else:
            found.names = asked.by_nodes(grants, nodes) if is_given else []
            found.where = asked.BY_NODES if found.names else ""
            grant = grants.named(found.names, found.capabilities) if found.names else None
        if grant is not None:
            _fill(found, grants, grant)
    except GpuhookError as error:
        found.refusal = error
    found.notes = [error.message for error in log.warnings[start:]]
    return found


def _fill(found: Expected, grants: Granting, grant: Grant) -> None:
    found.todo = grants.jobs(grant, found.capabilities)
    void = f"{words.VOCABULARY.devices_env}=void"
    env = grant.edits.get("env") or []
    grant.edits["env"] = env if void in env else [*env, void]
    found.edits = grant.edits
    found.whole = grants.named(found.names, _EVERY).edits
    try:
        found.others = grants.named(["all"], _EVERY).edits
    except GpuhookError:
        found.others = {}  # one of the others is described twice, or not at all
