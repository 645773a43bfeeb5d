# SPDX-License-Identifier: Apache-2.0
"""A configuration against a node: what that one cannot have of it, and what is doubtful there."""

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
    from gpuhook.vendors.nvidia.inventory.inventory import Node


def findings(
    node: Node, configuration: Configuration, reading: ConfigReading, source: str
) -> tuple[ConfigFinding, ...]:
    """Return what is wrong with a configuration on `node`, else what its offer warns of.

    `reading` is what it was read from, in the file `source`: a finding has the place of the entry
    that it begins with.
    """
    try:
        offer = resources.offered(node, configuration)
    except GpuhookError as error:
        if not resources.contradicts(error):
            raise
        text = f"{error.message} ({error.code})"
        return (_finding(ERROR, text, error.hint, reading, source),)
    return tuple(_finding(WARNING, text, "", reading, source) for text in offer.warnings)


def is_for_a_node(sharing: Sharing) -> bool:
    """Return whether only a node shows if what is shared fits: limits, and sizes of units."""
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
