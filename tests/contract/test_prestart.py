# SPDX-License-Identifier: Apache-2.0
"""The prestart hook with plain runtimes: it injects GPUs into a created container."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.contract import bundles, engines, roots
from tests.contract.bundles import Bundle
from tests.contract.installation import ALL_CONTROL, CONTROL, KIND, LIBRARIES, Installation, asks
from tests.contract.live import prestart
from tests.contract.roots import with_ldconfig
from tests.contract.runtimes import BOTH, ENGINES, EVERY, PAIRS, Result, run
from tests.contract.test_integrations import (
    CACHE,
    LINKS,
    LOOKED_UP,
    assert_cached,
    assert_found,
    assert_given,
    assert_nodes,
)
from tests.contract.test_user_namespace import MAPPED, NOT_OURS, let_through, mapped
from tests.contract.views import questions

STAGES = pytest.mark.parametrize("stage", ["prestart", "createRuntime"])
PROFILE = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"


def plain(made: Bundle, engine: str = "runc", cgroup: str = "host") -> Result:
    """Run a bundle with a runtime that has no GPU support."""
    return run(made, [engine], engine, cgroup)


def hooked(
    place: Path, installation: Installation, args: list[str], env: list[str], **oci: Any
) -> Bundle:
    """Return a bundle, in `place`, of a container with gpuhook's prestart hook."""
    kind = str(oci.pop("kind", "debian"))
    stage = str(oci.pop("stage", "prestart"))
    root = with_ldconfig(roots.copy(kind, place / kind))
    hooks = prestart(installation, stage=stage)
    return bundles.bundle(place / "bundle", root, args, env, hooks=hooks, **oci)


def redirected(hooks: dict[str, list[dict[str, Any]]], number: str, file: Path) -> dict[str, Any]:
    """Redirect a descriptor of the hook to a file: runtimes do not print a hook's output."""
    (hook,) = next(iter(hooks.values()))
    script = f'exec "$0" "$@" {number}>{file}'
    hook["args"] = ["sh", "-c", script, hook["path"], *hook["args"][1:]]
    hook["path"] = "/bin/sh"
    return hooks


@pytest.mark.parametrize(
    ("stage", "engine", "cgroup"),
    [("prestart", *pair) for pair in PAIRS]
    + [("createRuntime", *pair) for pair in (PAIRS[1], PAIRS[2])],
)
def test_prestart_hook_injects_the_requested_gpu(
    stage: str, engine: str, cgroup: str, apart: Installation, tmp_path: Path
) -> None:
    """The container has the GPU, the driver and a loader cache, and no other GPU."""
    every = [apart.number(index) for index in range(8)]
    command = ["/probe", *questions(*LINKS, tries=every, runs=[LOOKED_UP, CACHE])]
    made = hooked(tmp_path, apart, command, asks("2"), stage=stage)
    view = plain(made, engine, cgroup).view
    assert_given(view, apart, 2)
    assert len(apart.entries()) == 1


@pytest.mark.parametrize(
    ("kind", "engine"), [("lib64", "runc"), ("distroless", "crun"), ("musl", "runc")]
)
def test_prestart_hook_in_each_kind_of_image(
    kind: str, engine: str, node8: Installation, tmp_path: Path
) -> None:
    """The loader finds the driver."""
    command = ["/probe", *questions(tries=[node8.number(3)], runs=[LOOKED_UP, CACHE])]
    view = plain(hooked(tmp_path, node8, command, asks("2"), kind=kind), engine).view
    assert_nodes(view, node8, CONTROL, 2)
    assert_found(view.runs[0], str(node8.node.node.driver.version))
    if kind != "musl":
        assert_cached(view.runs[1])


