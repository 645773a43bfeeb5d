# SPDX-License-Identifier: Apache-2.0
"""Variables, annotations and arguments: what a tenant, an image or a hook's caller may write."""

from __future__ import annotations

import json
from typing import Any

from gpuhook.apply.rootfs import hook_args
from gpuhook.entry import oci_command
from gpuhook.entry.hooks import limit_hook
from gpuhook.host import http_endpoint, quantity
from gpuhook.host.hot import settings_environment
from gpuhook.memory_limits.hot import container_limits, framework_hints
from gpuhook.request import annotation_origin, memory_request, mount_requests, parse, plan, replicas
from gpuhook.vendors.amd.hot import device_ids
from gpuhook.vendors.nvidia.hot import requirements, vocabulary
from gpuhook.vendors.nvidia.warm import toolkit_hooks
from tests.fuzz.fuzz_target import fuzz_target, text
from tests.plans import described

CONTEXT = described("t4", is_elsewhere=True)
WORDS = CONTEXT.node.vocabulary
HOOK = """\
--library\n/usr/lib/libcuda.so.550.1=libcuda.so.1\n--link\nlibcuda.so.1::/usr/lib/libcuda.so
--driver-version\n550.1\n--cuda-compat\n/usr/local/cuda/compat\n--driver-params\n--chmod\n755:/dev/dri
--fingerprint\nnvidia:195\n--cuda-version\n12.4\n--gpus\n0=9.0,h100\n--skip\nlinks"""
TOOLKIT = """\
create-symlinks\n--link\na::/usr/lib/b\n---
update-ldcache\n--folder=/usr/lib,/opt\n---
hook\nchmod\n--mode\n755\n--path\n/dev/dri\n---
enable-cuda-compat\n--host-driver-version=550.1\n---
disable-device-node-modification"""
LIMIT = "--required\n--gpu\nGPU-1=4096,0,asked\n--grant\nGPU-1=8192,1\n--nvml\n/x\n--root\n/run"


@fuzz_target([HOOK, "--link\na\n", "--chmod\n999:/x", ""], everyday=200)
def hook_arguments(data: bytes) -> None:
    """Jobs as arguments are the same jobs."""
    jobs = hook_args.parse(text(data).split("\n"))
    args = jobs.arguments()
    assert hook_args.parse(args).arguments() == args


@fuzz_target(TOOLKIT.split("\n---\n"), everyday=200)
def toolkit_arguments(data: bytes) -> None:
    words = text(data).split("\n")
    call = toolkit_hooks.call(words)
    if call.is_known:
        toolkit_hooks.jobs_of(call)
    for program in ("nvidia-ctk", "nvidia-cdi-hook"):
        toolkit_hooks.calls_in(
            {"hooks": {"createContainer": [{"path": f"/{program}", "args": [program, *words]}]}}
        )


@fuzz_target([LIMIT, "--gpu\nx=1"], everyday=200)
def limit_arguments(data: bytes) -> None:
    call = limit_hook._parsed(text(data).split("\n"))
    assert all(limit.hard >= limit.soft >= 0 for limit in call.limits)


@fuzz_target(
    ["--root\n/run/runc\ncreate\n--bundle\n/b\n--pid-file\n/p\nid", "--log=/x\nrun\n-b\n."]
)
def runtime_command_line(data: bytes) -> None:
    oci_command.parse(text(data).split("\n"))


ENVIRONMENT = [
    "NVIDIA_VISIBLE_DEVICES=0,1", "NVIDIA_VISIBLE_DEVICES=GPU-1::4,all,none",
    "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0", "NVIDIA_DRIVER_CAPABILITIES=compute,utility,all",
    "NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=535,driver<536", "CUDA_VERSION=12.4.1",
    "NVIDIA_DISABLE_REQUIRE=1", "NVIDIA_GPU_MEMORY_LIMIT=2048\nNVIDIA_GPU_MEMORY_REQUEST=1",
    "GPUHOOK_REPLICAS=GPU-1::4,GPU-1::5\nNVIDIA_VISIBLE_DEVICES=GPU-1", "NVIDIA_IMEX_CHANNELS=0,1",
    "NVIDIA_MIG_CONFIG_DEVICES=all\nNVIDIA_GDS=enabled",
    "GPUHOOK_MEMORY_HINTS=torch,jax,tensorflow",
    "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:1", "AMD_VISIBLE_DEVICES=0-3,0x1234",
]  # fmt: skip


