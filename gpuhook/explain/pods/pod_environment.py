# SPDX-License-Identifier: Apache-2.0
"""The variables of a container, as far as its manifest has them.

Source: the kubelet's makeEnvironmentVariables and the expansion of $(NAME) in Kubernetes: a
reference is replaced by a preceding variable, $$ by one dollar; all other text is unchanged.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.explain.pods.manifest_value import Value
    from gpuhook.explain.pods.workloads import Pod

    Maps = Mapping[tuple[str, str], Mapping[str, str]]

_LONGEST = 128 << 10  # characters: Linux accepts no longer variable
_LONGEST_ALL = 16 << 20  # of a manifest: references to references grow exponentially
_REFERENCE = re.compile(r"\$(?:\$|\(([^()$]*)\))")
_KEYED = re.compile(r"metadata\.(annotations|labels)\['([^']*)'\]")


class EnvironmentBudget:
    """The number of characters that the variables of a manifest may still have."""

    def __init__(self) -> None:
        self.left = _LONGEST_ALL

    def take(self, count: int) -> bool:
        """Return whether `count` fits, and subtract it then."""
        fits = count <= min(_LONGEST, self.left)
        if fits:
            self.left -= count
        return fits


class PodEnvironment:
    """The variables of one container: `known` values, and the sources of the `unknown` ones."""

    def __init__(self, pod: Pod, maps: Maps, budget: EnvironmentBudget) -> None:
        self.known: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self._pod = pod
        self._maps = maps
        self._budget = budget

    def add(self, container: Value) -> None:
        """Add the variables of a container; those of env override those of envFrom."""
        for source in container["envFrom"].items():
            self._add_all(source)
        for variable in container["env"].items():
            name = variable["name"].text()
            if name and variable["valueFrom"].is_there:
                self._put(name, *self._from(variable["valueFrom"]))
            elif name:
                self._put(name, *self._expanded(variable["value"].text()))

    def _put(self, name: str, value: str | None, why: str) -> None:
        self.known.pop(name, None)
        self.unknown.pop(name, None)
        if value is None:
            self.unknown[name] = why
        else:
            self.known[name] = value

    def _add_all(self, source: Value) -> None:
        prefix = source["prefix"].text()
        for kind, key in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            name = source.at(key, "name").text()
            data = self._maps.get((self._pod.namespace, name)) if kind == "ConfigMap" else None
            size = sum(len(variable) + len(value) for variable, value in (data or {}).items())
            if data is not None and self._budget.take(size):
                for variable, value in data.items():
                    self._put(prefix + variable, value, "")
            elif name:
                self.unknown[f"{prefix}*"] = f"every key of {kind} {name}"

    def _from(self, source: Value) -> tuple[str | None, str]:
        """Return (the value, None if unknown; its source)."""
        for kind, key in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
            if source[key].is_there:
                name, entry = source.at(key, "name").text(), source.at(key, "key").text()
                data = self._maps.get((self._pod.namespace, name), {}) if kind[0] == "C" else {}
                return data.get(entry), f"{kind} {name}, key {entry}"
        if source["fieldRef"].is_there:
            path = source.at("fieldRef", "fieldPath").text()
            return self._field(path), f"the pod's field {path}"
        if source["resourceFieldRef"].is_there:
            return None, f"the container's {source.at('resourceFieldRef', 'resource').text()}"
        return None, "an unknown source"

    def _field(self, path: str) -> str | None:
        """Return the value of a pod's field that its manifest defines."""
        if path == "metadata.namespace":
            return self._pod.namespace
        if path == "metadata.name" and self._pod.workload.startswith("Pod/"):
            return self._pod.name or None
        keyed = _KEYED.fullmatch(path)
        if keyed is None:
            return None
        member = self._pod.metadata[keyed[1]].members().get(keyed[2])
        return member.text() if member is not None else None

    def _expanded(self, text: str) -> tuple[str | None, str]:
        missing: list[str] = []

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name is None:
                return "$"
            if name in self.unknown:
                missing.append(name)
            return self.known.get(name, found[0])

        references = _REFERENCE.finditer(text)
        length = len(text) + sum(len(self.known.get(found[1] or "", "")) for found in references)
        if not self._budget.take(length):
            return None, "more text than gpuhook reads from a manifest"
        expanded = _REFERENCE.sub(value, text)
        if missing:
            return None, f"it refers to {missing[0]}, which is from {self.unknown[missing[0]]}"
        return expanded, ""
