# SPDX-License-Identifier: Apache-2.0
"""Capabilities, requirements, memory, extras, and the settings that decide on requests."""

from __future__ import annotations

import json
from pathlib import Path

from tests.record import images
from tests.record.box import Box
from tests.record.groups.create_requests import FIRST, MOUNTED, annotated, mount, mounts
from tests.record.groups.creation import Creation, devices

CAPABILITIES = (
    "",
    "all",
    "compute",
    "utility",
    "graphics",
    "video",
    "display",
    "ngx",
    "compat32",
    "compute,utility",
    "utility,graphics,display",
    "Compute",
    "compute,",
    " compute , video ",
    "compute,nothing",
    "nothing",
    "all,nothing",
    "none",
)
REQUIREMENTS = {
    "met": "cuda>=12.4",
    "unmet": "cuda>=14.0",
    "equal": "cuda=13.0",
    "alternatives": "cuda>=14 driver>=500",
    "unmet-alternatives": "cuda>=14 driver>=600",
    "brand": "brand=tesla",
    "brand-own": "brand=nvidia",
    "brand-not": "brand!=nvidia",
    "brand-order": "brand>nvidia",
    "arch": "arch>=9.0",
    "arch-less": "arch<9.0",
    "driver": "driver>=535,driver<536",
    "typical": "cuda>=12.4 brand=tesla,driver>=535,driver<536",
    "unknown-property": "color=red",
    "no-operator": "cuda",
    "no-operand": "cuda>=",
    "words": "hello world",
    "not-a-version": "cuda>=new",
    "comma": ",",
    "spaces": "  ",
    "too-large": "cuda>=99999999999999999999999",
    "long-term": "cuda>=" + "9" * 200,
    "invalid-behind-met": "cuda>=12 x",
    "bang": "cuda!13.0",
}


def settings(**sections: object) -> str:
    """Return a settings file."""
    return json.dumps({"cdi": {"specDirs": ["/mnt/case/cdi"]}, **sections})


def request(**keys: str) -> dict[str, str]:
    """Return the engine's variables that are settings of the section request."""
    return {f"GPUHOOK_REQUEST_{key.upper()}": value for key, value in keys.items()}


def _capability(value: str) -> tuple[str, ...]:
    return (*devices("0"), f"NVIDIA_DRIVER_CAPABILITIES={value}")


def _slug(text: str) -> str:
    return text.strip().replace(" , ", "-").replace(",", "-").lower() or "empty"


_CAPABILITIES = [
    Creation(f"capability-{index:02}-{_slug(value)}", _capability(value))
    for index, value in enumerate(CAPABILITIES)
]
_CAPABILITIES += [
    Creation(f"capability-full-{value}", _capability(value), scene="h100-full")
    for value in ("all", "graphics", "video", "utility")
]
_CAPABILITIES += [
    Creation(
        "capability-allowed-all",
        _capability("all"),
        variables=request(driver_capabilities="utility"),
    ),
    Creation(
        "capability-not-allowed",
        _capability("utility,compute"),
        variables=request(driver_capabilities="utility"),
    ),
    Creation(
        "capability-default",
        devices("0"),
        variables=request(default_driver_capabilities="graphics,video"),
    ),
    Creation(
        "capability-default-all", devices("0"), variables=request(default_driver_capabilities="all")
    ),
    Creation(
        "capability-unknown-ignored",
        _capability("compute,Nothing"),
        variables=request(on_unknown_capability="ignore"),
    ),
    Creation(
        "capability-unknown-only",
        _capability("Nothing"),
        variables=request(on_unknown_capability="ignore"),
    ),
    Creation("capability-none-devices", (*devices("none"), "NVIDIA_DRIVER_CAPABILITIES=utility")),
]

