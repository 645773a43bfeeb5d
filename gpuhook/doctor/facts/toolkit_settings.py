# SPDX-License-Identifier: Apache-2.0
"""config.toml, the settings file of NVIDIA's toolkit: its keys, their valid values, and the mode.

The toolkit ignores unknown keys and fails on values of a wrong type.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

from gpuhook.engines.read import engine_config, toml_document
from gpuhook.engines.read.engine_config import ConfigPlace
from gpuhook.node_facts.check import fact
from gpuhook.node_facts.program_facts import program, version
from gpuhook.vendors.nvidia.doctor.facts import driver_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.node_facts.check import ExaminedNode

# The directory of the toolkit container of NVIDIA's GPU operator.
OPERATOR_TOOLKIT = "/usr/local/nvidia/toolkit"
PATHS = (
    "/etc/nvidia-container-runtime/config.toml",
    f"{OPERATOR_TOOLKIT}/.config/nvidia-container-runtime/config.toml",
)
MODES = ("auto", "legacy", "csv", "cdi", "jit-cdi")
COMPAT_MODES = ("disabled", "hook", "ldconfig", "mount")
CAPABILITIES = ("all", "compat32", "compute", "display", "graphics", "ngx", "utility", "video")
LEVELS = ("trace", "debug", "info", "warning", "warn", "error", "fatal", "panic")
RUNTIMES = ("runc", "crun")
# Since 1.18, the mode auto generates CDI edits; before, it used the hook.
JIT_BY_DEFAULT = (1, 18)

_CLI, _RUNTIME = "nvidia-container-cli", "nvidia-container-runtime"
_HOOK = "nvidia-container-runtime-hook"
KEYS: dict[str, type] = {
    "disable-require": bool,
    "swarm-resource": str,
    "accept-nvidia-visible-devices-envvar-when-unprivileged": bool,
    "accept-nvidia-visible-devices-as-volume-mounts": bool,
    "supported-driver-capabilities": str,
    **{f"{_CLI}.{key}": str for key in ("root", "path", "debug", "ldcache", "user", "ldconfig")},
    f"{_CLI}.environment": list,
    **{f"{_CLI}.{key}": bool for key in ("load-kmods", "no-cgroups", "no-pivot")},
    **{f"{_RUNTIME}.{key}": str for key in ("debug", "log-level", "mode")},
    f"{_RUNTIME}.runtimes": list,
    f"{_RUNTIME}.modes.csv.mount-spec-path": str,
    f"{_RUNTIME}.modes.csv.compat-container-root": str,
    f"{_RUNTIME}.modes.cdi.spec-dirs": list,
    f"{_RUNTIME}.modes.cdi.default-kind": str,
    f"{_RUNTIME}.modes.cdi.annotation-prefixes": list,
    f"{_RUNTIME}.modes.jit-cdi.nvcdi-feature-flags": list,
    f"{_RUNTIME}.modes.jit-cdi.nvcdi-disable-hooks": list,
    f"{_RUNTIME}.modes.legacy.cuda-compat-mode": str,
    f"{_HOOK}.path": str,
    f"{_HOOK}.skip-mode-detection": bool,
    "nvidia-ctk.path": str,
    **{
        f"features.{key}": bool
        for key in (
            "allow-cuda-compat-libs-from-container",
            "allow-ldconfig-from-container",
            "allow-unknown-oci-spec-fields",
            "disable-cuda-compat-lib-hook",
            "disable-imex-channel-creation",
            "ignore-imex-channel-requests",
            "no-additional-gids-for-device-nodes",
        )
    },
}
_TYPES = {bool: "true or false", str: "a string", list: "a list"}


def _is_like(key: str, other: str) -> bool:
    """Return whether the last parts are similar: keys of one table share the first parts."""
    mine, its = key.rpartition(".")[2], other.rpartition(".")[2]
    return bool(difflib.get_close_matches(mine, [its], 1, 0.6))


@dataclass(frozen=True, slots=True)
class ToolkitSettings:
    """One file; if it cannot be read, `document` is {} and `trouble` has the reason."""

    path: str
    document: dict[str, Any] = field(default_factory=dict)
    content: bytes = b""
    trouble: toml_document.UnreadableTomlError | None = None

    def of(self, key: str) -> Any:
        """Return the value of a dotted key, None if it is not set."""
        *tables, last = key.split(".")
        return toml_document.table(self.document, *tables).get(last)

    def place(self, key: str) -> ConfigPlace:
        """Return the file and line of a dotted key."""
        return ConfigPlace(self.path, toml_document.line_of(self.content, key.split(".")))

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The low-level runtimes; the first that exists is used."""
        return toml_document.texts(self.of(f"{_RUNTIME}.runtimes")) or RUNTIMES

    @property
    def mode(self) -> str:
        """The configured mode."""
        return toml_document.text(self.of(f"{_RUNTIME}.mode")) or "auto"

    def unknown(self) -> Iterator[tuple[str, str]]:
        """Yield each unknown key and the most similar known key, "" if none is similar."""
        for key, _ in leaves(self.document):
            if key not in KEYS:
                near = difflib.get_close_matches(key, KEYS, 3, 0.8)
                yield key, next((one for one in near if _is_like(key, one)), "")

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each key with an invalid value, and the rule that it breaks."""
        for key, value in leaves(self.document):
            kind = KEYS.get(key)
            if kind and not isinstance(value, kind):
                yield key, f"must be {_TYPES[kind]}"
            elif kind:
                message = self._refused(key, value)
                if message:
                    yield key, message

    def _refused(self, key: str, value: Any) -> str:
        if key == f"{_RUNTIME}.mode" and value not in MODES:
            return f"must be one of {', '.join(MODES)}"
        if key == f"{_RUNTIME}.log-level" and str(value).lower() not in LEVELS:
            return f"must be one of {', '.join(LEVELS)}"
        if key == f"{_RUNTIME}.modes.legacy.cuda-compat-mode" and value not in COMPAT_MODES:
            return f"must be one of {', '.join(COMPAT_MODES)}"
        if key == "supported-driver-capabilities":
            wrong = [one for one in str(value).split(",") if one and one not in CAPABILITIES]
            return f"has {', '.join(wrong)}, which is not a capability" if wrong else ""
        if key == f"{_CLI}.ldconfig" and not str(value).startswith("@"):
            allowed = self.of("features.allow-ldconfig-from-container") is True
            return "" if allowed else 'must start with "@", for the ldconfig of the host'
        return ""


@fact
def files(node: ExaminedNode) -> tuple[ToolkitSettings, ...]:
    """Return the settings files of the node."""
    found = []
    for path in PATHS:
        if path == PATHS[0] and is_of_fronts(node):
            continue
        content = node.tree.read(path)
        if content is None:
            continue
        try:
            found.append(ToolkitSettings(path, toml_document.parsed(content), content))
        except toml_document.UnreadableTomlError as error:
            found.append(ToolkitSettings(path, {}, content, error))
    return tuple(found)


@fact
def is_of_fronts(node: ExaminedNode) -> bool:
    """Return whether gpuhook provides the toolkit's names here, so that config.toml is not read.

    Removed packages of the toolkit leave their config.toml behind.
    """
    paths = [path for name in (_RUNTIME, _HOOK) if (path := program(node.tree, name))]
    return bool(paths) and all(engine_config.is_front(node.tree, path) for path in paths)


def is_legacy(node: ExaminedNode, settings: ToolkitSettings) -> bool | None:
    """Return whether the runtime uses the prestart hook, None if that is unknown."""
    if settings.mode != "auto":
        return settings.mode == "legacy"
    if driver_facts.is_tegra(node):
        return False  # auto selects the mode csv
    number = version(node, "nvidia-ctk") or version(node, "nvidia-container-runtime")
    return number < JIT_BY_DEFAULT if number else None


def leaves(document: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each dotted key of a document, and its value."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
