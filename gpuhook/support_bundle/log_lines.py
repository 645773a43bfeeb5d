# SPDX-License-Identifier: Apache-2.0
"""The last lines of logs that have to do with GPUs: engines, kubelet, kernel, plugins, toolkits."""

from __future__ import annotations

import re
import subprocess

from gpuhook.doctor.checks.kubernetes import kubelet_facts
from gpuhook.node import kubelet_files, node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.doctor.check import Node
    from gpuhook.node.node_tree import Tree

_LINES = 1000
_KERNEL_LINES = 20_000
_PATIENCE = 10.0  # seconds
_MAX = 2 << 20  # bytes of a log
_KERNEL = re.compile(r"NVRM|nvidia|Xid|nouveau|\bAER\b|NVLink|nvswitch|nvlink", re.IGNORECASE)
_FILES = (
    "/var/log/nvidia-container-runtime.log",
    "/var/log/nvidia-container-toolkit.log",
    "/var/log/nvidia-installer.log",
    "/var/log/fabricmanager.log",
    "/var/log/gpuhook.log",
)


def of(node: Node, *, is_live: bool) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return log lines by member name, and what could not be had and why.

    Journals are asked of a machine that runs (`is_live`); files are read of any tree.
    """
    found: dict[str, str] = {}
    missing: list[tuple[str, str]] = []
    for path in _FILES:
        text = _tail(node.tree, path)
        if text:
            found[f"logs{path}"] = text
    for pod in node.once(kubelet_facts.pods):
        lines = kubelet_files.last_lines(node.tree, pod.logs, _LINES) if pod.logs else []
        if lines:
            found[f"logs/pods/{pod.uid}.txt"] = "\n".join(lines) + "\n"
    if is_live:
        journals = {"logs/units.txt": _units(node), "logs/kernel.txt": ["-k"]}
        for name, words in journals.items():
            _take(name, words, found, missing)
    return found, missing


def _take(
    name: str, words: list[str], found: dict[str, str], missing: list[tuple[str, str]]
) -> None:
    """Ask the journal, and for the kernel's lines the kernel itself where there is no journal."""
    if not words:
        return
    is_kernel = words == ["-k"]
    most = str(_KERNEL_LINES if is_kernel else _LINES)
    text, why = _heard(["journalctl", "--no-pager", "-q", "-o", "short-iso", "-n", most, *words])
    if is_kernel:
        if why:
            text, why = _heard(["dmesg", "--ctime"])
        text = "".join(line for line in text.splitlines(keepends=True) if _KERNEL.search(line))
    if why:
        missing.append((name, why))
    elif text:
        found[name] = text


def _units(node: Node) -> list[str]:
    """Return the options that name the units whose lines are wanted: those that are installed."""
    units = node.readings.document(node_readings.UNITS)
    known = units if isinstance(units, dict) else {}
    return [
        f"--unit={name}"
        for name, state in known.items()
        if isinstance(state, dict) and state.get("load") == "loaded"
    ]


def _heard(argv: list[str]) -> tuple[str, str]:
    """Return what a program prints, and why it did not, "" if it did."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"{argv[0]} did not answer within {_PATIENCE:g} s"
    except OSError as error:
        return "", f"{argv[0]}: {error.strerror}"
    if done.returncode:
        return "", f"{argv[0]} ended with status {done.returncode}"
    return done.stdout[-_MAX:].decode("utf-8", "replace"), ""


def _tail(tree: Tree, path: str) -> str:
    """Return the last lines of a file, "" if it is not there or may not be read."""
    try:
        content = tree.read(path, 16 << 20) or b""
    except OSError:
        return ""
    lines = content[-_MAX:].decode("utf-8", "replace").splitlines(keepends=True)
    return "".join(lines[-_LINES:])
