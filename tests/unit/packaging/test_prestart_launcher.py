# SPDX-License-Identifier: Apache-2.0
"""gpuhook-prestart, the launcher: it ends for a container without a GPU request or a limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuhook.request import parse
from gpuhook.vendors.amd.hot import amd_words
from gpuhook.vendors.nvidia.hot import vocabulary

TEMPLATE = Path(__file__).parents[3] / "packaging/gpuhook-prestart.sh"
PREFIXES = ["cdi.k8s.io/"]


def env(*entries: str) -> dict[str, Any]:
    return {"process": {"env": ["PATH=/bin", *entries]}}


def mounted(source: str, destination: str) -> dict[str, Any]:
    return {"mounts": [{"source": source, "destination": destination}]}


SPECS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no variable": env("HOME=/root"),
    "empty": env("NVIDIA_VISIBLE_DEVICES="),
    "void": env("NVIDIA_VISIBLE_DEVICES=void"),
    "none": env("NVIDIA_VISIBLE_DEVICES=none"),
    "all": env("NVIDIA_VISIBLE_DEVICES=all"),
    "index": env("NVIDIA_VISIBLE_DEVICES=0"),
    "begins with v": env("NVIDIA_VISIBLE_DEVICES=vendor.com/gpu=0"),
    "begins with vo": env("NVIDIA_VISIBLE_DEVICES=volta"),
    "begins with void": env("NVIDIA_VISIBLE_DEVICES=voids"),
    "void, then a GPU": env("NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=1"),
    "void of an image": env("CUDA_VERSION=12.4", "NVIDIA_VISIBLE_DEVICES=void"),
    "image of old": env("CUDA_VERSION=8.0"),
    "image of old, empty requirement": env("CUDA_VERSION=8.0", "NVIDIA_REQUIRE_CUDA="),
    "image with a requirement": env("CUDA_VERSION=9.0", "NVIDIA_REQUIRE_CUDA=cuda>=9.0"),
    "another's version": env("MY_CUDA_VERSION=8.0"),
    "annotation": {"annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=0"}},
    "mount": mounted("/dev/null", "/var/run/nvidia-container-devices/GPU-0"),
    "grant of memory": {
        **env("NVIDIA_VISIBLE_DEVICES=void"),
        **mounted("/dev/null", "/var/run/gpuhook/memory/GPU-0,hard=4096,soft=0"),
    },
    "limit of memory": env("NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_GPU_MEMORY_LIMIT=4096"),
    "request of memory": env("NVIDIA_GPU_MEMORY_REQUEST=4096"),
    "AMD: index": env("AMD_VISIBLE_DEVICES=0"),
    "AMD: all": env("AMD_VISIBLE_DEVICES=ALL"),
    "AMD: unique id": env("AMD_VISIBLE_DEVICES=0xABCD"),
    "AMD: none": env("AMD_VISIBLE_DEVICES=none"),
    "AMD: void": env("NVIDIA_VISIBLE_DEVICES=void", "AMD_VISIBLE_DEVICES=void"),
    "AMD: empty": env("AMD_VISIBLE_DEVICES="),
    "AMD: begins with n": env("AMD_VISIBLE_DEVICES=nothing"),
    "AMD: begins with none": env("AMD_VISIBLE_DEVICES=nonesuch"),
    "AMD: begins with void": env("AMD_VISIBLE_DEVICES=voids"),
    "AMD: annotation": {"annotations": {"cdi.k8s.io/x": "amd.com/gpu=0"}},
    "AMD: mount": mounted("/dev/null", "/var/run/amd-container-devices/0"),
    "AMD: limit of memory": env("AMD_VISIBLE_DEVICES=void", "AMD_GPU_MEMORY_LIMIT=4096"),
    "ROCm's own variable": env("ROCR_VISIBLE_DEVICES=0"),
    "record of a tenant": {"annotations": {"io.gpuhook.record": "{}"}},
}
ASKING = [
    name
    for name, spec in SPECS.items()
    if any(
        parse.sources(spec, words, PREFIXES, takes_legacy=True) or parse.limits_memory(spec)
        for words in (vocabulary.VOCABULARY, amd_words.VOCABULARY)
    )
]


class Launcher:
    """The launcher before a hook program that records its arguments."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.settings = place / "config.yaml"
        self.launcher = place / "gpuhook-prestart"
        self.hook = place / "gpuhook-hook"
        text = TEMPLATE.read_text(encoding="utf-8").replace("@BIN@", str(place))
        self.launcher.write_text(text, encoding="utf-8")
        self.hook.write_text('#!/bin/sh\necho "called $*"; cat\nexit 7\n', encoding="utf-8")
        for path in (self.launcher, self.hook):
            path.chmod(0o755)

    def state(self, spec: object, indent: int | None = None) -> str:
        """Write the bundle and return the state that a runtime writes to the hook."""
        (self.place / "config.json").write_text(json.dumps(spec), encoding="utf-8")
        document = {"ociVersion": "1.0.2", "id": "x", "pid": 7, "bundle": str(self.place)}
        return json.dumps({**document, "annotations": {"bundle": "/nowhere"}}, indent=indent)

    def call(self, state: str, *arguments: str) -> tuple[int, str]:
        """Return the launcher's exit status and what the hook program wrote."""
        done = subprocess.run(
            [self.launcher, *arguments],
            input=state,
            env={"GPUHOOK_CONFIG": str(self.settings), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path)


@pytest.mark.parametrize("name", SPECS)
def test_requests_reach_the_hook(name: str, launcher: Launcher) -> None:
    """Exactly the containers with a request reach the hook, with the whole state."""
    state = launcher.state(SPECS[name])
    expected = (7, f"called prestart\n{state}") if name in ASKING else (0, "")
    assert launcher.call(state) == expected


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_white_space_of_the_state_is_ignored(indent: int | None, launcher: Launcher) -> None:
    state = launcher.state(SPECS["index"], indent)
    assert launcher.call(state) == (7, f"called prestart\n{state}")
    assert launcher.call(launcher.state(SPECS["nothing"], indent)) == (0, "")


@pytest.mark.parametrize(
    "state", ["", "{}", '{"bundle": null}', '{"bundle": "/no\\/where"}', '{"bundlePath": "/x"}']
)
def test_unknown_state_goes_to_the_hook(state: str, launcher: Launcher) -> None:
    """The hook decides about input that the launcher cannot parse."""
    assert launcher.call(state) == (7, f"called prestart\n{state}")


def test_annotation_prefixes_of_the_settings(launcher: Launcher) -> None:
    """If the settings name other annotations, the hook reads both."""
    launcher.settings.write_text("request: {onMissingDriver: refuse}\n")
    spec = {"annotations": {"example.com/x": "nvidia.com/gpu=0"}}
    assert launcher.call(launcher.state(spec)) == (0, "")
    launcher.settings.write_text("cdi: {annotationPrefixes: [example.com/]}\n")
    assert launcher.call(launcher.state(spec))[0] == 7


def test_swarm_resources_of_the_settings(launcher: Launcher) -> None:
    """If the settings name variables of a swarm, the hook reads both; a comment names none."""
    spec = env("DOCKER_RESOURCE_GPU=GPU-1")
    launcher.settings.write_text("request:\n  # swarmResources: [DOCKER_RESOURCE_GPU]\n")
    assert launcher.call(launcher.state(spec)) == (0, "")
    launcher.settings.write_text("request:\n  swarmResources: [DOCKER_RESOURCE_GPU]\n")
    assert launcher.call(launcher.state(spec))[0] == 7


@pytest.mark.parametrize("verb", ["poststart", "poststop", "--version", "apply"])
def test_other_verbs_go_to_the_hook(verb: str, launcher: Launcher) -> None:
    """The launcher does not read the state."""
    assert launcher.call("state", verb) == (7, f"called {verb}\nstate")


def test_options_go_to_the_hook(launcher: Launcher) -> None:
    """The verb may be given, as by Docker; with an option the hook decides."""
    state = launcher.state(SPECS["nothing"])
    assert launcher.call(state, "prestart") == (0, "")
    assert launcher.call(state, "prestart", "--dry-run")[1].startswith("called prestart --dry-run")


def test_python_that_does_not_start(tmp_path: Path) -> None:
    """It stops a container that requests a GPU, and no other."""
    launcher = Launcher(tmp_path)
    launcher.hook.write_text(f"#!{sys.executable}-gone -IS\n")
    assert launcher.call(launcher.state(SPECS["nothing"])) == (0, "")
    done = subprocess.run(
        [launcher.launcher], input=launcher.state(SPECS["index"]), text=True, check=False
    )
    assert done.returncode != 0
