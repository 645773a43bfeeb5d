# SPDX-License-Identifier: Apache-2.0
"""Items of device nodes and of the access that the device cgroup allows.

The permission to create nodes (m) is not compared: runtimes allow it for all devices.
"""

from __future__ import annotations

from gpuhook.apply.spec import oci_spec
from gpuhook.compare.items import env_items, known_differences, node_specs
from gpuhook.compare.items.compare_item import ACCESS, NODE, compare_words
from gpuhook.errors import GpuhookError
from gpuhook.kernel.bpf import device_filter
from gpuhook.kernel.bpf.device_filter import Rule
from gpuhook.vendors import known_difference
from gpuhook.vendors.known_difference import MODE, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.cdi.hot.container_edits import DeviceNode
    from gpuhook.compare.expected_injection import ExpectedInjection
    from gpuhook.compare.items.compare_item import Item

_ACCESS = "rw"
_ANY = (4095, 1048575)  # the last device number, which only a general rule matches


def items(
    held: Live,
    spec: dict[str, Any],
    there: list[dict[str, Any]],
    by: str,
    expected: ExpectedInjection,
) -> Iterator[Item]:
    """Yield the device nodes and their access; `there` are the nodes of an inspection.

    `spec` is config.json; its general rules (of privileged containers) apply to both sides.
    """
    general = [rule for rule in _rules(spec) if rule.major is None or rule.minor is None]
    is_privileged = allows_everything(spec)
    nodes_expected = {node["path"]: node for node in expected.edits.get("deviceNodes") or ()}
    whole = {node["path"]: node for node in expected.whole.get("deviceNodes") or ()}
    found = {node["path"]: node for node in there}
    for path in sorted(nodes_expected.keys() | found.keys()):
        have, want = found.get(path), nodes_expected.get(path)
        if want is None and have is not None:
            is_whole = path in whole and _is_alike(have, whole[path])
            reason = known_differences.extra_part(
                path, by, expected, is_whole=is_whole, is_privileged=is_privileged
            )
            verdict = "allowed" if have["allowed"] else "denied"
            yield compare_words(NODE, path, f"{_there(have)}, {verdict}", "", reason)
        elif want is not None:
            yield from _pair(held, path, have, want, by)
            yield from _access(spec, path, want, by)
    yield from _foreign(held, general, found, nodes_expected, expected)


def allows_everything(spec: dict[str, Any]) -> bool:
    """Return whether a config.json allows all devices, as for a privileged container."""
    return _allows(_rules(spec), _ANY)


def _access(spec: dict[str, Any], path: str, want: DeviceNode, by: str) -> Iterator[Item]:
    """Yield the difference of the permissions in config.json that is harmless for `by`."""
    there = node_specs.accesses(spec, [path]).get(path, "")
    ours = want.get("permissions") or ""
    reason = known_differences.reason(by, Difference(known_difference.ACCESS, path))
    if there and ours and there != ours and reason:
        yield compare_words(ACCESS, f"{path} in config.json", there, ours, reason)


def _pair(
    held: Live, path: str, have: dict[str, Any] | None, want: DeviceNode, by: str
) -> Iterator[Item]:
    try:
        device = oci_spec.oci_device(want)
    except GpuhookError as error:
        yield compare_words(NODE, path, _there(have) if have else "", f"refused: {error.message}")
        return
    mode = device.get("fileMode", 0o666)
    ours = f"c {device['major']}:{device['minor']} {mode:04o}"
    if have is None:
        yield compare_words(NODE, path, "", ours)
        return
    is_usable = _is_alike(have, want) and _may_open(held, have)
    reason = known_differences.reason(by, Difference(MODE, path)) if is_usable else ""
    yield compare_words(NODE, path, _there(have), ours, reason)
    if _is_alike(have, want) and held.rules.version != "none":
        access = "allowed" if have["allowed"] else f"denied ({have['reason']})"
        yield compare_words(ACCESS, path, access, "allowed")


def _may_open(held: Live, have: dict[str, Any]) -> bool:
    """Return whether the mode of a node lets the container's first process read and write it."""
    ids = env_items.identities(held)
    mode, other, group = int(have["mode"], 8), 0o006, 0o060
    if 0 in ids.users or mode & other == other:
        return True
    return mode & group == group and have["gid"] in ids.groups


def _is_alike(have: dict[str, Any], want: DeviceNode) -> bool:
    """Return whether a node is the device that gpuhook would add, False without that device."""
    try:
        device = oci_spec.oci_device(want)
    except GpuhookError:
        return False
    return bool((have["major"], have["minor"]) == (device["major"], device["minor"]))


def _foreign(
    held: Live,
    general: list[Rule],
    found: dict[str, dict[str, Any]],
    nodes_expected: dict[str, DeviceNode],
    expected: ExpectedInjection,
) -> Iterator[Item]:
    """Yield the devices of the host that are allowed in the container but have no node there.

    A process that may create nodes in the container could open them.
    """
    if held.rules.version == "none":
        return
    numbers = {(node["major"], node["minor"]) for node in found.values()}
    absent = {
        path: number
        for path, number in expected.others.items()
        if path not in found and path not in nodes_expected and number not in numbers
    }
    if general:
        absent = {path: one for path, one in absent.items() if not _allows(general, one)}
    verdicts = held.rules.verdicts("c", list(absent.values()), _ACCESS)
    for (path, number), (allowed, _) in zip(absent.items(), verdicts, strict=True):
        if allowed:
            access = f"allowed (c {number[0]}:{number[1]}), without a node"
            yield compare_words(ACCESS, path, access, "")


def _there(node: dict[str, Any]) -> str:
    return f"c {node['major']}:{node['minor']} {node['mode']}"


def _rules(spec: dict[str, Any]) -> list[Rule]:
    return [Rule.of_oci(rule) for rule in oci_spec.device_rules(spec) if isinstance(rule, dict)]


def _allows(rules: list[Rule], number: tuple[int, int]) -> bool:
    return device_filter.evaluate(rules, "c", _ACCESS, *number, default=False)
