# SPDX-License-Identifier: Apache-2.0
"""The configuration files of the device plugins on this node, and which one is in use."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.device_plugin.config import config_source
from gpuhook.node_facts import kubelet_facts as facts
from gpuhook.node_facts.check import fact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.device_plugin.config.config_reader import ConfigReading
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.sources.kubelet_files import PluginPod

LABEL = "nvidia.com/device-plugin.config"
_MARKS = (b"version:", b"sharing:", b"flags:", b"migStrategy", b"nvidia.com/", b'"version"')
_FILE_OPTION = "--config-file"


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """A configuration on this node; `is_used` if the plugin runs with it, as far as is known."""

    path: str
    key: str
    reading: ConfigReading
    is_used: bool
    pod: PluginPod | None = None

    @property
    def edit(self) -> str:
        """The command that edits it, in the cluster if it comes from a ConfigMap."""
        if self.pod is None or not self.pod.daemon_set:
            return f"sudoedit {self.path}"
        space = f"kubectl -n {self.pod.namespace}"
        name = "{.spec.template.spec.volumes[*].configMap.name}"
        named = f"{space} get daemonset {self.pod.daemon_set} -o jsonpath='{name}'"
        return f"{space} edit configmap $({named})"


@fact
def configuration_files(node: ExaminedNode) -> tuple[ConfigurationFile, ...]:
    """Return the configurations of device plugins on the node."""
    label = _label(node)
    listed = [one for pod in facts.pods(node) for one in _of_pod(node, pod, label)]
    seen = {one.path for one in listed}
    for path in _named(node):
        content = node.tree.read(path, config_source.LARGEST_READ) if path not in seen else None
        if content is not None:
            reading = _read(content, path)
            listed.append(ConfigurationFile(path, os.path.basename(path), reading, is_used=True))
    return tuple(listed)


@fact
def in_use(node: ExaminedNode) -> list[tuple[ConfigurationFile, Configuration]]:
    """Return the valid configurations that plugins use."""
    return [
        (one, one.reading.configuration)
        for one in configuration_files(node)
        if one.is_used and one.reading.configuration is not None
    ]


@fact
def uses_cdi(node: ExaminedNode) -> bool:
    """Return whether a plugin assigns devices by CDI, which needs no runtime handler."""
    return any(
        strategy.startswith("cdi-")
        for _, configuration in in_use(node)
        for strategy in configuration.flags.plugin.device_list_strategy
    )


def _read(content: bytes, path: str) -> ConfigReading:
    from gpuhook.device_plugin.config import (
        config_reader,  # late: it imports the whole grammar
    )

    return config_reader.read(content, path)


def _of_pod(node: ExaminedNode, pod: PluginPod, label: str) -> Iterator[ConfigurationFile]:
    contents = {}
    for key, path in pod.configurations:
        content = node.tree.read(path, config_source.LARGEST_READ)
        if content is not None and any(mark in content for mark in _MARKS):
            contents[key, path] = content
    used = _used_key([key for key, _ in contents], (pod.chosen, label))
    for (key, path), content in contents.items():
        yield ConfigurationFile(path, key, _read(content, path), key == used, pod)


def _used_key(keys: list[str], named: tuple[str, ...]) -> str:
    """Return the key that config-manager selects, "" if that is unknown."""
    for name in (*named, "default"):
        if name and name in keys:
            return name
    return keys[0] if len(keys) == 1 else ""


def _label(node: ExaminedNode) -> str:
    """Return the configuration that the node's label selects, "" if none."""
    labels = (facts.api_node(node) or {}).get("labels")
    found = labels.get(LABEL) if isinstance(labels, dict) else None
    return found if isinstance(found, str) else ""


def _named(node: ExaminedNode) -> Iterator[str]:
    """Return the files of plugins that run on the node outside of a pod."""
    for plugin in facts.kubelet(node).plugins:
        for index, argument in enumerate(plugin.argv):
            if argument.startswith(_FILE_OPTION + "="):
                yield argument.partition("=")[2]
            elif argument == _FILE_OPTION and index + 1 < len(plugin.argv):
                yield plugin.argv[index + 1]
