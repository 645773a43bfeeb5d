# SPDX-License-Identifier: Apache-2.0
"""The keys of NVIDIA's config.toml that gpuhook has nothing for: why not, and what to do."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CLI, _RUNTIME = "nvidia-container-cli", "nvidia-container-runtime"
_NOTHING = "nothing is to be done"
_LOG = (
    "gpuhook-runtime writes to the engine's own log (--log), faults and warnings only: look there,"
    " or call `gpuhook explain CONTAINER`"
)
_NO_PROGRAM = f"gpuhook runs no program of the toolkit: {_NOTHING}"

# Key -> the values that need no word (the toolkit's defaults), and the word on others.
_UNMATCHED: dict[str, tuple[tuple[Any, ...], str]] = {
    f"{_CLI}.path": (("",), _NO_PROGRAM),
    f"{_CLI}.environment": (
        ([],),
        f"gpuhook runs no nvidia-container-cli that could have an environment: {_NOTHING}",
    ),
    f"{_CLI}.debug": (("", "/dev/null"), _LOG),
    f"{_CLI}.ldcache": (
        ("",),
        (
            "gpuhook finds libraries in the driver root's own loader cache and directories: name"
            " others with generate.librarySearchPaths"
        ),
    ),
    f"{_CLI}.user": (
        ("",),
        (
            "gpuhook works as the user who runs the engine, and drops to no other: where device"
            " nodes belong to a group, set the module's parameter NVreg_DeviceFileMode"
        ),
    ),
    f"{_CLI}.load-kmods": (
        (False,),
        (
            "gpuhook loads no kernel module when a container starts: have `gpuhook system"
            " load-kernel-modules` and `gpuhook system create-device-nodes` run at boot"
        ),
    ),
    f"{_CLI}.no-cgroups": (
        (False,),
        (
            "gpuhook writes device rules into config.json and changes no cgroup: a rootless engine"
            f" leaves them out by itself, and {_NOTHING}"
        ),
    ),
    f"{_CLI}.no-pivot": (
        (False,),
        "it is a matter of the engine (runc --no-pivot), which gpuhook hands on",
    ),
    f"{_CLI}.ldconfig": (
        ("@/sbin/ldconfig", "@/sbin/ldconfig.real"),
        (
            "gpuhook writes the container's loader cache itself, and runs no ldconfig; where a site"
            " insists on one, name it with generate.ldconfigPath"
        ),
    ),
    f"{_RUNTIME}.debug": (("", "/dev/null"), _LOG),
    f"{_RUNTIME}.log-level": (("info",), _LOG),
    f"{_RUNTIME}.modes.csv.mount-spec-path": (
        ("/etc/nvidia-container-runtime/host-files-for-container.d",),
        (
            "gpuhook reads the CSV files when the spec is made: name them to gpuhook generate-cdi"
            " --mode csv"
        ),
    ),
    f"{_RUNTIME}.modes.legacy.cuda-compat-mode": (
        ("ldconfig", "hook"),
        (
            "gpuhook puts the image's CUDA compatibility libraries into its loader cache where they"
            f" are newer than the driver's, as the mode ldconfig does: {_NOTHING}"
        ),
    ),
    f"{_RUNTIME}-hook.path": ((f"{_RUNTIME}-hook",), _NO_PROGRAM),
    f"{_RUNTIME}-hook.skip-mode-detection": (
        (False,),
        (
            "gpuhook's prestart hook leaves alone what the wrapper or the engine has done already,"
            f" and has no modes to detect: {_NOTHING}"
        ),
    ),
    "nvidia-ctk.path": (("nvidia-ctk",), _NO_PROGRAM),
    "features.allow-cuda-compat-libs-from-container": (
        (False,),
        f"gpuhook takes an image's own compatibility libraries where they are newer: {_NOTHING}",
    ),
    "features.allow-ldconfig-from-container": (
        (False,),
        f"gpuhook runs no program of an image, and needs no ldconfig of one: {_NOTHING}",
    ),
    "features.allow-unknown-oci-spec-fields": (
        (False,),
        f"gpuhook keeps all fields of config.json, known or not: {_NOTHING}",
    ),
    "features.disable-imex-channel-creation": (
        (False,),
        f"gpuhook makes no IMEX channel on the host when a container starts: {_NOTHING}",
    ),
    # False means the toolkit's default; what True means is taken over.
    "features.no-additional-gids-for-device-nodes": ((False,), ""),
    "features.disable-cuda-compat-lib-hook": ((False,), ""),
}
_MODES = {
    "legacy": (
        "gpuhook has no modes at all: requests by variables, annotations and mounts all count, and"
        " are answered with what a CDI spec says. Have one: gpuhook generate-cdi --output"
        " /var/run/cdi/nvidia.yaml"
    ),
    "cdi": (
        "gpuhook has no modes at all, and reads CDI specs always: have one, by gpuhook"
        " generate-cdi --output /var/run/cdi/nvidia.yaml"
    ),
    "jit-cdi": (
        "gpuhook has no modes at all, and works with a spec that is made once, which is faster:"
        " gpuhook generate-cdi --output /var/run/cdi/nvidia.yaml"
    ),
}


def without_counterpart(key: str, value: Any) -> str:
    """Return why a key of the toolkit is not taken over and what to do, "" for a default."""
    if key == f"{_RUNTIME}.mode":
        return _MODES.get(value, "")
    silent, said = _UNMATCHED[key]
    return "" if value in silent else said
