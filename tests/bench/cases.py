# SPDX-License-Identifier: Apache-2.0
"""The cases of the benchmark, in groups whose members take turns."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.bench.measure import Case, plain
from tests.bench.stage import fresh, gpu_bundle
from tests.contract.bundles import Bundle
from tests.contract.engines import ULIMITS
from tests.contract.installation import Installation
from tests.contract.runtimes import runtime_environment

PYTHON = "/usr/bin/python3"
TRUE_PROGRAM = "/bin/true"
# As in CUDA images, except that only the last alternative is satisfied.
BRANDS = ("tesla", "unknown", "nvidiartx", "geforce", "geforcertx", "quadro", "quadrortx", "titan")
REQUIRED = " ".join(
    ["cuda>=99.0"]
    + [f"brand={brand},driver>=470,driver<471" for brand in BRANDS]
    + [f"brand=nvidia,driver>={n},driver<{n + 1}" for n in (470, 535, 580)]
)
TENTH = {"linux": {"resources": {"cpu": {"quota": 10000, "period": 100000}}}}


def interpreter(ready: Installation) -> list[Case]:
    """Return the cost of the wrapper itself: the low-level runtime is /bin/true."""
    env = ready.on(TRUE_PROGRAM)
    made = gpu_bundle(ready, "alone")
    none = gpu_bundle(ready, "none", value="void")
    config = none.config()
    config["process"]["env"] = ["PATH=/bin"]
    none.write(config)
    picky = gpu_bundle(ready, "picky")
    config = picky.config()
    config["process"]["env"].append(f"NVIDIA_REQUIRE_CUDA={REQUIRED}")
    picky.write(config)
    runtime = [ready.runtime]
    return [
        plain("bare interpreter", [PYTHON, "-IS", "-c", "pass"]),
        plain("pass-through", [ready.runtime, "state", "x"], **env),
        Case("create, no GPU requested", lambda: fresh(none, runtime, TRUE_PROGRAM), env),
        Case("create alone, 8 GPUs", lambda: fresh(made, runtime, TRUE_PROGRAM), env),
        Case("create alone, required", lambda: fresh(picky, runtime, TRUE_PROGRAM), env),
    ]


def scaling(ready: Installation) -> list[Case]:
    """Return the wrapper on one GPU, also beside 1,000 specs, and on 16 x 7 x 64 replicas."""
    one, crowded, many = (ready.place / f"cdi-{name}" for name in ("one", "crowded", "many"))
    compiled = json.loads(
        subprocess.run(
            [sys.executable, "-c", _TO_JSON, str(ready.spec)],
            check=True,
            capture_output=True,
        ).stdout
    )
    first = next(d for d in compiled["devices"] if d["name"].startswith("GPU-"))
    for directory in (one, crowded):
        _write_spec(directory, compiled, [first])
    for number in range(1000):
        other = {"cdiVersion": "0.6.0", "kind": f"vendor{number}.com/net", "devices": [_OTHER]}
        (crowded / f"vendor{number}.json").write_text(json.dumps(other), "utf-8")
    instances = [
        {"name": name, "containerEdits": first["containerEdits"]}
        for gpu in range(16)
        for instance in range(7)
        for name in (
            f"{gpu}:{instance}",
            f"mig{gpu}:{instance}",
            f"MIG-{gpu:08x}-{instance:04x}-4000-8000-000000000000",
        )
    ]
    _write_spec(many, compiled, instances)
    return [
        _scaled(ready, one, "create alone, 1 GPU", f"{first['name']}::0"),
        _scaled(ready, crowded, "create alone, 1,000 other specs", f"{first['name']}::0"),
        _scaled(ready, many, "create alone, 16 x 7 MIG", f"{instances[-1]['name']}::63"),
    ]


_OTHER = {"name": "0", "containerEdits": {"env": ["A=1"]}}
_TO_JSON = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"


def _write_spec(directory: Path, whole: dict[str, object], devices: Sequence[object]) -> None:
    directory.mkdir()
    text = json.dumps({**whole, "devices": devices})
    (directory / "nvidia.json").write_text(text, encoding="utf-8")


def _scaled(ready: Installation, specs: Path, name: str, value: str) -> Case:
    made = gpu_bundle(ready, specs.name + "-bundle", value=value)
    settings = ready.place / f"{specs.name}.yaml"
    settings.write_text(json.dumps({"cdi": {"specDirs": [str(specs)]}}), encoding="utf-8")
    env = ready.on(TRUE_PROGRAM, GPUHOOK_CONFIG=str(settings))
    return Case(name, lambda: fresh(made, [ready.runtime], TRUE_PROGRAM), env)


def runc(ready: Installation) -> list[Case]:
    """Return a create with runc and the parameters hook, and one with the prestart hook."""
    return [
        *_pair(ready, "runc", "bare runc create", "whole create, runc", {}),
        _hooked(ready, "prestart", "prestart hook, runc", "all"),
        _hooked(ready, "prestart-void", "prestart hook, no GPU requested", "void"),
    ]


def _hooked(ready: Installation, place: str, name: str, value: str) -> Case:
    """Return a create by runc of a container with gpuhook's prestart hook."""
    hooks = {"prestart": [ready.hooks["hook"]]}
    made = gpu_bundle(ready, place, value=value, hooks=hooks)
    low = _program("runc")
    return Case(name, lambda: fresh(made, [low], low))


