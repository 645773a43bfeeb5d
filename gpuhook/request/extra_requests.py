# SPDX-License-Identifier: Apache-2.0
"""Devices that a container requests in addition to its GPUs: variables and mounts.

Loaded only for a container that requests devices and has one of these variables or mounts. An extra
becomes qualified names, which are resolved after those of the source. The Vocabulary says what each
variable means; the node resolves the names.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError, fault
from gpuhook.request import mount_requests, parse, policy
from gpuhook.request.policy import IGNORED, WON
from gpuhook.request.resolve import resolve_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.parse import Vocabulary
    from gpuhook.vendors.interface import VendorNode

# How a variable is read, in addition to policy.IDS: the value is `enabled`; the value is `all`.
SWITCH, WHOLE = "switch", "whole"
ENABLED, EVERY = "enabled", "all"
_NOTHING_FOUND = "GH1037"


class Extra:
    """The request of one variable or directory: qualified names, and the decision on them.

    `kind` is parse.ENV or parse.MOUNTS. `result` is WON, REFUSED or IGNORED of policy.py, `reason`
    why it does not apply. A container starts without an extra that `is_switch` if the node lacks
    the device; one that `is_list` lists ids. A warning reports an extra that is skipped, if
    `is_reported`.
    """

    __slots__ = (
        "is_list",
        "is_reported",
        "is_switch",
        "kind",
        "names",
        "reason",
        "result",
        "where",
    )

    def __init__(
        self,
        kind: str,
        where: str,
        names: list[str],
        *,
        is_switch: bool = False,
        is_list: bool = False,
    ) -> None:
        self.kind = kind
        self.where = where
        self.names = names
        self.is_switch = is_switch
        self.is_list = is_list
        self.is_reported = True
        self.result = WON
        self.reason = ""

    def out(self, result: str, reason: str) -> Extra:
        """Return it as one that does not apply, because of `reason`."""
        self.result, self.reason = result, reason
        return self


def judged(spec: dict[str, Any], words: Vocabulary, settings: Settings) -> list[Extra]:
    """Return each extra that a container requests, with the decision of policy.

    Ids in mounts win over ids in a variable, if mounts may request devices at all. Raises GH1004
    and GH1005 for a malformed list, GH1039 for a variable whose only valid value is `all`.
    """
    found = [policy.judge_extra(extra, spec, settings) for extra in _of_mounts(spec, words)]
    listed = {_kind(name) for one in found if one.result == WON for name in one.names}
    environment = parse.environment(spec)
    for variable, (how, kind, device) in words.extras.items():
        extra = _of_variable(variable, environment.get(variable) or "", how, kind, device)
        if extra is None:
            continue
        if how != WHOLE:  # for privileged containers only, see policy.require_privilege()
            policy.judge_extra(extra, spec, settings)
        if extra.result == WON and kind in listed:
            extra.out(IGNORED, "mounts request devices of this kind, and take precedence")
        found.append(extra)
    return found


def lack(extra: Extra, node: VendorNode) -> str | None:
    """Return what the node lacks for a switch that is on, None if it lacks nothing."""
    try:
        if extra.is_switch:
            resolve_names(extra.names, frozenset(node.capability_words), node)
    except GpuhookError as error:
        if error.code != _NOTHING_FOUND:
            raise
        return error.message
    return None


def with_extras(
    spec: dict[str, Any],
    source: parse.Source,
    settings: Settings,
    node: VendorNode,
    warnings: list[GpuhookError],
) -> list[str]:
    """Return the names of a source that applies, and after them those of the extras that apply.

    Adds to `warnings` what is skipped. Raises the faults of policy.py and of the node's
    extra_requests().
    """
    policy.require_privilege(source.names, source.where, spec, node.vocabulary)
    found = policy.permitted_names(source, settings, node.vocabulary, warnings)
    for extra in node.extra_requests(spec, settings):
        if extra.result != WON:
            policy.leave_out(extra, settings, warnings)
            continue
        policy.require_privilege(extra.names, extra.where, spec, node.vocabulary)
        if not node.is_here:
            continue
        reason = lack(extra, node)
        if reason is None:
            found += extra.names
        else:
            warnings.append(fault("GH1040", where=extra.where, reason=reason))
    return found


def _kind(name: str) -> str:
    return name.partition("=")[0]


def _of_variable(variable: str, value: str, how: str, kind: str, device: str) -> Extra | None:
    """Return the request of a variable, None if its value is empty."""
    names = parse.names_of(value, "variable " + variable)
    if not names:
        return None
    if how == SWITCH:
        if value == ENABLED:
            return Extra(parse.ENV, variable, [f"{kind}={device}"], is_switch=True)
        return Extra(parse.ENV, variable, names).out(
            IGNORED, f"{variable}={value} is not {variable}={ENABLED}"
        )
    if how == WHOLE:
        if names != [EVERY]:
            raise fault("GH1039", variable=variable, value=value)
        return Extra(parse.ENV, variable, [f"{kind}={device}"])
    if EVERY in names:
        return Extra(parse.ENV, variable, names).out(IGNORED, "`all` does not name any of them")
    return Extra(parse.ENV, variable, [f"{kind}={name}" for name in names], is_list=True)


def _of_mounts(spec: dict[str, Any], words: Vocabulary) -> list[Extra]:
    found = []
    for directory, kind in words.extra_mounts.items():
        below = f"{words.mount_prefix}/{directory}/"
        ids = ",".join(mount_requests.below(spec.get("mounts"), below))
        names = parse.names_of(ids, "mounts below " + below)
        if names:
            named = [f"{kind}={name}" for name in names]
            found.append(Extra(parse.MOUNTS, below, named, is_list=True))
    return found
