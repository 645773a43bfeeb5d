# SPDX-License-Identifier: Apache-2.0
"""A policy's sections turned into values of gpuhook's chart, and a word on all that cannot be.

Pure: a policy in, values and remarks out. No policy makes it raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.grammar.value_kinds import shown
from gpuhook.diagnose.cluster_policy import kinds
from gpuhook.diagnose.cluster_policy.left_out import (
    ANYWAY,
    NOT_HERE,
    OF_THE_PLUGINS_CHART,
    PLUGINS_CHART,
    WHERE_ENABLED,
    WORDLESS,
    WORDLESS_VALUES,
)
from gpuhook.diagnose.cluster_policy.variables import PLUGIN_VARIABLES, TOOLKIT, TOOLKIT_REMARKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.diagnose.cluster_policy.documents import Policy

_OF_CHARTS = ("app.kubernetes.io/", "helm.sh/")
_NVIDIAS = "k8s-device-plugin"
_DRIVER = "/run/nvidia/driver"  # where the operator's driver containers have theirs
# Key of the policy -> key of ours, and what it can be.
_SAME: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "daemonsets.annotations": ("podAnnotations", kinds.labels),
    "daemonsets.podSecurityContext": ("podSecurityContext", kinds.mapping),
    "daemonsets.priorityClassName": ("priorityClassName", kinds.text),
    "daemonsets.tolerations": ("tolerations", kinds.objects),
    "devicePlugin.args": ("devicePlugin.args", kinds.texts),
    "devicePlugin.enabled": ("devicePlugin.enabled", kinds.boolean),
    "devicePlugin.imagePullPolicy": ("image.pullPolicy", kinds.pulls),
    "devicePlugin.mps.root": ("mps.root", kinds.path),
    "devicePlugin.resources": ("devicePlugin.resources", kinds.mapping),
    "driver.rdma.enabled": ("mofedEnabled", kinds.boolean),
    "gdrcopy.enabled": ("gdrcopyEnabled", kinds.boolean),
    "gds.enabled": ("gdsEnabled", kinds.boolean),
    "gfd.enabled": ("gfd.enabled", kinds.boolean),
    "mig.strategy": ("migStrategy", kinds.migs),
    "operator.runtimeClass": ("runtimeClass.name", kinds.name),
    "toolkit.enabled": ("installer.enabled", kinds.boolean),
    "toolkit.resources": ("installer.resources", kinds.mapping),
}


@dataclass(frozen=True, slots=True)
class Converted:
    """Values of gpuhook's chart, and sentences on the keys that are not in them."""

    values: dict[str, Any]
    remarks: tuple[str, ...]


def converted(policy: Policy) -> Converted:
    """Return the values that a policy comes to."""
    work = _Work(policy)
    for section, below in policy.sections.items():
        if isinstance(below, dict) and section not in ANYWAY | WHERE_ENABLED:
            for key, value in below.items():
                work.take(section, str(key), value)
        else:
            work.leave(section, below)
    work.conclude()
    return Converted(work.values, tuple(work.remarks))


