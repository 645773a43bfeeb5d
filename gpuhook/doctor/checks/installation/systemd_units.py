# SPDX-License-Identifier: Apache-2.0
"""gpuhook's units that keep CDI specs up to date, and hooks in specs that images could turn."""

from __future__ import annotations

import posixpath

from gpuhook.doctor.check import SPECS, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.facts import service_state
from gpuhook.doctor.facts import spec_facts as specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode

_SERVICE, _PATH = "gpuhook-refresh.service", "gpuhook-refresh.path"
_UNITS = (_SERVICE, _PATH, "gpuhook-refresh.timer", "gpuhook-devices.service")
_DIRECTORIES = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_TOOLKIT_HOOKS = ("nvidia-cdi-hook", "nvidia-ctk")


def refreshed(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the units work that write gpuhook's specs again."""
    paths = [f"{directory}/{_SERVICE}" for directory in _DIRECTORIES]
    if all(node.tree.status(path) is None for path in paths):
        return [absent("gpuhook-refresh is not installed; it comes with the package gpuhook")]
    told = {name: service_state.unit(node, name) for name in _UNITS}
    if not any(told.values()):
        return [absent("units' states cannot be told from files alone")]
    failed = [name for name, unit in told.items() if unit.get("active") == "failed"]
    if failed:
        words = " ".join(failed)
        return [
            _wrong(
                f"{' and '.join(failed)} has failed",
                failed[0],
                f"systemctl reset-failed {words} && systemctl restart {words};"
                f" journalctl -n 20 -u {failed[0]}",
            )
        ]
    disabled = [name for name in (_SERVICE, _PATH) if told[name].get("enabled") == "disabled"]
    if disabled and any(one.author == specs.GPUHOOK for one in specs.spec_files(node)):
        words = " ".join(disabled)
        said = f"{' and '.join(disabled)} is not enabled"
        return [_wrong(said, disabled[0], f"systemctl enable --now {words}")]
    return [ok("gpuhook-refresh writes specs again when the driver changes", *_UNITS)]


def _wrong(said: str, subject: str, command: str) -> Finding:
    return Finding(
        WARNING,
        said,
        subject=subject,
        meaning="after a boot, or for another driver, nobody writes the specs again: engines go by"
        " old ones, or find no device nvidia.com/gpu",
        command=command,
        looked_at=_UNITS,
    )


def hooks(node: ExaminedNode) -> Iterable[Finding]:
    """Find hooks of NVIDIA's toolkit that get their environment from the image."""
    found = [
        (one, hook)
        for one in specs.valid(node)
        if not specs.hidden(node, one)
        for hook in one.items("hooks")
        if _is_open(hook)
    ]
    for path in dict.fromkeys(one.path for one, _ in found):
        one = next(spec for spec, _ in found if spec.path == path)
        yield Finding(
            WARNING,
            f"{path} has hooks of {_TOOLKIT_HOOKS[0]} without an environment of their own",
            subject=path,
            meaning="runc gives such a hook the environment of the image, with LD_PRELOAD: an image"
            " runs code of its own as root on this node (CVE-2025-23266)",
            command=_rewritten(node, one),
            looked_at=(path,),
        )
    if not found:
        yield ok("no hook of a spec gets its environment from an image")


def _is_open(hook: dict[str, object]) -> bool:
    """Return whether an image says in which environment a hook of the toolkit's runs.

    Of the other stages than createContainer, none runs with the container's files in reach.
    """
    name = posixpath.basename(str(hook.get("path")))
    return (
        name in _TOOLKIT_HOOKS and hook.get("hookName") == "createContainer" and not hook.get("env")
    )


def _rewritten(node: ExaminedNode, one: specs.SpecFile) -> str:
    if one.author != specs.TOOLKIT or not specs.has_toolkit(node):
        return specs.rewrite(node, one)
    return f"{specs.rewrite(node, one)} # by the toolkit 1.17.8 or later"


CHECKS = (
    Check("specs.upkeep", SPECS, "gpuhook's units keep its specs up to date", refreshed),
    Check(
        "specs.hook-environment",
        SPECS,
        "No image says in which environment hooks of specs run",
        hooks,
        ("specs.valid",),
    ),
)
