# SPDX-License-Identifier: Apache-2.0
"""The last lines of gpuhook's logs, each with its listed keys, and messages of GPU drivers."""

from __future__ import annotations

import json
import re
import subprocess

from gpuhook.host import documents
from gpuhook.node_facts import kubelet_facts
from gpuhook.node_facts.sources import kubelet_files, node_readings
from gpuhook.support_bundle.allow_list import EVENT, LOG_KEYS
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.vendors.support_facts import SupportFacts

_LINES = 1000
_TIME_LIMIT = 10.0  # seconds
_MAX = 2 << 20  # bytes of a log
_FILE = "/var/log/gpuhook.log"
_PAIR = re.compile(r"([a-z_]+)=(?:\"([^\"\\]*)\"|([^\s\"]*))(?:\s+|$)")
_KERNEL = re.compile(r"\[ *([0-9.]+)\] \S+ kernel: (.*)")
_TIME = re.compile(r"[0-9T:.Z+-]{10,40}")
_VALUE = re.compile(
    r"(?:(?:GPU|MIG)-[0-9a-f-]{36}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|amdgpu_xcp_[0-9]+)"
    r"(?:::[0-9]+)?|GH[0-9]{4}|[0-9]{1,9}"
)
_RESOURCE = re.compile(
    r"nvidia\.com/(?:gpu|gpu\.shared|mig-[0-9a-z.]+)"
    r"|amd\.com/(?:gpu|[a-z]{3}_nps[0-9])(?:\.shared)?"
)
_LEVELS = ("debug", "info", "warning", "error", "critical")


def log_lines(node: ExaminedNode, *, is_live: bool) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return log lines by member name, and what is missing and why.

    The journal is read on a running machine (`is_live`), files in any tree.
    """
    found: dict[str, list[str]] = {}
    missing: list[tuple[str, str]] = []
    try:
        content = node.tree.read(_FILE, 16 << 20) or b""
    except OSError:
        content = b""
    found[f"logs{_FILE}"] = content[-_MAX:].decode("utf-8", "replace").splitlines()
    for pod in kubelet_facts.pods(node):
        if pod.logs:
            found[f"logs/pods/{pod.uid}.txt"] = kubelet_files.last_lines(
                node.tree, pod.logs, _LINES
            )
    units = _units(node) if is_live else []
    if units:
        text, why = _program_output(["journalctl", "--no-pager", "-q", "-o", "cat", *units])
        found["logs/units.txt"] = text.splitlines()
        missing += [("logs/units.txt", why)] if why else []
    facts = _driver_facts(node) if is_live else []
    kernel: list[str] = []
    if facts:
        words = ["journalctl", "--no-pager", "-q", "-k", "-o", "short-monotonic"]
        text, why = _program_output(words)
        kernel = [kept for one in text.splitlines() if (kept := kernel_line(one, facts))]
        missing += [("logs/kernel.txt", why)] if why else []
    texts = {name: [one for one in map(line, lines) if one] for name, lines in found.items()}
    texts["logs/kernel.txt"] = kernel
    return {name: "\n".join(ls[-_LINES:]) + "\n" for name, ls in texts.items() if ls}, missing


def kernel_line(text: str, facts: Iterable[SupportFacts]) -> str:
    """Return a message of a driver with its time since the boot, "" for another message."""
    found = _KERNEL.fullmatch(text)
    for one in facts if found else ():
        if found and one.message and one.message.fullmatch(found[2]):
            return f"[{found[1]}] {one.redacted(found[2])}"
    return ""


def _driver_facts(node: ExaminedNode) -> list[SupportFacts]:
    """Return the facts of the vendors that this node has by the kernel's files."""
    present = node.readings.document(node_readings.VENDORS) or {}
    return [one.support_facts() for one in vendors() if one.name in present]


def line(text: str) -> str:
    """Return a line of gpuhook's log with its listed keys, "" for another format."""
    kept = {
        key: value for key, value in _pairs(text).items() if key in LOG_KEYS and _is_fit(key, value)
    }
    return json.dumps(kept) if {"timestamp", "level", "event"} <= kept.keys() else ""


def _pairs(text: str) -> dict[str, Any]:
    if text.startswith("{"):
        try:
            return documents.parse_json_object(text)
        except ValueError:
            return {}
    pairs = list(_PAIR.finditer(text))
    if "".join(one[0] for one in pairs) != text:
        return {}
    return {one[1]: one[3] if one[2] is None else one[2] for one in pairs}


def _is_fit(key: str, value: Any) -> bool:
    """Return whether a value is of the kind that gpuhook writes for this key."""
    text = str(value)
    if key == "event":
        return EVENT.fullmatch(text) is not None
    if key == "level":
        return text in _LEVELS
    pattern = {"timestamp": _TIME, "resource": _RESOURCE}.get(key, _VALUE)
    return pattern.fullmatch(text) is not None


def _units(node: ExaminedNode) -> list[str]:
    """Return the options that name gpuhook's installed units."""
    units = node.readings.document(node_readings.UNITS)
    known = units if isinstance(units, dict) else {}
    return [
        f"--unit={name}"
        for name, state in known.items()
        if name.startswith("gpuhook") and isinstance(state, dict) and state.get("load") == "loaded"
    ]


def _program_output(argv: list[str]) -> tuple[str, str]:
    """Return the output of a program, and the reason if it failed, else ""."""
    try:
        done = subprocess.run(
            [*argv, "-n", str(_LINES)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"{argv[0]} did not answer within {_TIME_LIMIT:g} s"
    except OSError as error:
        return "", f"{argv[0]}: {error.strerror}"
    if done.returncode:
        return "", f"{argv[0]} ended with status {done.returncode}"
    return done.stdout[-_MAX:].decode("utf-8", "replace"), ""
