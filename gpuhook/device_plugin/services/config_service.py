# SPDX-License-Identifier: Apache-2.0
"""Which configuration is in force, and what became of the others: read, refused, applied."""

from __future__ import annotations

from gpuhook.device_plugin.config import config_source
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.api_clients import Connections
    from gpuhook.device_plugin.change_report import TurnNews
    from gpuhook.device_plugin.config.config_source import LoadedConfig
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.metrics.counters import Observations


def load(launch: Launch, label: str | None, current: str) -> LoadedConfig:
    """Return the configuration that there is now; raises what config.source.load() does.

    `label` is what the node's label says, `current` the name of the configuration until now.
    """
    return config_source.load(
        launch.source, launch.overrides, label, current=current, strict=launch.strict
    )


class ConfigKeeping:
    """Keeps the configuration `loaded`: the one in force, or the first, which was only read yet."""

    def __init__(
        self,
        launch: Launch,
        loaded: LoadedConfig,
        connections: Connections,
        told: TurnNews,
        observations: Observations,
    ) -> None:
        self._launch = launch
        self._connections = connections
        self._told = told
        self._observations = observations
        self.loaded = loaded
        self.is_in_force = False  # whether what is loaded is more than read
        self.is_refused = False  # whether there is a newer one, which was not taken

    def reread(self, *, is_counted: bool) -> LoadedConfig | None:
        """Return the configuration that there is now if it is another, None if the last one stays.

        A faulty one is refused. Metrics count what came of it, if it `is_counted`.
        """
        before = self.loaded
        try:
            loaded = load(self._launch, self._connections.label, before.name)
        except Exception as error:  # whatever is wrong with it
            self.refuse(error, is_counted=is_counted)
            return None
        if (loaded.configuration, loaded.name) != (before.configuration, before.name):
            return loaded
        if is_counted:
            self._observations.reloaded("unchanged")
        self.loaded, self.is_refused = loaded, False
        if self.is_in_force:
            self._told.read(loaded)
            self._tell_label()
        return None

    def apply(self, loaded: LoadedConfig) -> None:
        """Have a configuration in force, and tell it."""
        if self.is_in_force:
            self._observations.reloaded("applied")
        self.loaded, self.is_in_force, self.is_refused = loaded, True, False
        self._told.configured(loaded)
        self._observations.configured(loaded.name, loaded.digest)
        self._tell_label()

    def _tell_label(self) -> None:
        """Tell where the node's label would choose among several, and cannot be read: GH1807."""
        source = self._launch.source
        faults = []
        if self._connections.lacks_label and source.directory and not source.name_file:
            known = config_source.names(source.directory)
            if len(known) > 1:
                label = self._launch.node_label
                name = self.loaded.name or "an empty one"
                faults.append(fault("GH1807", known=", ".join(known), label=label, name=name))
        self._told.label_unread(faults)

    def refuse(
        self, error: Exception, loaded: LoadedConfig | None = None, *, is_counted: bool
    ) -> None:
        """Tell that a configuration is not taken; `loaded` is what could be read of it."""
        if is_counted:
            self._observations.reloaded("refused")
        self.is_refused = True
        self._told.refused(error, self.loaded if self.is_in_force else None, loaded)
