# SPDX-License-Identifier: Apache-2.0
"""gpuhook's units that update CDI specs, and hooks in specs that an image could abuse."""

from __future__ import annotations

import posixpath

from gpuhook.node_facts import cdi_specs, engine_facts, program_facts
from gpuhook.node_facts.check import WARNING, Finding, absent, check, ok
from gpuhook.vendors.nvidia.doctor.facts import nvidia_specs as specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode, Findings

_SERVICE, _PATH = "gpuhook-refresh.service", "gpuhook-refresh.path"
REFRESH_UNITS = (_SERVICE, _PATH, "gpuhook-refresh.timer")
_UNITS = (*REFRESH_UNITS, "gpuhook-devices.service")


@check("specs.upkeep", "gpuhook's units keep its specs up to date")
def _upkeep(node: ExaminedNode) -> Findings:
    if not program_facts.has_unit(node, _SERVICE):
        return absent("gpuhook-refresh is not installed; the package gpuhook contains it")
    has_spec = any(one.author == specs.GPUHOOK for one in specs.spec_files(node))
    required = (_SERVICE, _PATH) if has_spec else ()
    meaning = (
        "after a boot or a driver change, the specs are not updated: engines use old ones or find"
        " no device nvidia.com/gpu"
    )
    fault = unit_fault(node, _UNITS, required, meaning)
    return fault or ok("gpuhook-refresh updates specs when the driver changes", *_UNITS)


def unit_fault(
    node: ExaminedNode, units: tuple[str, ...], required: tuple[str, ...], meaning: str
) -> Finding | None:
    """Return the fault of units that update a spec, None if there is none.

    A unit that failed is a fault; of the `required` ones, a disabled one too.
    """
    states = {name: program_facts.unit(node, name) for name in units}
    if not any(states.values()):
        return absent("the files of a node do not show the states of units")
    failed = [name for name, unit in states.items() if unit.get("active") == "failed"]
    disabled = [name for name in required if states[name].get("enabled") == "disabled"]
    wrong = failed or disabled
    if not wrong:
        return None
    words = " ".join(wrong)
    message = f"{' and '.join(wrong)} is not enabled"
    command = f"systemctl enable --now {words}"
    if failed:
        message = (
            f"{' and '.join(failed)} failed ({states[failed[0]].get('result') or 'no reason'})"
        )
        command = (
            f"systemctl reset-failed {words} && systemctl restart {words};"
            f" journalctl -n 20 -u {failed[0]}"
        )
    return Finding(WARNING, message, wrong[0], meaning, command, units)


@check(
    "specs.hook-environment",
    "Hooks in specs do not run with the environment of an image",
    needs=("specs.valid",),
)
def _hooks(node: ExaminedNode) -> Findings:
    found = [
        Finding(
            WARNING,
            f"{one.path} has hooks of {specs.TOOLKIT_HOOKS[0]} without an environment",
            subject=one.path,
            meaning="runc gives such a hook the environment of the image, also LD_PRELOAD: an image"
            " can run its code as root on this node (CVE-2025-23266)",
            command=_rewritten(node, one),
            looked_at=(one.path,),
        )
        for one in specs.valid_specs(node)
        if not specs.is_hidden(node, one) and any(map(_is_open, one.items("hooks")))
    ]
    return found or ok("no hook of a spec runs with the environment of an image")


def _is_open(hook: dict[str, object]) -> bool:
    """Return whether a hook of the toolkit runs with the environment of the image.

    Hooks of other stages than createContainer do not have the container's files in reach.
    """
    is_toolkits = posixpath.basename(str(hook.get("path"))) in specs.TOOLKIT_HOOKS
    return is_toolkits and hook.get("hookName") == "createContainer" and not hook.get("env")


def _rewritten(node: ExaminedNode, one: cdi_specs.SpecFile) -> str:
    if one.author != specs.TOOLKIT or not engine_facts.has_toolkit(node):
        return specs.rewrite_command(node, one)
    return f"{specs.rewrite_command(node, one)} # by the toolkit 1.17.8 or later"


CHECKS = (_upkeep, _hooks)