class _Work:
    """The values in the making, and the remarks."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._env: list[dict[str, Any]] = []
        self.values: dict[str, Any] = {}
        self.remarks: list[str] = []

    def take(self, section: str, key: str, value: Any) -> None:
        """Take one key over, or say why not."""
        path = f"{section}.{key}"
        special = {
            "cdi.enabled": self._cdi,
            "daemonsets.labels": self._labels,
            "daemonsets.updateStrategy": self._update,
            "devicePlugin.config": self._config,
            "devicePlugin.env": self._variables,
            "devicePlugin.imagePullSecrets": self._secrets,
            "driver.enabled": self._driver,
            "gfd.env": self._variables,
            "hostPaths.driverInstallDir": self._nothing,
            "toolkit.env": self._toolkit,
            "toolkit.installDir": self._directory,
        }
        if path in special:
            special[path](path, value)
        elif path in _SAME:
            self._put(path, *_SAME[path], value)
        elif path in ("devicePlugin.mps", "driver.rdma"):
            for name, below in (value if isinstance(value, dict) else {}).items():
                self.take(path, str(name), below)
        elif path not in WORDLESS and value not in ("", None, [], {}, WORDLESS_VALUES.get(path)):
            otherwise = OF_THE_PLUGINS_CHART if section in PLUGINS_CHART else NOT_HERE
            self.remarks.append(f"{path}: {ANYWAY.get(path, otherwise)}")

    def leave(self, section: str, value: Any) -> None:
        """Say what becomes of a section of which nothing is taken."""
        if section in WHERE_ENABLED:
            if isinstance(value, dict) and value.get("enabled") is not False:
                self.remarks.append(f"{section}: {WHERE_ENABLED[section]}")
                self._monitor(section, value)
        elif section in ANYWAY:
            self.remarks.append(f"{section}: {ANYWAY[section]}")
        elif value not in ("", None, [], {}):
            otherwise = OF_THE_PLUGINS_CHART if section in PLUGINS_CHART else NOT_HERE
            self.remarks.append(f"{section}: {otherwise}")

    def conclude(self) -> None:
        """Put in what several keys come to."""
        self._image()
        said = self._policy.sections.get("driver")
        if not isinstance(said, dict) or "enabled" not in said:
            self.remarks.append(
                "driver.enabled: is not said. Where the operator's driver containers make the "
                f"driver, set nvidiaDriverRoot to {_DRIVER}"
            )
        if self._env:
            by_name = {one["name"]: one for one in self._env}
            self._set("devicePlugin.env", list(by_name.values()))

    def _put(self, path: str, own: str, fits: Callable[[Any], bool], value: Any) -> None:
        if value in ("", None):
            return
        if fits(value):
            self._set(own, value)
        else:
            self.remarks.append(f"{path}: is {shown(value)}, which {own} cannot be")

    def _set(self, path: str, value: Any) -> None:
        *above, last = path.split(".")
        place = self.values
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value

    def _nothing(self, path: str, value: Any) -> None:
        """Leave what another key looks at, or say that it cannot be."""
        if value not in ("", None) and not kinds.path(value):
            self.remarks.append(f"{path}: is {shown(value)}, which is no path")

    def _cdi(self, path: str, value: Any) -> None:
        if value is True:
            self._set("deviceListStrategy", "cdi-annotations")
            self.remarks.append(
                f"{path}: the plugin names CDI devices by annotations; without deviceListStrategy "
                "the variable does, which needs gpuhook's or NVIDIA's runtime alone"
            )

    def _labels(self, path: str, value: Any) -> None:
        """Take labels of pods, but for those that the operator's own chart puts there."""
        own = value
        if kinds.labels(value):
            own = {key: text for key, text in value.items() if not key.startswith(_OF_CHARTS)}
        if own != {}:
            self._put(path, "podLabels", kinds.labels, own)

    def _image(self) -> None:
        """Take the plugin's image where that is none of NVIDIA's."""
        said = self._policy.sections.get("devicePlugin")
        image = said.get("image") if isinstance(said, dict) else None
        if not isinstance(said, dict) or not kinds.text(image) or not image or _NVIDIAS in image:
            return
        fits = {"repository": kinds.repository, "image": kinds.image, "version": kinds.version}
        if not kinds.image(image):
            # The others count with the name alone.
            fits = {"image": kinds.image}
        for key, fit in fits.items():
            self._put(f"devicePlugin.{key}", f"devicePlugin.{key}", fit, said.get(key))

    def _update(self, path: str, value: Any) -> None:
        if value not in ("RollingUpdate", "OnDelete"):
            self.remarks.append(f"{path}: is {shown(value)}, which updateStrategy cannot be")
            return
        strategy: dict[str, Any] = {"type": value}
        rolling = self._policy.sections["daemonsets"].get("rollingUpdate")
        most = rolling.get("maxUnavailable") if isinstance(rolling, dict) else None
        if value == "RollingUpdate" and isinstance(most, (str, int)) and most != "":
            number = isinstance(most, str) and most.isascii() and most.isdecimal()
            strategy["rollingUpdate"] = {"maxUnavailable": int(most) if number else most}
        self._set("updateStrategy", strategy)

    def _config(self, path: str, value: Any) -> None:
        """Take the configurations; those of a ConfigMap beside the policy go into the values."""
        said = value if isinstance(value, dict) else {}
        name, default = (str(said.get(key) or "") for key in ("name", "default"))
        data = said.get("data")
        if said.get("create") is not True or not data:
            data = self._policy.config_maps.get(name)
        if data and kinds.configurations(data) and (name == "" or kinds.name(name)):
            own = {"create": True, "name": name, "default": default, "data": data}
            self._set("devicePlugin.config", {k: v for k, v in own.items() if v != ""})
            self._check(data)
        elif kinds.name(name):
            self._set("config.name", name)
            if default:
                self._set("config.default", default)
            self.remarks.append(
                f"{path}: the ConfigMap {name} has to be in the namespace of gpuhook's release; "
                "what its configurations need has to be said in features"
            )
        elif value not in ("", None, {}) and (name or data):
            self.remarks.append(f"{path}: names no ConfigMap, and has no configurations")

    def _check(self, data: dict[str, str]) -> None:
        """Say what the plugin would say of the configurations, with the options that win."""
        root = config_reader.Override("/run/nvidia/mps", "the value mps.root")
        for name, text in data.items():
            found = config_reader.read(text.encode(errors="replace"), name, {"flags.mpsRoot": root})
            self.remarks += [f"the configuration {one}" for one in found.findings]

    def _variables(self, path: str, value: Any) -> None:
        for name, entry in self._entries(path, value):
            if name in PLUGIN_VARIABLES:
                self._env.append(entry)
            elif name not in WORDLESS:
                self.remarks.append(f"{path}: gpuhook's plugin has no variable {name}")

    def _toolkit(self, path: str, value: Any) -> None:
        for name, entry in self._entries(path, value):
            said = str(entry.get("value", ""))
            if name in TOOLKIT:
                own, fits = TOOLKIT[name]
                is_boolean = fits is kinds.boolean and said in ("true", "false")
                self._put(f"{path} {name}", own, fits, said == "true" if is_boolean else said)
            else:
                why = TOOLKIT_REMARKS.get(name, "gpuhook's installer has no such variable")
                self.remarks.append(f"{path} {name}: {why}")

    def _entries(self, path: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
        """Return name and entry of what is a list of variables."""
        found = []
        for entry in value if isinstance(value, list) else []:
            name = entry.get("name") if isinstance(entry, dict) else None
            said = entry.get("value", "") if isinstance(entry, dict) else None
            if isinstance(name, str) and name and isinstance(said, str):
                found.append((name, {"name": name, "value": said}))
            else:
                self.remarks.append(f"{path}: {shown(entry)} is no variable with a text")
        return found

    def _secrets(self, path: str, value: Any) -> None:
        if kinds.texts(value) and all(value):
            self._set("imagePullSecrets", value)
        elif value not in ("", None):
            self.remarks.append(f"{path}: is {shown(value)}, which imagePullSecrets cannot be")

    def _driver(self, path: str, value: Any) -> None:
        if value is not True:
            return
        paths = self._policy.sections.get("hostPaths")
        chosen = paths.get("driverInstallDir") if isinstance(paths, dict) else None
        self._set("nvidiaDriverRoot", chosen if kinds.path(chosen) else _DRIVER)
        self.remarks.append(
            f"{path}: gpuhook installs no driver: keep the operator's driver containers, or "
            "install the driver on the nodes and take nvidiaDriverRoot away"
        )

    def _directory(self, path: str, value: Any) -> None:
        if kinds.path(value):
            self._set("installer.installDir", value.rstrip("/") + "/gpuhook")
        elif value not in ("", None):
            self.remarks.append(f"{path}: is {shown(value)}, which is no path")

    def _monitor(self, section: str, value: dict[str, Any]) -> None:
        monitor = value.get("serviceMonitor")
        if (
            section == "dcgmExporter"
            and isinstance(monitor, dict)
            and monitor.get("enabled") is True
        ):
            self._set("metrics.enabled", True)
            self._set("metrics.serviceMonitor.enabled", True)