_REQUIREMENTS = [
    Creation(f"require-{name}", (*devices("0"), f"NVIDIA_REQUIRE_CUDA={value}"))
    for name, value in REQUIREMENTS.items()
]
_UNMET = "NVIDIA_REQUIRE_CUDA=cuda>=14.0"
_REQUIREMENTS += [
    Creation("require-disabled", (*devices("0"), _UNMET, "NVIDIA_DISABLE_REQUIRE=true")),
    Creation("require-disabled-wrong", (*devices("0"), _UNMET, "NVIDIA_DISABLE_REQUIRE=yes")),
    Creation(
        "require-disabled-setting",
        (*devices("0"), _UNMET),
        variables=request(disable_requirements="true"),
    ),
    Creation("require-other-name", (*devices("0"), "NVIDIA_REQUIRE_DRIVER=driver>=600")),
    Creation(
        "require-two", (*devices("0"), "NVIDIA_REQUIRE_A=cuda>=12", "NVIDIA_REQUIRE_B=arch>=10")
    ),
    Creation("require-jetpack", (*devices("0"), "NVIDIA_REQUIRE_JETPACK=csv-mounts=all")),
    Creation("require-without-gpu", (*devices("none"), "NVIDIA_REQUIRE_CUDA=arch>=99")),
    Creation("require-no-request", (_UNMET,)),
    Creation("require-many", (*devices("0"), *(f"NVIDIA_REQUIRE_{n}=cuda>=1" for n in range(33)))),
    Creation("require-mig", (*devices("0:0"), "NVIDIA_REQUIRE_CUDA=arch>=9.0"), scene="mig"),
    Creation("require-lost", (*devices("2"), "NVIDIA_REQUIRE_CUDA=arch>=8.0"), scene="lost"),
]


def _with_cgroups(box: Box) -> None:
    """Give the machine a unified hierarchy."""
    box.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")


def _memory(name: str, env: tuple[str, ...], **more: object) -> Creation:
    creation = {"before": _with_cgroups, **more}
    return Creation(f"memory-{name}", env, **creation)  # type: ignore[arg-type]  # by name


_LIMIT, _ASKED = "NVIDIA_GPU_MEMORY_LIMIT=", "NVIDIA_GPU_MEMORY_REQUEST="
_PLUGIN = f"/var/run/gpuhook/memory/{FIRST},hard=4294967296,soft=2147483648"
_PLUGIN_MIB = f"/var/run/gpuhook/memory/{FIRST},hard=4096,soft=2048"
_JUST = {"mounts": [mount(_PLUGIN_MIB)]}
_MEMORY = [
    _memory("limit", (*devices("0"), _LIMIT + "4096")),
    _memory("request", (*devices("0"), _ASKED + "2048")),
    _memory("both", (*devices("0"), _ASKED + "2048", _LIMIT + "4096")),
    _memory("request-above", (*devices("0"), _ASKED + "4096", _LIMIT + "2048")),
    _memory("two-gpus", (*devices("0,1"), _LIMIT + "4096")),
    _memory("all", (*devices("all"), _LIMIT + "4096")),
    _memory("mig", (*devices("0:0"), _LIMIT + "2048"), scene="mig"),
    _memory("too-much", (*devices("0"), _LIMIT + "999999999")),
    _memory("tiny", (*devices("0"), _LIMIT + "5")),
    _memory("zero", (*devices("0"), _LIMIT + "0")),
    _memory("negative", (*devices("0"), _LIMIT + "-1")),
    _memory("word", (*devices("0"), _LIMIT + "4Gi")),
    _memory("empty", (*devices("0"), _LIMIT)),
    _memory("fraction", (*devices("0"), _LIMIT + "1.5")),
    _memory("no-request", (_LIMIT + "4096",)),
    _memory("granted", devices(FIRST), oci=_JUST),
    _memory("granted-bytes", devices(FIRST), oci={"mounts": [mount(_PLUGIN)]}),
    _memory("granted-narrowed", (*devices(FIRST), _LIMIT + "100"), oci=_JUST),
    _memory("granted-above", (*devices(FIRST), _LIMIT + "8192"), oci=_JUST),
    _memory("granted-other", devices("1"), oci=_JUST),
    _memory(
        "granted-malformed", devices("0"), oci={"mounts": [mount("/var/run/gpuhook/memory/x")]}
    ),
    _memory("no-cgroup2", (*devices("0"), _LIMIT + "4096"), before=None),
    _memory("no-cgroup2-granted", devices(FIRST), oci=_JUST, before=None),
    _memory(
        "start",
        (*devices("0"), _LIMIT + "4096"),
        before=None,
        variables={"GPUHOOK_LIMITS_ON_FAILURE": "start"},
    ),
    _memory(
        "refuse",
        devices(FIRST),
        oci=_JUST,
        before=None,
        variables={"GPUHOOK_LIMITS_ON_FAILURE": "refuse"},
    ),
    _memory(
        "guarantee",
        (*devices("0"), _ASKED + "2048"),
        variables={"GPUHOOK_LIMITS_GUARANTEE": "always"},
    ),
    _memory(
        "hints",
        (*devices("0"), _LIMIT + "4096"),
        variables={"GPUHOOK_LIMITS_HINTS": "tensorflow,pytorch,jax,cupy,paddle"},
    ),
    _memory("hints-asked", (*devices("0"), _LIMIT + "4096", "GPUHOOK_MEMORY_HINTS=jax,other")),
]

