# SPDX-License-Identifier: Apache-2.0
"""Checks a configuration against a node."""

from __future__ import annotations

from gpuhook.device_plugin.config.findings import ERROR, WARNING, ConfigFinding
from gpuhook.device_plugin.config.grammar.memory_values import UNLIMITED
from gpuhook.device_plugin.offer import resources
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.config_reader import ConfigReading
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.sharing_section import Sharing


def findings(
    inventory: object,
    configuration: Configuration,
    reading: ConfigReading,
    source: str,
    *others: object,
) -> tuple[ConfigFinding, ...]:
    """Return the error of a configuration on a node, or the warnings of its offer.

    An inventory has the facts of one vendor's GPUs.

    `reading` is the parsed file `source`: a finding has the place of the entry that it names first.
    """
    try:
        offer = resources.offered(inventory, configuration, *others)
    except GpuhookError as error:
        if not resources.contradicts(error):
            raise
        text = f"{error.message} ({error.code})"
        return (_finding(ERROR, text, error.hint, reading, source),)
    return tuple(_finding(WARNING, text, "", reading, source) for text in offer.warnings)


def is_for_a_node(sharing: Sharing) -> bool:
    """Return whether the sharing needs a node for its check: memory limits and sizes of units."""
    return any(
        entry.unit or entry.replica_memory or entry.memory not in (None, UNLIMITED)
        for entry in sharing.resources
    )


def _finding(
    severity: str, text: str, hint: str, reading: ConfigReading, source: str
) -> ConfigFinding:
    path, _, message = text.partition(": ")
    place = reading.places.get(path)
    if not isinstance(place, tuple):
        return ConfigFinding(severity, "", 0, 0, text, hint, source)
    return ConfigFinding(severity, path, *place, message, hint, source)
