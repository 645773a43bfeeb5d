# SPDX-License-Identifier: Apache-2.0
"""Configurations of the device plugin as texts: composed, read and checked."""

from __future__ import annotations

import textwrap

from gpuhook.device_plugin.config.config_reader import ConfigReading, read
from gpuhook.device_plugin.config.configuration import Configuration

HERE = "plugin.yaml"
ENTRY = "sharing.timeSlicing.resources[0]"
WITH_MPS_ROOT = "flags: {mpsRoot: /mps}\n"
UNITS = "sharing: {{memoryUnits: {{resources: [{{name: gpu, {}}}]}}}}\n"  # the test adds its keys


def parsed(text: str, *, strict: bool = False) -> ConfigReading:
    return read(textwrap.dedent(text).encode(), HERE, strict=strict)


def lines(reading: ConfigReading) -> list[str]:
    """Return the findings as they are printed, without the file, hints after an arrow."""
    found = [f"{found} -> {found.hint}" if found.hint else f"{found}" for found in reading.findings]
    return [line.removeprefix(f"{HERE}:") for line in found]


def good(text: str) -> Configuration:
    reading = parsed(text)
    assert reading.findings == ()
    assert reading.configuration is not None
    return reading.configuration


def sharing(text: str, strategy: str = "timeSlicing") -> str:
    """Return a file that shares by `strategy`, with the lines of `text` as keys."""
    return f"sharing:\n  {strategy}:\n" + textwrap.indent(textwrap.dedent(text), "    ")


def one(text: str) -> str:
    """Return a file with one entry that has the keys of `text`, in flow style."""
    return sharing(f"resources:\n- {{{text}}}\n")


def marked(text: str) -> tuple[str, str]:
    """Return a text without its ^, and the line and column of the ^."""
    before, mark, after = text.partition("^")
    assert mark
    line = before.rpartition("\n")[2]
    return before + after, f"{before.count(chr(10)) + 1}:{len(line) + 1}"
