# SPDX-License-Identifier: Apache-2.0
"""A function of NVML hangs, crashes, fails or answers garbage: each command that calls it ends.

A command gives its answer, or one error with a code and a hint. None of its processes is left. The
deadlines are shorter here.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.cli.diagnosis import support_bundle
from gpuhook.explain import node_context
from gpuhook.host.hot import procfs
from gpuhook.vendors import driver_worker
from gpuhook.vendors.nvidia.generate import driver_spec
from gpuhook.vendors.usage import usage_worker
from tests.depth import cases
from tests.faults.impatient_node import impatient_node
from tests.simulated.faulty_nvml import FaultyNvml
from tests.simulated.node import SimulatedNode
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need root")

LIMIT = 60.0  # of a command that reads the driver several times, on a busy machine
COMMANDS = {
    "inventory": "inventory",
    "dump": "inventory --output json",
    "generate-cdi": "generate-cdi --output-file spec.yaml",
    "refresh": "refresh --force",
    "labels": "labels --oneshot --output-file=",
    "ps": "ps -o json",
    "map": "map --html map.html",
    "doctor": "doctor",
    "compare": "compare --all",
    "support-bundle": "support-bundle --output-file bundle.tar.gz",
}
DEADLINES = (
    (driver_worker, "SECONDS"),
    (usage_worker, "SECONDS"),
    (driver_spec, "_SECONDS"),
    (node_context, "DRIVER_SECONDS"),
    (support_bundle, "_COMMAND_SECONDS"),
)
FAULTS = ("hang", "crash", "error 999", "error 15", "garbage")
EVERYDAY = (
    ("inventory", "nvmlInitWithFlags"),
    ("generate-cdi", "nvmlDeviceGetUUID"),
    ("labels", "nvmlDeviceGetGpuFabricInfoV"),
)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedNode:
    """Return a node with MIG devices, which the commands read with short deadlines."""
    settings = tmp_path / "config.yaml"
    settings.write_text(f"cdi: {{spec-dirs: [{tmp_path}/cdi]}}\n", "utf-8")
    monkeypatch.setenv("GPUHOOK_CONFIG", str(settings))
    monkeypatch.chdir(tmp_path)
    return impatient_node(tmp_path, "a100-mig", monkeypatch, DEADLINES)


@pytest.mark.parametrize("name", cases(COMMANDS, [name for name, _ in EVERYDAY]))
def test_faults(name: str, node: SimulatedNode) -> None:
    """Each function that a command calls, with each fault."""
    nvml = FaultyNvml.install(node)
    _ended("generate-cdi --output-file cdi/nvidia.yaml")
    nvml.watch()
    status, text = _ended(COMMANDS[name])
    assert status != 2, text  # wrong options
    findings = []
    chosen = [function for function in nvml.calls() if _is_chosen(name, function)]
    assert chosen
    for function in chosen:
        for fault in FAULTS:
            nvml.fail(function, fault)
            trouble = _trouble(*_ended(COMMANDS[name])) or _living()
            if trouble:
                findings.append(f"{function} {fault}: {trouble}")
    nvml.end()
    assert not findings, "\n".join(findings)


def _is_chosen(name: str, function: str) -> bool:
    is_all = os.environ.get("GPUHOOK_TESTS") in ("all", "soak")
    return is_all or (name, function) in EVERYDAY


def _ended(words: str) -> tuple[int, str]:
    """Run a command in a child process; return its wait status and its output."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            done = CliRunner().invoke(main, words.split())
            text = done.output + done.stderr + (f"\n{done.exception!r}" if done.exception else "")
            os.write(writer, f"{done.exit_code}\n{text}"[-60000:].encode())
        finally:
            os._exit(0)
    os.close(writer)
    ready = select.select([reader], [], [], LIMIT)[0]
    answer = os.read(reader, 65536).decode() if ready else "late\n"
    os.close(reader)
    if not ready:
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    code, _, text = answer.partition("\n")
    return (int(code) if code.lstrip("-").isdigit() else -1), text


def _trouble(code: int, text: str) -> str:
    """Return what is wrong with the end of a command, "" for nothing."""
    if code not in (0, 1):
        return f"status {code}: {text[-2000:]}"
    for word in ("Traceback", "GH1491", "Error('", "\\xff"):
        if word in text:
            return f"{word}: {text[-2000:]}"
    if code == 1 and "GH" not in text and "fix: " not in text:  # doctor's findings have no code
        return f"no code: {text[-2000:]}"
    return ""


def _living() -> str:
    """Return which other processes of this directory there are, after they had time to end."""
    with suppress(TimeoutError):
        eventually(lambda: not _processes(), timeout=5)
    found = _processes()
    return f"left: processes {found}" if found else ""


def _processes() -> list[int]:
    found = []
    for pid in procfs.pids():
        with suppress(OSError):
            stat = procfs.process_stat(pid)
            is_here = os.readlink(f"/proc/{pid}/cwd") == os.getcwd() and pid != os.getpid()
            if is_here and stat and stat[0] not in procfs.ENDED:
                found.append(pid)
    return found