_EXTRAS = [
    Creation(f"extra-{name.lower()}-{value}", (*devices("0"), f"NVIDIA_{name}={value}"))
    for name in ("GDS", "MOFED", "GDRCOPY", "NVSWITCH")
    for value in ("enabled", "yes")
]
_EXTRAS += [
    Creation("extra-imex", (*devices("0"), "NVIDIA_IMEX_CHANNELS=0,1")),
    Creation("extra-imex-all", (*devices("0"), "NVIDIA_IMEX_CHANNELS=all")),
    Creation(
        "extra-imex-ignored",
        (*devices("0"), "NVIDIA_IMEX_CHANNELS=0"),
        variables=request(ignore_imex_channels="true"),
    ),
    Creation("extra-imex-mount", devices("0"), mounts("imex/0"), variables=MOUNTED),
    Creation("extra-mig-config", (*devices("0"), "NVIDIA_MIG_CONFIG_DEVICES=all"), scene="mig"),
    Creation(
        "extra-mig-config-privileged",
        (*devices("2"), "NVIDIA_MIG_CONFIG_DEVICES=all"),
        images.PRIVILEGED,
        scene="mig",
    ),
    Creation(
        "extra-mig-monitor-privileged",
        (*devices("2"), "NVIDIA_MIG_MONITOR_DEVICES=all"),
        images.PRIVILEGED,
        scene="mig",
    ),
    Creation("extra-mig-config-some", (*devices("0"), "NVIDIA_MIG_CONFIG_DEVICES=0"), scene="mig"),
    Creation("extra-alone", ("NVIDIA_GDS=enabled",)),
]
_UNPRIVILEGED = request(accept_env_when_unprivileged="false")
_SWARM = request(swarm_resources="DOCKER_RESOURCE_GPU,DOCKER_RESOURCE_NVIDIA-GPU")
_POLICIES = [
    Creation("unprivileged-off", devices("0"), variables=_UNPRIVILEGED),
    Creation("unprivileged-off-all", devices("all"), variables=_UNPRIVILEGED),
    Creation("unprivileged-off-void", devices("void"), variables=_UNPRIVILEGED),
    Creation("unprivileged-privileged", devices("0"), images.PRIVILEGED, variables=_UNPRIVILEGED),
    Creation("unprivileged-annotation", oci=annotated("nvidia.com/gpu=1"), variables=_UNPRIVILEGED),
    Creation(
        "unprivileged-pod-annotation",
        oci=annotated("nvidia.com/gpu=1", **{"io.kubernetes.cri.container-type": "sandbox"}),
        variables=_UNPRIVILEGED,
    ),
    Creation(
        "unprivileged-fails",
        devices("0"),
        variables={**_UNPRIVILEGED, **request(on_refusal="fail")},
    ),
    Creation(
        "unprivileged-mount", devices("1"), mounts("0"), variables={**_UNPRIVILEGED, **MOUNTED}
    ),
    Creation("mount-refused-fails", oci=mounts("0"), variables=request(on_refusal="fail")),
    Creation(
        "annotation-refused-fails",
        oci=annotated("nvidia.com/gpu=1"),
        variables=request(on_refusal="fail", accept_annotations="none"),
    ),
    Creation("swarm", ("DOCKER_RESOURCE_GPU=0",), variables=_SWARM),
    Creation("swarm-and-env", ("DOCKER_RESOURCE_GPU=0", *devices("all")), variables=_SWARM),
    Creation(
        "swarm-two", ("DOCKER_RESOURCE_GPU=0", "DOCKER_RESOURCE_NVIDIA-GPU=1"), variables=_SWARM
    ),
    Creation("swarm-unknown", ("DOCKER_RESOURCE_GPU=x",), variables=_SWARM),
    Creation("swarm-off", ("DOCKER_RESOURCE_GPU=0",)),
    Creation("privileged", devices("0"), images.PRIVILEGED),
    Creation("privileged-all", devices("all"), images.PRIVILEGED),
    Creation(
        "privileged-management",
        devices("management.nvidia.com/gpu=all"),
        images.PRIVILEGED,
    ),
    Creation(
        "default-kind", devices("0"), variables={"GPUHOOK_CDI_DEFAULT_KIND": "example.com/gpu"}
    ),
    Creation(
        "annotation-prefix",
        oci={"annotations": {"my.org/cdi/x": "nvidia.com/gpu=1"}},
        variables={"GPUHOOK_CDI_ANNOTATION_PREFIXES": "my.org/cdi"},
    ),
]
_WRONG = {
    "CDI_ON_STALE": "later",
    "CDI_SPEC_DIRS": "relative",
    "CDI_DEFAULT_KIND": "gpu",
    "REQUEST_ACCEPT_ANNOTATIONS": "some",
    "REQUEST_LEGACY_IMAGES": "maybe",
    "REQUEST_DRIVER_CAPABILITIES": "compute,x",
    "REQUEST_SWARM_RESOURCES": "a b",
    "RUNTIME_LOW_LEVEL_RUNTIMES": ",",
    "LIMITS_HINTS": "x",
    "DRIVER_ROOT": "relative",
}
_SETTINGS = [
    Creation(f"wrong-{name.lower()}", devices("0"), variables={f"GPUHOOK_{name}": value})
    for name, value in _WRONG.items()
]
_SETTINGS += [
    Creation("wrong-setting-no-request", variables={"GPUHOOK_CDI_ON_STALE": "later"}),
    Creation("settings-broken", devices("0"), settings="request: [\n"),
    Creation("settings-broken-no-request", settings="request: [\n"),
    Creation(
        "settings-unknown-key", devices("0"), settings=settings(request={"acceptMounts": True})
    ),
    Creation("settings-unknown-section", devices("0"), settings=settings(requests={})),
    Creation(
        "settings-wrong-type", devices("0"), settings=settings(request={"legacyImages": "no"})
    ),
    Creation("settings-empty", devices("0"), settings=""),
    Creation("settings-list", devices("0"), settings="- a\n"),
    Creation(
        "settings-yaml",
        devices("2"),
        settings="cdi:\n  specDirs: [/mnt/case/cdi]\nrequest:\n  driverCapabilities: [utility]\n",
    ),
    Creation(
        "settings-and-variable",
        devices("0"),
        settings=settings(request={"driverCapabilities": ["utility"]}),
        variables=request(driver_capabilities="compute,utility"),
    ),
]


def _without_settings(box: Box) -> None:
    Path("/mnt/case/config.yaml").unlink()


_SETTINGS += [
    Creation("settings-missing", devices("0"), before=_without_settings),
    Creation(
        "settings-missing-dirs",
        devices("0"),
        before=_without_settings,
        variables={"GPUHOOK_CDI_SPEC_DIRS": "/mnt/case/cdi"},
    ),
]
CASES = (*_CAPABILITIES, *_REQUIREMENTS, *_MEMORY, *_EXTRAS, *_POLICIES, *_SETTINGS)
