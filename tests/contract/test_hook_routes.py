# SPDX-License-Identifier: Apache-2.0
"""The prestart hook as Docker, hooks.d and containerd call it, twice, and after the wrapper."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract import integrations
from tests.contract.build_cache import CHECKOUT
from tests.contract.bundles import Bundle, Bundles
from tests.contract.engines import Containerd
from tests.contract.installation import (
    CONTROL,
    DRIVER_LIBRARIES,
    Installation,
    asks,
    install_once,
)
from tests.contract.integrations import Integrations
from tests.contract.roots import Roots
from tests.contract.runtimes import ENGINES, Result, run, run_command
from tests.contract.views import View, questions

NAME = "nvidia-container-runtime-hook"
# Variables of dockerd's environment, which dockerd passes to the hook.
DOCKERD = ["PATH=/usr/bin:/bin", "HOME=/root", "PYTHONHOME=/nowhere", "LD_LIBRARY_PATH=/nowhere"]


@pytest.fixture(scope="module")
def named_bindir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an installation with --nvidia-hook."""
    return install_once(tmp_path_factory, "nvidia-hook", "--nvidia-hook")


def dockers_hook(
    named_bindir: Path, installation: Installation, more: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the hook that dockerd adds to config.json for --gpus, with dockerd's environment."""
    own = [f"{name}={value}" for name, value in installation.env.items()]
    return {
        "path": str(named_bindir / NAME),
        "args": [NAME, "prestart"],
        "env": [*DOCKERD, *own, *more],
    }


def probe_command(installation: Installation) -> list[str]:
    """Return the command of the probe: two GPUs, and the driver's libraries."""
    tries = [installation.number(0), installation.number(1)]
    return ["/probe", *questions(tries=tries, runs=[["/dlprobe", *DRIVER_LIBRARIES]])]


def assert_gpu_once(view: View, installation: Installation, index: int) -> None:
    """Assert that the container has this GPU only, with each node once."""
    assert set(view.gpus()) == CONTROL | {installation.device(index)}
    assert all(node.allowed for node in view.gpus().values())
    for other in {0, 1} - {index}:
        assert view.tries[installation.number(other)] == "EPERM"
    assert all("real" in found for found in view.runs[0].found().values())


def recorded_changes(installation: Installation, made: Bundle) -> dict[str, Any]:
    """Return the ledger's record of changes to the bundle's container."""
    entries = [json.loads(p.read_bytes()) for p in (installation.state / "containers").iterdir()]
    (entry,) = [one for one in entries if one["bundle"] == str(made.path)]
    return dict(entry["live"]["made"])


@ENGINES
def test_docker_gpus_option(
    engine: str, named_bindir: Path, apart: Installation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """`docker run --gpus device=1`: the variables of dockerd follow the image's, and the hook
    ignores Python's variables of dockerd's environment.
    """
    (tmp_path / "gpuhook").mkdir()
    (tmp_path / "gpuhook/__init__.py").write_text("raise SystemExit(9)")
    hook = dockers_hook(named_bindir, apart, [f"PYTHONPATH={tmp_path}"])
    env = [*asks("all"), *asks("1", "compute,utility")]
    made = bundle_of("debian", probe_command(apart), env, hooks={"prestart": [hook]})
    view = run(made, [engine], engine).view
    assert_gpu_once(view, apart, 1)


def test_docker_gpus_option_with_a_missing_gpu(
    named_bindir: Path, apart: Installation, bundle_of: Bundles
) -> None:
    """The container does not start, and Docker shows the reason."""
    hooks = {"prestart": [dockers_hook(named_bindir, apart)]}
    result = run(bundle_of("debian", ["/probe"], asks("9"), hooks=hooks))
    assert result.rc != 0
    assert "GH1102: NVIDIA_VISIBLE_DEVICES: nvidia.com/gpu=9: no such device" in result.stderr
    assert not apart.entries()


def test_wrapper_removes_the_hook_of_docker_gpus(
    named_bindir: Path, apart: Installation, bundle_of: Bundles
) -> None:
    """`docker run --runtime nvidia --gpus device=1`: the wrapper removes the hook."""
    hooks = {"prestart": [dockers_hook(named_bindir, apart)]}
    made = bundle_of("debian", probe_command(apart), asks("1"), hooks=hooks)
    assert_gpu_once(apart.run(made).view, apart, 1)
    assert NAME not in made.file.read_text()
    assert len(apart.entries()) == 1


def test_hook_of_hooks_d_does_nothing_after_the_wrapper(
    apart: Installation, bundle_of: Bundles
) -> None:
    """If a hooks.d file names the hook too, it detects the wrapper's edits and does nothing."""
    hooks = {"prestart": [apart.hooks["hook"]]}
    made = bundle_of("debian", probe_command(apart), asks("1"), hooks=hooks)
    view = apart.run(made).view
    assert_gpu_once(view, apart, 1)
    assert apart.entry()["route"] == "wrapper"


def test_second_hook_changes_nothing(
    named_bindir: Path, apart: Installation, bundle_of: Bundles
) -> None:
    """With Docker's hook and one of hooks.d, the second changes nothing, and the record remains."""
    both = [dockers_hook(named_bindir, apart), apart.hooks["hook"]]
    once = bundle_of("debian", probe_command(apart), asks("1"), hooks={"prestart": both[:1]})
    twice = bundle_of("debian", probe_command(apart), asks("1"), hooks={"prestart": both})
    views = [run(each).view for each in (once, twice)]
    for view in views:
        assert_gpu_once(view, apart, 1)
    counts = [sum("nvidia" in mount.target for mount in v.mounts.values()) for v in views]
    assert counts[0] == counts[1] > 10
    made = [recorded_changes(apart, each) for each in (once, twice)]
    assert made[0]["rules"] == made[1]["rules"] != []
    targets = [{mount[0] for mount in each["mounts"]} for each in made]
    assert targets[0] == targets[1] != set()


@pytest.mark.parametrize("verb", ["poststart", "poststop"])
def test_other_verbs_of_nvidias_hook_do_nothing(
    verb: str, named_bindir: Path, apart: Installation, bundle_of: Bundles
) -> None:
    hook = {**dockers_hook(named_bindir, apart), "args": [NAME, verb]}
    made = bundle_of("debian", ["/probe"], asks("1"), hooks={verb: [hook]})
    assert run(made).view.gpus() == {}


def test_hook_ignores_a_container_without_request(enter: Integrations, root_of: Roots) -> None:
    root = root_of("debian")
    view = enter.through("podman-prestart", root, ["/probe"], "void").view
    assert view.gpus() == {}
    assert not any("nvidia" in mount.target for mount in view.mounts.values())


def test_base_spec_is_containerds_default_with_the_hook(
    node8: Installation, containerd: Containerd
) -> None:
    default = containerd.ctr("oci", "spec").stdout
    made = integrations.base_spec(node8, default)
    hooks = json.loads((node8.share / "hooks.d/gpuhook-prestart.json").read_bytes())
    assert made == {**json.loads(default), "hooks": {"prestart": [hooks["hook"]]}}


def test_containerd_reads_the_installed_handler(node8: Installation, tmp_path: Path) -> None:
    """containerd's configuration has the handler of the installed nvidia.toml."""
    snippet = (node8.share / "containerd/nvidia.toml").read_text(encoding="utf-8")
    config = tmp_path / "config.toml"
    config.write_text(f"version = 2\n{snippet}", encoding="utf-8")
    command = ["containerd", "--config", str(config), "config", "dump"]
    dumped = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _, _, handler = dumped.partition("containerd.runtimes.nvidia]")
    lines = [line.strip() for line in handler.partition("[plugins")[0].splitlines()]
    assert 'base_runtime_spec = "/etc/containerd/gpuhook-base.json"' in lines
    assert 'runtime_type = "io.containerd.runc.v2"' in lines
    assert 'container_annotations = ["cdi.k8s.io/*"]' in lines
    assert "pod_annotations = []" in lines  # a pod's own annotations request no GPU


DEBIAN = """version = 2
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
"""
WRAPPER = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
"""
DOCKER = 'disabled_plugins = ["cri"]\n'


def run_documented_steps(installation: Installation, place: Path) -> Result:
    """Run the steps of docs/how-to/by-hand.md for the handler, with `place` as /etc/containerd."""
    (text,) = [
        block.partition("```")[0]
        for block in (CHECKOUT / "docs/how-to/by-hand.md")
        .read_text(encoding="utf-8")
        .split("```sh\n")
        if block.startswith("cd /etc/containerd\n")
    ]
    text = text.replace("/usr/local/share/gpuhook", str(installation.share))
    script = text.replace("systemctl restart containerd\n", "")
    assert script != text
    command = ["unshare", "--mount", "sh", "-c", f"mount --bind {place} /etc/containerd\n{script}"]
    return run_command(command)


@pytest.mark.parametrize("before", ["", DEBIAN], ids=["none", "debian"])
def test_documented_steps_add_the_handler(before: str, node8: Installation, tmp_path: Path) -> None:
    """The handler is added to runc's and to the other settings; a second run changes nothing."""
    config = tmp_path / "config.toml"
    if before:
        config.write_text(before, encoding="utf-8")
    result = run_documented_steps(node8, tmp_path)
    assert result.rc == 0, result
    assert 'base_runtime_spec = "/etc/containerd/gpuhook-base.json"' in result.stdout
    made = config.read_text(encoding="utf-8")
    for handler in ("runc", "nvidia"):
        assert f"containerd.runtimes.{handler}]\n" in made
    if before:
        assert 'bin_dir = "/usr/lib/cni"' in made
    again = run_documented_steps(node8, tmp_path)
    assert "duplicated tables" in again.stderr
    assert config.read_text(encoding="utf-8") == made


@pytest.mark.parametrize(
    ("before", "reason"),
    [(WRAPPER, "duplicated tables"), (DOCKER, 'invalid disabled plugin URI "')],
)
def test_documented_steps_keep_a_file_that_would_break(
    before: str, reason: str, node8: Installation, tmp_path: Path
) -> None:
    """A file that cannot have the handler remains, and containerd prints the reason."""
    (tmp_path / "config.toml").write_text(before, encoding="utf-8")
    assert reason in run_documented_steps(node8, tmp_path).stderr
    assert (tmp_path / "config.toml").read_text(encoding="utf-8") == before