@pytest.mark.parametrize(
    ("value", "capabilities", "control", "indexes"),
    [
        ("3,0", "compute", CONTROL, (0, 3)),
        ("all", "utility", {"/dev/nvidiactl"}, range(8)),
        ("none", "all", ALL_CONTROL, ()),
        ("0", "graphics", {"/dev/nvidiactl", "/dev/nvidia-modeset"}, (0,)),
    ],
)
def test_device_lists_and_capabilities(
    value: str,
    capabilities: str,
    control: set[str],
    indexes: tuple[int, ...],
    node8: Installation,
    tmp_path: Path,
) -> None:
    """The driver capabilities select nodes and files."""
    every = [node8.number(index) for index in range(8)]
    command = ["/probe", *questions(PROFILE, tries=every)]
    view = plain(hooked(tmp_path, node8, command, asks(value, capabilities)), "crun").view
    assert_nodes(view, node8, control, *indexes)
    if capabilities == "graphics":
        assert f"{1 << (node8.gpu(0).minor or 0):#x}]" in view.paths[PROFILE].content.decode()


@pytest.mark.parametrize("env", [[], asks("void"), asks("")])
@BOTH
def test_container_without_a_request_is_not_changed(
    env: list[str], engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """The hook adds no node, no rule and no file."""
    command = ["/probe", *questions(tries=[node8.number(0)])]
    made = hooked(tmp_path, node8, command, env)
    before = roots.listing(made.root)
    view = plain(made, engine, cgroup).view
    assert view.gpus() == {}
    assert view.tries == {node8.number(0): "EPERM"}
    assert {p for p in roots.listing(made.root) if "nvidia" in p} == {
        p for p in before if "nvidia" in p
    }
    assert not [m for m in view.mounts if "nvidia" in m]


@ENGINES
def test_hook_skips_what_the_wrapper_injected(
    engine: str, apart: Installation, tmp_path: Path
) -> None:
    """The ledger's entry is the wrapper's."""
    made = hooked(tmp_path, apart, ["/probe"], asks("2"))
    view = apart.run(made, engine).view
    assert_nodes(view, apart, CONTROL, 2)
    (entry,) = Path(apart.state, "containers").iterdir()
    assert json.loads(entry.read_text(encoding="utf-8"))["route"] == "wrapper"


@pytest.mark.parametrize("by_cdi", [True, False])
def test_hook_in_podmans_hooks_d(
    by_cdi: bool, node8: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook injects GPUs, unless podman injected them by CDI."""
    log = tmp_path / "planned"
    own = [f"export {name}='{value}'" for name, value in node8.env.items()]
    hook = f"tee {tmp_path}/s | {node8.bindir}/gpuhook-hook prestart --dry-run >{log}"
    script = "\n".join(
        ["#!/bin/sh", *own, hook, f"exec {node8.bindir}/gpuhook-hook prestart <{tmp_path}/s"]
    )
    launcher = tmp_path / "hook"
    launcher.write_text(script + "\n", encoding="utf-8")
    launcher.chmod(0o755)
    (tmp_path / "hooks.d").mkdir()
    document = {"version": "1.0.0", "stages": ["prestart"], "when": {"always": True}}
    document["hook"] = {"path": str(launcher)}
    (tmp_path / "hooks.d/gpuhook.json").write_text(json.dumps(document), encoding="utf-8")
    settings = tmp_path / "containers.conf"
    settings.write_text(f'[engine]\nhooks_dir = ["{tmp_path}/hooks.d"]\n', encoding="utf-8")
    monkeypatch.setenv("CONTAINERS_CONF", str(settings))
    options = ["--device", f"{KIND}=2"] if by_cdi else ["--env", "NVIDIA_VISIBLE_DEVICES=2"]
    command = ["/probe", *questions(runs=[LOOKED_UP])]
    root = roots.copy("debian", tmp_path / "root")
    view = engines.podman(
        tmp_path / "podman", root, command, options, "runc", "runc", node8.specs, state=node8.state
    ).view
    assert_nodes(view, node8, ALL_CONTROL if by_cdi else CONTROL, 2)
    assert_found(view.runs[0], str(node8.node.node.driver.version))
    head, *planned = log.read_text(encoding="utf-8").splitlines()
    assert (planned == []) == by_cdi
    expected = "nothing to do: its engine injected its GPUs by CDI" if by_cdi else "would do"
    assert head.endswith(f": {expected}")


@STAGES
def test_dry_run_prints_the_plan(stage: str, apart: Installation, tmp_path: Path) -> None:
    """--dry-run changes nothing."""
    command = ["/probe", *questions(tries=[apart.number(2)])]
    made = hooked(tmp_path, apart, command, asks("2"))
    config = made.config()
    printed = tmp_path / "said"
    config["hooks"] = redirected(prestart(apart, "--dry-run", stage=stage), "1", printed)
    made.write(config)
    before = roots.listing(made.root)
    view = plain(made).view
    assert view.gpus() == {}
    assert view.tries == {apart.number(2): "EPERM"}
    after = roots.listing(made.root)
    assert {p for p in after.keys() ^ before.keys() if "nvidia" in p or "gpuhook" in p} == set()
    head, *lines = printed.read_text(encoding="utf-8").splitlines()
    assert head.endswith(": would do")
    assert f"  device node {apart.device(2)} (c {apart.number(2)}, mode 0666)" in lines
    assert f"  device rule: allow {apart.device(2)} (c {apart.number(2)} rw)" in lines
    assert apart.entries() == []


@BOTH
def test_prestart_hook_with_a_read_only_root(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """The container cannot write to its root, but the hook adds the driver."""
    command = ["/probe", *questions(*LINKS, runs=[LOOKED_UP])]
    made = hooked(tmp_path, node8, command, asks("2"))
    made.write({**made.config(), "root": {"path": str(made.root), "readonly": True}})
    view = plain(made, engine, cgroup).view
    assert_nodes(view, node8, CONTROL, 2)
    assert_found(view.runs[0], str(node8.node.node.driver.version))
    assert "ro" in view.mounts["/"].options


@EVERY
def test_prestart_hook_in_a_user_namespace(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """The host's nodes are bind mounts, and new files belong to the container's root."""
    command = ["/probe", *questions(*LINKS, "/etc/ld.so.cache", runs=[LOOKED_UP])]
    let_through(Path(node8.node.driver_root) / "any")
    made = mapped(hooked(tmp_path, node8, command, asks("2")))
    view = plain(made, engine, cgroup).view
    assert_nodes(view, node8, CONTROL, 2)
    assert node8.device(2) in view.mounts
    assert {"nosuid", "noexec"} <= view.mounts[node8.device(2)].options
    assert_found(view.runs[0], str(node8.node.node.driver.version))
    owners = {(entry.kind, entry.uid, entry.gid) for entry in view.paths.values()}
    assert owners == {("link", 0, 0), ("file", 0, 0)}
    owner = os.stat(f"{made.root}{LIBRARIES}/libcuda.so.{node8.node.node.driver.version}")
    assert (owner.st_uid, owner.st_gid) == (MAPPED, MAPPED)


@BOTH
@pytest.mark.parametrize("known", [{"XDG_RUNTIME_DIR": "/run/user/1"}, {}], ids=["user", "bare"])
def test_prestart_hook_in_a_rootless_container(
    known: dict[str, str], engine: str, cgroup: str, apart: Installation, tmp_path: Path
) -> None:
    """No process may make nodes or rules: nodes are bind mounts, and the missing rules are logged.

    This applies with any environment of the hook: runtimes pass that of its entry, or their own.
    """
    command = ["/probe", *questions(runs=[LOOKED_UP])]
    linux = {"resources": None, "cgroupsPath": None}
    made = hooked(tmp_path, apart, command, asks("2"), linux=linux)
    config = made.config()
    dropped = [*NOT_OURS, "/dev/pts"]
    config["mounts"] = [m for m in config["mounts"] if m["destination"] not in dropped]
    config["linux"]["namespaces"] = [{"type": name} for name in ("pid", "ipc", "uts", "mount")]
    errors = tmp_path / "said"
    config["hooks"] = redirected(prestart(apart, **known), "2", errors)
    made.write(config)
    around = ["unshare", "--user", "--map-root-user", "--mount"]
    options = {"runc": ["--rootless=true"], "crun": ["--cgroup-manager=disabled"]}[engine]
    view = run(made, [*around, engine, *options], engine, cgroup).view
    assert_nodes(view, apart, CONTROL, 2)
    assert apart.device(2) in view.mounts
    assert_found(view.runs[0], str(apart.node.node.driver.version))
    assert errors.read_text(encoding="utf-8") == ""
    log = (apart.state / "hook.log").read_text(encoding="utf-8")
    assert "only root on the host can change them (rootless container)" in log
