# SPDX-License-Identifier: Apache-2.0
"""What dockerd is started with: flags that say what daemon.json says too keep it from starting."""

from __future__ import annotations

from gpuhook.doctor.check import ENGINES, FAILED, Check, Finding, absent, ok
from gpuhook.doctor.facts.engine_facts import dockers
from gpuhook.engines.read import unit_flags
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode

# Flags of GPUs' concern, and the members of daemon.json that may not stand beside them.
_FLAGS = {
    "add-runtime": "runtimes",
    "default-runtime": "default-runtime",
    "cdi-spec-dir": "cdi-spec-dirs",
    "feature": "features",
}


def flags(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether flags and daemon.json say the same thing, which dockerd refuses."""
    here = [one for one in dockers(node) if one.kind == "docker"]
    for one in here:
        said = unit_flags.unit_flags(node.tree)
        members = _members(one.read.content)
        wrong = [flag for flag in said if _FLAGS.get(flag.name, "") in members]
        for flag in wrong:
            key = _FLAGS[flag.name]
            yield Finding(
                FAILED,
                f'{flag.where} starts dockerd with --{flag.name}, and {one.read.path} has "{key}"',
                subject=flag.name,
                meaning="dockerd does not start: unable to configure the Docker daemon with file"
                f" {one.read.path}: the following directives are specified both as a flag and in"
                f" the configuration file: {key}",
                command=f"vi +{flag.where.line} {flag.where.path} && systemctl daemon-reload &&"
                f" {one.restart} # without the flag",
                looked_at=(flag.where.path, one.read.path),
            )
        if not wrong:
            yield ok("no flag of dockerd's says what daemon.json says", one.read.path)
    if not here:
        yield absent("no Docker is here that a unit of systemd's starts")


def _members(content: bytes) -> frozenset[str]:
    try:
        return frozenset(documents.parse_json_object(content or b"{}"))
    except ValueError:
        return frozenset()  # which docker.config says


CHECKS = (
    Check(
        "docker.flags",
        ENGINES,
        "No flag of dockerd's says what daemon.json says",
        flags,
        ("docker.config",),
    ),
)
