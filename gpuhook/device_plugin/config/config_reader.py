# SPDX-License-Identifier: Apache-2.0
"""A configuration file read whole: what it says, what the command line and environment say over it.

Pure: bytes and overrides in, a Configuration and findings out. No text makes it raise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.config import build as config_build
from gpuhook.device_plugin.config.checks import config_checks
from gpuhook.device_plugin.config.findings import ERROR, WARNING, ConfigFinding
from gpuhook.device_plugin.config.grammar import config_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.configuration import Configuration


@dataclass(frozen=True, slots=True)
class Override:
    """A value that counts more than the file's, and where it is from."""

    value: object
    source: str  # "--mig-strategy", or "the environment variable MIG_STRATEGY"


@dataclass(frozen=True, slots=True)
class ConfigReading:
    """What was read; without a Configuration there is an error among the findings.

    `places` says where a key is written: its line and column, or what overrides the file.
    """

    configuration: Configuration | None
    findings: tuple[ConfigFinding, ...] = ()
    places: Mapping[str, tuple[int, int] | str] = field(default_factory=dict, compare=False)


def read(
    content: bytes,
    source: str,
    overrides: Mapping[str, Override] | None = None,
    *,
    strict: bool = False,
) -> ConfigReading:
    """Return the Configuration of a file's `content`, and every finding, in the file's order.

    `source` names the file in findings; empty content is the default configuration. `overrides`
    are checked values by their path, "flags.migStrategy". `strict`: unknown keys are errors.
    """
    document = config_document.parse(content, source, strict=strict)
    for path, override in (overrides or {}).items():
        before = document.get(path)
        if before is not None and before != override.value:
            message = f"has no effect: {override.source} says something else, and counts more"
            document.add(WARNING, path, message, "remove one of the two")
        document.put(path, override.value, override.source)
    config_checks.check(document)
    findings = tuple(sorted(document.findings, key=lambda found: (found.line, found.column)))
    if any(finding.severity == ERROR for finding in findings):
        return ConfigReading(None, findings, document.places)
    return ConfigReading(config_build.configuration(document.values), findings, document.places)
