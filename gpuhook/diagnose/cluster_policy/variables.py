# SPDX-License-Identifier: Apache-2.0
"""Variables that a policy gives to the device plugin and to the toolkit's container.

Source of the toolkit's: NVIDIA Container Toolkit 1.20, the options of nvidia-ctk-installer.
"""

from __future__ import annotations

from typing import Any

from gpuhook.device_plugin.config.plugin_options import OPTIONS
from gpuhook.diagnose.cluster_policy import kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# The plugin's, and what its own container is given by its runtime.
PLUGIN_VARIABLES = frozenset(
    (
        *(name for option in OPTIONS if not option.ignored for name in option.variables),
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
    )
)
TOOLKIT: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "CONTAINERD_CONFIG": ("installer.config", kinds.path),
    "CONTAINERD_RUNTIME_CLASS": ("runtimeClass.handler", kinds.name),
    "CONTAINERD_SET_AS_DEFAULT": ("installer.setAsDefault", kinds.boolean),
    "CRIO_CONFIG": ("installer.config", kinds.path),
    "DOCKER_CONFIG": ("installer.config", kinds.path),
    "NVIDIA_RUNTIME_NAME": ("runtimeClass.handler", kinds.name),
    "NVIDIA_RUNTIME_SET_AS_DEFAULT": ("installer.setAsDefault", kinds.boolean),
    "RUNTIME": ("installer.engine", kinds.engine),
    "RUNTIME_CONFIG": ("installer.config", kinds.path),
    "RUNTIME_DROP_IN_CONFIG": ("installer.dropIn", kinds.path),
}
_SOCKET = "it is not needed: the engine is restarted by the node's systemd (installer.restart)"
_SETTINGS = "write request.{} into /etc/gpuhook/config.yaml of the nodes"
TOOLKIT_REMARKS = {
    "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS": _SETTINGS.format("acceptVolumeMounts"),
    "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED": _SETTINGS.format(
        "acceptEnvWhenUnprivileged"
    ),
    "CONTAINERD_SOCKET": _SOCKET,
    "CRIO_SOCKET": _SOCKET,
    "DOCKER_SOCKET": _SOCKET,
    "RUNTIME_SOCKET": _SOCKET,
}
