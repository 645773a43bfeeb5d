# SPDX-License-Identifier: Apache-2.0
"""The configuration in force: rereads, applies and refuses configurations."""

from __future__ import annotations

from gpuhook.device_plugin.config import config_source
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.api_server.api_clients import ApiClients
    from gpuhook.device_plugin.change_report import ChangeReport
    from gpuhook.device_plugin.config.config_source import LoadedConfig
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.metrics.counters import Counters


def load(launch: Launch, label: str | None, current: str) -> LoadedConfig:
    """Return the configuration on disk; raises what config_source.load() raises.

    `label` is the value of the node's label, `current` the name of the configuration in force.
    """
    return config_source.load(
        launch.source, launch.overrides, label, current=current, strict=launch.strict
    )


class ActiveConfig:
    """The configuration `loaded`: in force, or at the start only read."""

    def __init__(
        self,
        launch: Launch,
        loaded: LoadedConfig,
        clients: ApiClients,
        report: ChangeReport,
        counters: Counters,
    ) -> None:
        self._launch = launch
        self._clients = clients
        self._report = report
        self._counters = counters
        self.loaded = loaded
        self.is_in_force = False
        self.is_refused = False  # a newer configuration was refused

    def reread(self, *, is_counted: bool) -> LoadedConfig | None:
        """Return the configuration on disk if it differs, else None.

        A faulty one is refused. `is_counted`: the metrics count the outcome.
        """
        before = self.loaded
        try:
            loaded = load(self._launch, self._clients.label, before.name)
        except Exception as error:  # a bug in reading, too, must not end the plugin
            self.refuse(error, is_counted=is_counted)
            return None
        if (loaded.configuration, loaded.name) != (before.configuration, before.name):
            return loaded
        if is_counted:
            self._counters.count("config_reloads", "unchanged")
        self.loaded, self.is_refused = loaded, False
        if self.is_in_force:
            self._report.report_same_config(loaded)
            self._report_label()
        return None

    def apply(self, loaded: LoadedConfig) -> None:
        """Put a configuration in force, and report it."""
        if self.is_in_force:
            self._counters.count("config_reloads", "applied")
        self.loaded, self.is_in_force, self.is_refused = loaded, True, False
        self._report.report_config(loaded)
        self._counters.set_config(loaded.name, loaded.digest)
        self._report_label()

    def refuse(
        self, error: Exception, loaded: LoadedConfig | None = None, *, is_counted: bool
    ) -> None:
        """Report that a configuration is refused; `loaded` has the parts that could be read."""
        if is_counted:
            self._counters.count("config_reloads", "refused")
        self.is_refused = True
        self._report.report_refusal(error, self.loaded if self.is_in_force else None, loaded)

    def _report_label(self) -> None:
        """Report GH1807 if the node's label would select a configuration and cannot be read."""
        source = self._launch.source
        faults = []
        if self._clients.lacks_label and source.directory and not source.name_file:
            known = config_source.names(source.directory)
            if len(known) > 1:
                label = self._launch.node_label
                name = self.loaded.name or "an empty one"
                faults.append(fault("GH1807", known=", ".join(known), label=label, name=name))
        self._report.report_label_faults(faults)
