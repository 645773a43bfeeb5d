# SPDX-License-Identifier: Apache-2.0
"""The capabilities that the wrapper and the hook of a CDI spec need, out of root's."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest
import yaml

from gpuhook.apply.spec import oci_spec
from gpuhook.cdi.hot.container_edits import merged
from tests.contract import runtimes
from tests.contract.bundles import Bundle
from tests.contract.installation import Installation, asks
from tests.contract.runtimes import Result, launcher, run_command
from tests.contract.views import questions
from tests.depth import cases

CACHE = "/etc/ld.so.cache"
NOTHING_RUNS = """#!/bin/sh
grep -E '^(Cap|NoNewPrivs)' /proc/self/status > "$0.status"
"""


def bounded(command: str, kept: Collection[str]) -> list[str]:
    """Return a command that runs with these capabilities only, and cannot get others."""
    bounds = ",".join(["-all", *(f"+{name}" for name in kept)])
    return ["setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set={bounds}", command]


def cdi_run(
    node: Installation, made: Bundle, kept: Collection[str], program: Path | None = None
) -> Result:
    """Run a container with the CDI device 0, whose hook has only the capabilities `kept`.

    `program` is the hook, the installed one by default.
    """
    place = made.path / "hook"
    place.mkdir()
    program = program or node.bindir / "gpuhook-hook"
    command = bounded(str(program), kept)
    hook, spec = launcher(place / "gpuhook-hook", command, node.env), place / "nvidia.yaml"
    words = [*node.node.options, "--hook-path", str(hook), "--output-file", str(spec)]
    done = node.gpuhook("generate-cdi", *words)
    assert done.rc == 0, done
    document = yaml.safe_load(spec.read_text(encoding="utf-8"))
    (device,) = [one for one in document["devices"] if one["name"] == "0"]
    config = made.config()
    oci_spec.apply(config, merged([document.get("containerEdits", {}), device["containerEdits"]]))
    made.write(config)
    return runtimes.run(made, ["runc"])


def test_hook_needs_no_capability(apart: Installation, bundle_of: Callable[..., Bundle]) -> None:
    """In a root file system of root's, it makes links and the loader's cache without any."""
    made = bundle_of("debian", ["/probe", *questions(CACHE)])
    view = cdi_run(apart, made, ()).view
    assert apart.device(0) in view.gpus()
    assert b"libcuda.so.1" in view.paths[CACHE].content


def hook_that_masks(node: Installation, place: Path, path: str) -> Path:
    """Return a hook for which `path` is the file with the driver's parameters."""
    text = (node.bindir / "gpuhook-hook").read_text(encoding="utf-8")
    module = "from gpuhook.vendors.nvidia.hot.rootfs import driver_params"
    start = "\ngpuhook_bundle.start("
    changed = text.replace(start, f"\n{module}\ndriver_params.PATH = {path!r}{start}")
    assert changed != text
    place.write_text(changed, encoding="utf-8")
    place.chmod(0o755)
    return place


@pytest.mark.parametrize("kept", cases([["sys_admin"], []], [["sys_admin"]]))
def test_hook_masks_the_parameters_with_sys_admin(
    apart: Installation, bundle_of: Callable[..., Bundle], tmp_path: Path, kept: list[str]
) -> None:
    """In the container's procfs, ModifyDeviceFiles is 0. Without SYS_ADMIN, the hook warns.

    This kernel has no driver, so a file that it has takes the place of the driver's parameters.
    """
    path = "/proc/version"
    node = Path(apart.node.host_root)
    (node / path[1:]).write_bytes((node / "proc/driver/nvidia/params").read_bytes())
    made = bundle_of("debian", ["/probe", *questions(path)])
    done = cdi_run(apart, made, kept, hook_that_masks(apart, tmp_path / "hook", path))
    content = done.view.paths[path].content
    assert (b"ModifyDeviceFiles: 0\n" in content) is bool(kept)
    if not kept:
        assert content == Path(path).read_bytes()
        assert "GH1641" in (apart.state / "hook.log").read_text(encoding="utf-8")


def test_wrapper_needs_no_capability_and_raises_none(
    apart: Installation, bundle_of: Callable[..., Bundle], tmp_path: Path
) -> None:
    """It edits config.json and the root file system; only the low-level runtime needs more."""
    low_level = tmp_path / "runc"
    low_level.write_text(NOTHING_RUNS, encoding="utf-8")
    low_level.chmod(0o755)
    made = bundle_of("debian", ["/probe"], asks("0"))
    words = ["create", "--bundle", str(made.path), "c1"]
    done = run_command([*bounded(apart.runtime, ()), *words], apart.on(str(low_level)))
    assert done.rc == 0, done
    paths = {one["path"] for one in made.config()["linux"]["devices"]}
    assert apart.device(0) in paths
    assert b"libcuda.so.1" in (made.root / CACHE[1:]).read_bytes()
    lines = Path(f"{low_level}.status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":\t") for line in lines)
    assert {fields[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"