def of_memory(ready: Installation) -> list[Case]:
    """Return a create on cgroup v2 of a container with one GPU, without and with a memory limit.

    On a machine with v1, both run in a mount namespace with v2.
    """
    around, low = runtime_environment("runc", "v2").prefix, _program("runc")
    bare = gpu_bundle(ready, "memory-none", value="0")
    with_limit = gpu_bundle(ready, "memory-limit", value="0")
    config = with_limit.config()
    config["process"]["env"].append("NVIDIA_GPU_MEMORY_LIMIT=4096")
    with_limit.write(config)
    runtime, env = [ready.runtime], ready.on(low)
    return [
        Case("create, cgroup v2", lambda: fresh(bare, runtime, low, around), env),
        Case("create with a limit", lambda: fresh(with_limit, runtime, low, around), env),
    ]


def limited(ready: Installation) -> list[Case]:
    """Return the same under a CPU limit of 0.1, in which createContainer hooks run."""
    return _pair(ready, "tenth", "bare runc create, 0.1 CPU", "whole create, 0.1 CPU", TENTH)


def _pair(
    ready: Installation, place: str, bare: str, ours: str, oci: Mapping[str, Any]
) -> list[Case]:
    made = gpu_bundle(ready, place, **oci)
    low = _program("crun" if place == "crun" else "runc")
    return [
        Case(bare, lambda: fresh(made, [low], low)),
        Case(ours, lambda: fresh(made, [ready.runtime], low), ready.on(low)),
    ]


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(name)
    return path


def crun(ready: Installation) -> list[Case]:
    """Return the same with crun, which starts faster than runc."""
    return _pair(ready, "crun", "bare crun create", "whole create, crun", {})


def crowd(ready: Installation, size: int = 32) -> list[Case]:
    """Return many creates at once, each of another container."""
    bundles = [gpu_bundle(ready, f"crowd-{number}") for number in range(size)]
    env = ready.on("runc")
    return [
        Case("32 bare creates at once", lambda: _at_once(ready, bundles, "runc")),
        Case("32 creates at once", lambda: _at_once(ready, bundles, ready.runtime), env),
    ]


@contextmanager
def _at_once(ready: Installation, bundles: list[Bundle], runtime: str) -> Iterator[Sequence[str]]:
    originals = [made.file.read_bytes() for made in bundles]
    name = f"gpuhook-bench-{uuid4().hex[:8]}"
    root = str(ready.place / "crowd-state")
    lines = [
        f"{runtime} --root {root} create --bundle {made.path} {name}-{number} & p{number}=$!"
        for number, made in enumerate(bundles)
    ]
    waits = [f"wait $p{number} || exit 1" for number in range(len(bundles))]
    try:
        yield ["sh", "-c", "\n".join([*lines, *waits])]
    finally:
        for number, made in enumerate(bundles):
            subprocess.run(["runc", "--root", root, "delete", "-f", f"{name}-{number}"], check=True)
            made.file.write_bytes(originals[number])


def life(ready: Installation) -> list[Case]:
    """Return create, start, exec, kill and delete of one container."""
    made = gpu_bundle(ready, "life")
    env = ready.on("runc")
    return [
        Case("life under bare runc", lambda: _lived(made, "runc")),
        Case("life of a container", lambda: _lived(made, ready.runtime), env),
    ]


@contextmanager
def _lived(made: Bundle, runtime: str) -> Iterator[Sequence[str]]:
    original = made.file.read_bytes()
    name = f"gpuhook-bench-{uuid4().hex[:8]}"
    call = f"{runtime} --root {made.path}/state"
    script = (
        f"set -e; {call} create --bundle {made.path} {name}; {call} start {name};"
        f" {call} exec {name} true; {call} kill {name} KILL;"
        f" until {call} delete {name} 2>/dev/null; do sleep 0.005; done"
    )
    try:
        yield ["sh", "-c", script]
    finally:
        made.file.write_bytes(original)


def podman(ready: Installation) -> list[Case]:
    """Return podman without and with a device of gpuhook's CDI spec, which podman applies."""
    root = gpu_bundle(ready, "podman").root
    return [
        plain("podman, no device", _podman(ready, root, [])),
        plain("podman, gpuhook's CDI spec", _podman(ready, root, ["--device", "nvidia.com/gpu=0"])),
    ]


def _podman(ready: Installation, root: Path, options: list[str]) -> list[str]:
    place = ready.place / "podman-state"
    command = ["podman", "--root", f"{place}/storage", "--runroot", f"{place}/run"]
    command += ["--cgroup-manager", "cgroupfs", "--runtime", _program("runc")]
    command += ["--storage-driver", "vfs", "run", "--rm", "--network", "none", *ULIMITS]
    return [*command, *options, "--rootfs", str(root), "true"]
