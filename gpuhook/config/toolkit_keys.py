# SPDX-License-Identifier: Apache-2.0
"""The keys of NVIDIA's config.toml without a counterpart in gpuhook: the reason, and what to do."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CLI, _RUNTIME = "nvidia-container-cli", "nvidia-container-runtime"
_NOTHING = "no action is needed"
_LOG = (
    "gpuhook-runtime writes to the engine's own log (--log), errors and warnings only: read it,"
    " or run `gpuhook explain CONTAINER`"
)
_NO_PROGRAM = f"gpuhook does not run any program of the toolkit: {_NOTHING}"

# Key -> the remark on a value that is not a default of the toolkit.
_REMARKS = {
    f"{_CLI}.path": _NO_PROGRAM,
    f"{_CLI}.environment": f"gpuhook does not run nvidia-container-cli: {_NOTHING}",
    f"{_CLI}.debug": _LOG,
    f"{_CLI}.ldcache": (
        "gpuhook finds libraries in the loader cache and the directories of the driver root:"
        " add others with generate.librarySearchPaths"
    ),
    f"{_CLI}.user": (
        "gpuhook runs as the engine's user, and does not switch to another user: if device"
        " nodes belong to a group, set the module parameter NVreg_DeviceFileMode"
    ),
    f"{_CLI}.load-kmods": (
        "gpuhook does not load kernel modules when a container starts: run `gpuhook system"
        " load-kernel-modules` and `gpuhook system create-device-nodes` at boot"
    ),
    f"{_CLI}.no-cgroups": (
        "gpuhook writes device rules into config.json and changes no cgroup: a rootless engine"
        f" ignores them, and {_NOTHING}"
    ),
    f"{_CLI}.no-pivot": "the engine sets it (runc --no-pivot), and gpuhook passes it on",
    f"{_CLI}.ldconfig": (
        "gpuhook writes the container's loader cache itself, and runs no ldconfig; if you need"
        " one, name it with generate.ldconfigPath"
    ),
    f"{_RUNTIME}.debug": _LOG,
    f"{_RUNTIME}.log-level": _LOG,
    f"{_RUNTIME}.modes.csv.mount-spec-path": (
        "gpuhook reads the CSV files when it generates the spec: pass them to gpuhook"
        " generate-cdi --mode csv"
    ),
    f"{_RUNTIME}.modes.legacy.cuda-compat-mode": (
        "gpuhook adds the image's CUDA compatibility libraries to its loader cache if they are"
        f" newer than the driver's, as the ldconfig mode does: {_NOTHING}"
    ),
    f"{_RUNTIME}-hook.path": _NO_PROGRAM,
    f"{_RUNTIME}-hook.skip-mode-detection": (
        "gpuhook's prestart hook does not repeat the work of the wrapper or the engine, and has"
        f" no modes to detect: {_NOTHING}"
    ),
    "nvidia-ctk.path": _NO_PROGRAM,
    "features.allow-cuda-compat-libs-from-container": (
        f"gpuhook uses an image's compatibility libraries if they are newer: {_NOTHING}"
    ),
    "features.allow-ldconfig-from-container": (
        f"gpuhook does not run any program of an image, not even ldconfig: {_NOTHING}"
    ),
    "features.allow-unknown-oci-spec-fields": (
        f"gpuhook keeps all fields of config.json, known or not: {_NOTHING}"
    ),
    "features.disable-imex-channel-creation": (
        f"gpuhook does not create IMEX channels on the host when a container starts: {_NOTHING}"
    ),
    # False is the toolkit's default; True is imported.
    "features.no-additional-gids-for-device-nodes": "",
    "features.disable-cuda-compat-lib-hook": "",
}
# The defaults of keys that have others than an empty value.
_DEFAULTS = {
    f"{_CLI}.debug": ("", "/dev/null"),
    f"{_CLI}.ldconfig": ("@/sbin/ldconfig", "@/sbin/ldconfig.real"),
    f"{_RUNTIME}.debug": ("", "/dev/null"),
    f"{_RUNTIME}.log-level": ("info",),
    f"{_RUNTIME}.modes.csv.mount-spec-path": (
        "/etc/nvidia-container-runtime/host-files-for-container.d",
    ),
    f"{_RUNTIME}.modes.legacy.cuda-compat-mode": ("ldconfig", "hook"),
    f"{_RUNTIME}-hook.path": (f"{_RUNTIME}-hook",),
    "nvidia-ctk.path": ("nvidia-ctk",),
}
_MODES = {
    "legacy": (
        "gpuhook has no modes: it accepts requests by variables, annotations and mounts, and"
        " applies a CDI spec. Create one: gpuhook generate-cdi"
        " --output-file /var/run/cdi/nvidia.yaml"
    ),
    "cdi": (
        "gpuhook has no modes, and always applies CDI specs. Create one: gpuhook generate-cdi"
        " --output-file /var/run/cdi/nvidia.yaml"
    ),
    "jit-cdi": (
        "gpuhook has no modes, and generates a spec only once, which is faster: gpuhook"
        " generate-cdi --output-file /var/run/cdi/nvidia.yaml"
    ),
}


def without_counterpart(key: str, value: Any) -> str:
    """Return why a key of the toolkit is not imported and what to do, "" for a default value."""
    if key == f"{_RUNTIME}.mode":
        return _MODES.get(value, "")
    is_default = value in _DEFAULTS[key] if key in _DEFAULTS else not value
    return "" if is_default else _REMARKS[key]
