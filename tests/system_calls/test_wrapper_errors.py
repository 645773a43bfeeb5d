# SPDX-License-Identifier: Apache-2.0
"""gpuhook-runtime with an error at each system call of its Python program, and of its launcher.

A container without a request starts, its config.json unchanged. A container with an assigned GPU
starts with its GPU, or does not start, its config.json unchanged and the reason reported.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract import roots
from tests.contract.bundles import Bundle, bundle
from tests.contract.installation import PYTHON, Installation, asks, install
from tests.contract.runtimes import Result
from tests.depth import cases, depth
from tests.figures import Figures
from tests.system_calls import call_points
from tests.system_calls.call_points import Point

# What the variable names is put before the interpreter, with a blank between its words.
SHIM = f'#!/bin/sh\nexec $GPUHOOK_TEST_TRACER {PYTHON} "$@"\n'
REQUESTS = {
    "none": ["A=NVIDIA_VISIBLE_DEVICES"],  # without the word, no Python starts
    "void": asks("void"),
    "gpu": asks("0"),
}


@dataclass(frozen=True)
class Node:
    """An installation whose interpreter runs under a tracer, and a low-level runtime's stand-in."""

    installation: Installation
    place: Path

    @property
    def ran(self) -> Path:
        """Return the file that the low-level runtime creates."""
        return self.place / "ran"

    def command(self, *words: str) -> list[str]:
        """Return the command line of gpuhook-runtime."""
        log = str(self.place / "log")
        return [self.installation.runtime, "--root", f"{self.place}/state", "--log", log, *words]

    def env(self, tracer: list[str]) -> dict[str, str]:
        """Return the environment."""
        own = self.installation.on(str(self.place / "low"))
        return {**os.environ, **own, "GPUHOOK_TEST_TRACER": " ".join(tracer)}

    def bundle(self, kind: str) -> Bundle:
        """Return a fresh bundle whose container requests what its kind has."""
        place = self.place / "container"
        subprocess.run(["rm", "-rf", place, self.ran, self.place / "log"], check=True)
        subprocess.run(["cp", "-a", self.place / "root", place], check=True)
        return bundle(self.place / "bundle", place, ["/probe"], REQUESTS[kind])


@pytest.fixture(scope="module")
def node(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Return a node with the tracer's shim; an installation takes seconds."""
    tmp_path = tmp_path_factory.mktemp("traced")
    shim = tmp_path / "python3"
    low = tmp_path / "low"
    shim.write_text(SHIM, "utf-8")
    low.write_text(f"#!/bin/sh\n: >{tmp_path}/ran\n", "utf-8")
    for program in (shim, low):
        program.chmod(0o755)
    roots.copy("distroless", tmp_path / "root")
    bindir = install(tmp_path / "prefix", shim)
    made = Installation(tmp_path, bindir, node8.node)
    made.configure()
    made.generate()
    return Node(made, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("kind", cases(REQUESTS, []))
def test_error_at_a_call_of_the_wrapper(kind: str, node: Node, figures: Figures) -> None:
    """Each error that the kernel returns from a call of Python, from its first to its last."""
    found = _python_points(node, kind)
    chosen = call_points.errors(found)[:: depth(6, 6, 1)]
    ends: Counter[str] = Counter()
    findings: list[str] = []
    for point, error in chosen:
        made = node.bundle(kind)
        before = made.file.read_bytes()
        tracer = call_points.injection(f"error={error}", point)
        done = _create(node, tracer, made)
        try:
            ends[_judged(kind, node, made, before, done)] += 1
        except AssertionError as finding:
            findings.append(f"{error} at {point}: {finding}")
    figures.record(
        f"errors at system calls of the wrapper, container requests: {kind}",
        f"{len(chosen)} errors at {len(found)} calls: "
        + ", ".join(f"{count} {end}" for end, count in sorted(ends.items())),
    )
    assert not findings, "\n".join(findings)


def _create(node: Node, tracer: list[str], made: Bundle) -> Result:
    words = node.command("create", "--bundle", str(made.path), "x")
    done = subprocess.run(
        words, env=node.env(tracer), capture_output=True, text=True, timeout=60, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


def _python_points(node: Node, kind: str) -> list[Point]:
    """Return the system calls of the interpreter during a create, from its own code on."""
    made, trace = node.bundle(kind), node.place / "calls"
    assert _create(node, [], made).rc == 0  # compiles the settings and the spec
    made = node.bundle(kind)
    assert _create(node, ["strace", "-f", "-y", "-qq", "-o", str(trace)], made).rc == 0
    return call_points.parsed(trace)


def _judged(kind: str, node: Node, made: Bundle, before: bytes, done: Result) -> str:
    """Return how a create ended: "started" or "refused"; it must be one of them, entirely."""
    after = made.file.read_bytes()
    has_started = node.ran.exists()
    assert (done.rc == 0) == has_started, done
    assert not [name for name in os.listdir(made.path) if name.startswith(".gpuhook")], done
    if kind != "gpu":
        assert after == before, done
        assert has_started or _has_unreadable_config(done, made), done
        return "started" if has_started else "refused, config.json unreadable"
    if has_started:
        assert b"nvidia0" in after, done
        return "started"
    assert after == before, done
    assert done.rc == 1, done
    lines = re.findall(r"^gpuhook-runtime: error (GH\d{4}): .+$", done.stderr, re.MULTILINE)
    assert len(lines) == 1, done
    log = node.place / "log"
    assert lines[0] in log.read_text("utf-8"), done
    return "refused"


def _has_unreadable_config(done: Result, made: Bundle) -> bool:
    """Return whether config.json could not be read, or no low-level runtime was found."""
    return str(made.file) in done.stderr or "GH1401" in done.stderr
