# SPDX-License-Identifier: Apache-2.0
"""A configuration file with the overrides of the command line and the environment.

Pure: bytes and overrides in, a Configuration and findings out. It raises for no content.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.config.checks import config_checks
from gpuhook.device_plugin.config.configuration import ROOT_SECTION
from gpuhook.device_plugin.config.findings import ConfigFinding, errors
from gpuhook.device_plugin.config.grammar import config_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.configuration import Configuration


@dataclass(frozen=True, slots=True)
class Override:
    """A value that takes precedence over the file, and its source."""

    value: object
    source: str  # "--mig-strategy", or "the environment variable MIG_STRATEGY"


@dataclass(frozen=True, slots=True)
class ConfigReading:
    """The result of a reading; without a Configuration there is an error among the findings.

    `places` has the line and column of each key, or the source of its override.
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
    """Return the Configuration of a file's `content`, and all findings, in the file's order.

    `source` names the file in findings; empty content is the default configuration. `overrides`
    are checked values by their path, "flags.migStrategy". `strict`: unknown keys are errors.
    """
    document = config_document.parse(content, source, ROOT_SECTION, strict=strict)
    for path, override in (overrides or {}).items():
        before = document.get(path)
        if before is not None and before != override.value:
            message = f"has no effect: {override.source} sets another value and takes precedence"
            document.warn(path, message, "remove one of the two")
        document.put(path, override.value, override.source)
    config_checks.check(document)
    findings = tuple(sorted(document.findings, key=lambda found: (found.line, found.column)))
    made = None if errors(findings) else ROOT_SECTION.built(document.values)
    return ConfigReading(made, findings, document.places)