@fuzz_target(["\n".join(ENVIRONMENT), *ENVIRONMENT], everyday=300)
def variables(data: bytes) -> None:
    """Each variable is parsed, or refused with a code."""
    entries = text(data).split("\n")
    spec: dict[str, Any] = {"process": {"env": entries}}
    environment = parse.environment(spec)
    memory_request.memory_request(environment, WORDS)
    for limit in memory_request.limits(spec, ["GPU-1", "GPU-2"], WORDS):
        assert 0 <= limit.soft <= limit.hard
        hints = framework_hints.variables(("torch", "jax"), limit.hard, 16 << 30)
        assert all(isinstance(value, str) for value in hints.values())
    container_limits.is_asked(spec)
    held = replicas.replicas_of(spec, ["GPU-1"], lambda: ["GPU-2"])
    assert all(replicas.device_of(one) for one in held)
    replicas.claims_of(spec, ["GPU-1"], lambda: ["GPU-2"])
    for value in environment.values():
        unknown: list[str] = []
        vocabulary.parse_capabilities(value, (), vocabulary.DEFAULT_CAPABILITIES, unknown)
        parse.names_of(value, "the variable")


@fuzz_target([value.partition("=")[2] for value in ENVIRONMENT[4:7]], everyday=300)
def required_driver(data: bytes) -> None:
    """Any requirement is met, unmet, unknown or invalid."""
    facts = requirements.RequirementFacts("/dev/nvidia0", "12.4", "550.54.15", "9.0", "tesla")
    value = text(data)
    environment = {"NVIDIA_REQUIRE_CUDA": value, "CUDA_VERSION": value, "NVIDIA_REQUIRE_X": value}
    requirements.disabled({requirements.DISABLE: value})
    for requirement in requirements.required_terms(environment):
        assert requirements.of_requirement(requirement, facts) in (
            requirements.MET,
            requirements.UNMET,
            requirements.UNKNOWN,
            requirements.INVALID,
            requirements.NEWER,
        )


MOUNTS = "GPU-1\ncdi/nvidia.com/gpu/0\nimex/0\n../x\nall"
GRANTS = "GPU-1,hard=4096,soft=0\nGPU-2,hard=1,soft=1,asked\n0000:06:00.0,hard=9,soft=0"


@fuzz_target([MOUNTS, GRANTS], everyday=300)
def mount_paths(data: bytes) -> None:
    """Grants are whole MiB, and their own mounts are the same grants."""
    prefixes = ("/var/run/nvidia-container-devices", "/var/run/gpuhook/memory")
    for prefix in prefixes:
        mounts = [
            {"destination": f"{prefix}/{path}", "source": "/dev/null"}
            for path in text(data).split("\n")
        ]
        mount_requests.names(mounts, prefix, ("imex",))
        for device, limit in memory_request.granted({"mounts": mounts}, prefix).items():
            path = memory_request.mount_path(prefix, limit)
            again = memory_request.granted(
                {"mounts": [{"destination": path, "source": "/dev/null"}]}, prefix
            )
            assert again == {device: limit}


CRIO = {"io.kubernetes.cri-o.Annotations": json.dumps({"cdi.k8s.io/x": "a.b/c=d"})}


@fuzz_target([json.dumps({"cdi.k8s.io/x": "a.b/c=d,e.f/g=h", **CRIO}), json.dumps(CRIO)])
def pod_annotations(data: bytes) -> None:
    """Annotations of a config.json: device names, and who wrote them."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    origins = annotation_origin.origins(found, [key for key in found if key.startswith("cdi.")])
    assert len(origins) <= len(found)
    plan.verdict({"annotations": found}, CONTEXT.settings, CONTEXT.node)


@fuzz_target(
    [
        "1",
        "500m",
        "2Gi",
        "1e3",
        "-1.5Ki",
        "0.5",
        "1E",
        "1e99999999",
        ":" + "9" * 5000,
        ":9395",
        "+1",
        "٣",
        "4G",
    ],
    size=8192,
)
def quantities(data: bytes) -> None:
    """A quantity is an exact number; a huge exponent costs nothing."""
    value = text(data)
    number = quantity.quantity(value)
    amount = quantity.memory_bytes(value)
    assert amount is None or amount >= 0 or (number is not None and number < 0)
    http_endpoint.parse_address(value)
    device_ids.spellings(value)
    assert len(device_ids.expanded(value)) <= 1 << 16
    device_ids.advice(value, ["0000:06:00.0"])
    device_ids.normalized([value], "the variable")


SETTINGS = "\n".join(f"{name}=true" for name in settings_environment.VARIABLES)


@fuzz_target([SETTINGS, "GPUHOOK_REQUEST_SPEC_DIRS=/a:/b\nGPUHOOK_NRI_DEVICES=a.b/c=d"])
def settings_variables(data: bytes) -> None:
    pairs = (line.partition("=") for line in text(data).split("\n"))
    settings_environment.values({name: value for name, _, value in pairs})
