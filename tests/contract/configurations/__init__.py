# SPDX-License-Identifier: Apache-2.0
"""Configurations of engines, each as one file: the files before and after configuring.

The first line is the title. `version: 1.7.2` is the daemon's, `wanted: key=value ...` the options
that differ from the defaults. `=== PATH` begins an existing file, `=== becomes PATH` a changed one,
`=== fault CODE` is the fault that is raised instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
from gpuhook.engines.read import engine_config
from gpuhook.node_facts.sources.node_tree import DirectoryTree

HERE = Path(__file__).parent
PROGRAM = "/usr/bin/gpuhook-runtime"
HOOK = "/usr/bin/gpuhook-prestart"
_OF_NODE = ("config", "drop_in")


@dataclass(frozen=True)
class Case:
    """One configuration; `becomes` is empty if nothing changes."""

    title: str
    version: str
    wanted: dict[str, Any]
    files: dict[str, str]
    becomes: dict[str, str]
    fault: str

    def write(self, root: Path) -> EngineNode:
        """Write the files below a root and return that node."""
        for path, text in self.files.items():
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode("utf-8", "surrogateescape"))
        chosen = {name: self.wanted[name] for name in _OF_NODE if name in self.wanted}
        base = self.wanted.get("base_spec")
        return EngineNode(
            DirectoryTree(str(root)),
            engine_config.parse_version(self.version),
            base_spec=base.encode() if base else None,
            **chosen,
        )

    def asked(self) -> EngineOptions:
        """Return the options."""
        plain = {"route": "wrapper", "name": "nvidia", "program": PROGRAM, "hook": HOOK}
        given = {
            key: value for key, value in self.wanted.items() if key not in (*_OF_NODE, "base_spec")
        }
        return EngineOptions(**{**plain, **given})


def cases(engine: str) -> dict[str, Case]:
    """Return an engine's cases by their names."""
    return {one.stem: _read(one) for one in sorted((HERE / engine).glob("*.case"))}


def _read(path: Path) -> Case:
    head, *sections = path.read_bytes().decode("utf-8", "surrogateescape").split("=== ")
    lines = head.splitlines()
    said = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    files: dict[str, str] = {}
    becomes: dict[str, str] = {}
    fault = ""
    for section in sections:
        name, _, text = section.partition("\n")
        kind, _, rest = name.partition(" ")
        if kind == "fault":
            fault = rest
        elif kind == "becomes":
            becomes[rest] = text
        else:
            files[name] = text
    wanted = dict(word.split("=", 1) for word in said.get("wanted", "").split())
    return Case(lines[0], said.get("version", ""), _typed(wanted), files, becomes, fault)


def _typed(words: dict[str, str]) -> dict[str, Any]:
    return {key: True if value == "true" else value for key, value in words.items()}
