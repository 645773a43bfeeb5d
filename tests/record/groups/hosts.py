# SPDX-License-Identifier: Apache-2.0
"""What commands write on a host: engine configurations, their undo, installations."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from tests.record import surface
from tests.record.box import Box
from tests.record.case import Case

HOST = "/mnt/host"
ENGINES = ("containerd", "crio", "docker", "podman")
_DOCKER, _CONTAINERD = "/etc/docker/daemon.json", "/etc/containerd/config.toml"
_CRI = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\n'
_NVIDIA = _CRI + (
    'default_runtime_name = "nvidia"\n'
    '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
    'runtime_type = "io.containerd.runc.v2"\n'
    '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
    'BinaryName = "/usr/bin/nvidia-container-runtime"\n'
)
Files = dict[str, str]
CONFIGURED: dict[str, tuple[str, str, Files]] = {
    "docker-there": ("docker", "", {_DOCKER: '{\n    "log-level": "info"\n}\n'}),
    "docker-tabs": ("docker", "", {_DOCKER: '{\n\t"bip": "10.0.0.1/24"\n}'}),
    "docker-empty": ("docker", "", {_DOCKER: ""}),
    "docker-broken": ("docker", "", {_DOCKER: '{"a": '}),
    "docker-list": ("docker", "", {_DOCKER: "[]"}),
    "docker-twice": ("docker", "", {_DOCKER: '{"a": 1, "a": 2}'}),
    "docker-other-nvidia": (
        "docker",
        "",
        {_DOCKER: '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'},
    ),
    "docker-take-over": (
        "docker",
        "--take-over",
        {_DOCKER: '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'},
    ),
    "docker-default": ("docker", "--set-as-default", {}),
    "docker-cdi": ("docker", "--route cdi", {}),
    "docker-cdi-off": ("docker", "--enable-cdi=false", {}),
    "docker-hook": ("docker", "--route hook", {}),
    "docker-name": ("docker", "--runtime-name gpuhook", {}),
    "docker-name-bad": ("docker", "--runtime-name a/b", {}),
    "docker-name-runc": ("docker", "--runtime-name runc", {}),
    "docker-config": ("docker", "--config /etc/other.json", {"/etc/other.json": "{}\n"}),
    "docker-config-relative": ("docker", "--config other.json", {}),
    "docker-drop-in": ("docker", "--drop-in /etc/x.json", {}),
    "docker-json": ("docker", "-o json", {}),
    "docker-yaml": ("docker", "-o yaml", {}),
    "containerd-there": ("containerd", "", {_CONTAINERD: _CRI}),
    "containerd-version-3": ("containerd", "", {_CONTAINERD: "version = 3\n"}),
    "containerd-version-1": ("containerd", "", {_CONTAINERD: "[plugins.cri.containerd]\n"}),
    "containerd-comments": ("containerd", "", {_CONTAINERD: "# mine\n" + _CRI + "# end\n"}),
    "containerd-other-nvidia": ("containerd", "", {_CONTAINERD: _NVIDIA}),
    "containerd-take-over": ("containerd", "--take-over", {_CONTAINERD: _NVIDIA}),
    "containerd-broken": ("containerd", "", {_CONTAINERD: "version = [\n"}),
    "containerd-imports": (
        "containerd",
        "",
        {_CONTAINERD: 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n'},
    ),
    "containerd-disabled": ("containerd", "", {_CONTAINERD: 'disabled_plugins = ["cri"]\n'}),
    "containerd-enabled": (
        "containerd",
        "--enable-cri",
        {_CONTAINERD: 'disabled_plugins = ["cri"]\n'},
    ),
    "containerd-default": ("containerd", "--set-as-default", {_CONTAINERD: _CRI}),
    "containerd-cdi": ("containerd", "--route cdi", {_CONTAINERD: _CRI}),
    "containerd-hook": ("containerd", "--route hook", {_CONTAINERD: _CRI}),
    "containerd-enable-cdi": ("containerd", "--enable-cdi", {_CONTAINERD: _CRI}),
    "containerd-drop-in": ("containerd", "--drop-in /etc/containerd/x.toml", {_CONTAINERD: _CRI}),
    "containerd-k3s": (
        "containerd",
        "--config /var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        {"/var/lib/rancher/k3s/agent/etc/containerd/config.toml": "version = 2\n"},
    ),
    "crio-there": ("crio", "", {"/etc/crio/crio.conf": '[crio.runtime]\nlog_level = "info"\n'}),
    "crio-default": ("crio", "--set-as-default", {}),
    "crio-hook": ("crio", "--route hook", {}),
    "crio-cdi": ("crio", "--route cdi", {}),
    "podman-there": ("podman", "", {"/etc/containers/containers.conf": "[engine]\n"}),
    "podman-wrapper": ("podman", "--route wrapper", {}),
    "podman-cdi": ("podman", "--route cdi", {}),
    "podman-default": ("podman", "--route wrapper --set-as-default", {}),
}


def cases() -> list[Case]:
    """Return all cases."""
    found = [
        _case(f"configure-{engine}", partial(_configured, engine, "", {})) for engine in ENGINES
    ]
    found += [
        _case(f"configure-{name}", partial(_configured, engine, options, files))
        for name, (engine, options, files) in CONFIGURED.items()
    ]
    found += [
        _case(f"containerd-{path.stem}", partial(_configured, "containerd", "", _files(path)))
        for path in sorted(
            (surface.CHECKOUT / "tests/contract/configurations/containerd").iterdir()
        )
    ]
    found += [
        _case("configure-no-program", _without_program),
        _case("configure-edited", _edited),
        _case("configure-show", _shown),
        _case("configure-users", partial(_calls, ["configure users", "configure users -o json"])),
        _case("install-tree", _installed),
        _case("install-none", partial(_install, "none")),
        _case("install-containerd", partial(_install, "containerd")),
        _case("install-docker", partial(_install, "docker")),
        _case("install-podman", partial(_install, "podman")),
        _case("install-auto", partial(_install, "auto")),
        _case("install-dry", _install_dry),
        _case("install-broken", _install_broken),
        _case("uninstall-nothing", partial(_calls, ["uninstall", "uninstall -o json"])),
    ]
    return found


def _case(name: str, action: Any) -> Case:
    return Case("hosts", name, "empty", action)


def _files(path: Path) -> Files:
    """Return the files of a case of the contract tests: see tests/contract/configurations."""
    sections = path.read_bytes().decode("utf-8", "surrogateescape").split("=== ")[1:]
    parts = (section.partition("\n") for section in sections)
    return {head: text for head, _, text in parts if head.startswith("/")}


def _host(box: Box, files: Files) -> None:
    """Make a host with gpuhook's programs and these files."""
    box.watched = [HOST]
    for name in ("gpuhook-runtime", "gpuhook-prestart", "gpuhook-hook"):
        box.write(f"{HOST}/usr/bin/{name}", "#!/bin/sh\n", 0o755)
    for path, text in files.items():
        box.write(HOST + path, text.encode("utf-8", "surrogateescape"))


def _calls(calls: list[str], box: Box) -> None:
    _host(box, {})
    for call in calls:
        box.gpuhook(*call.split(), "--host-root", HOST)


def _configured(engine: str, options: str, files: Files, box: Box) -> None:
    """Configure an engine with --dry-run, really, and again; then undo it."""
    _host(box, files)
    words = ["configure", engine, *options.split(), "--host-root", HOST]
    words += [
        "--runtime-path",
        "/usr/bin/gpuhook-runtime",
        "--hook-path",
        "/usr/bin/gpuhook-prestart",
    ]
    box.gpuhook(*words, "--dry-run")
    if box.gpuhook(*words) == 0:
        box.gpuhook(*words)
        box.gpuhook("configure", "show", engine, "--host-root", HOST)
        box.look("configured")
        box.gpuhook("configure", "undo", engine, "--host-root", HOST)


def _without_program(box: Box) -> None:
    box.watched = [HOST]
    box.directory(HOST)
    for engine in ENGINES:
        box.gpuhook("configure", engine, "--host-root", HOST)


def _edited(box: Box) -> None:
    """Undo a configuration that was edited in between."""
    _host(box, {_DOCKER: '{"a": 1}\n'})
    box.gpuhook("configure", "docker", "--host-root", HOST)
    path = Path(HOST + _DOCKER)
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, "b": 2}), encoding="utf-8")
    box.gpuhook("configure", "show", "--host-root", HOST)
    box.gpuhook("configure", "undo", "docker", "--dry-run", "--host-root", HOST)
    box.gpuhook("configure", "undo", "docker", "--host-root", HOST)


def _shown(box: Box) -> None:
    _host(box, {_DOCKER: "{}\n", _CONTAINERD: _NVIDIA})
    for form in ("table", "json", "yaml", "name"):
        box.gpuhook("configure", "show", "--host-root", HOST, "-o", form)
    box.gpuhook("configure", "undo", "docker", "--host-root", HOST)
    box.gpuhook("configure", "undo", "x", "--host-root", HOST)


def _tree(box: Box) -> str:
    """Make a runtime tree whose programs do nothing."""
    for name in ("gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart"):
        box.write(f"tree/launchers/bin/{name}", "#!/bin/sh\n", 0o755)
    described = {"schema": surface.tree_schema(), "version": "1.0", "digest": "a" * 64}
    box.write("tree/tree.json", json.dumps(described))
    return "/mnt/case/tree"


def _prepared(box: Box) -> list[str]:
    """Make a host in which this machine's programs run; return the options for it."""
    box.write(HOST + _DOCKER, '{\n    "log-level": "info"\n}\n')
    box.write(HOST + _CONTAINERD, _CRI)
    for name in ("opt", "run", "var", "usr", "proc"):
        box.directory(f"{HOST}/{name}")
    for name in ("bin", "lib", "lib64", "sbin"):
        machine = Path("/", name)
        if machine.is_symlink():
            box.link(f"{HOST}/{name}", str(machine.readlink()))
        elif machine.is_dir():
            box.directory(f"{HOST}/{name}")
            subprocess.run(["mount", "--bind", str(machine), f"{HOST}/{name}"], check=True)
    subprocess.run(["mount", "--bind", "/usr", f"{HOST}/usr"], check=True)
    box.watched = [f"{HOST}/{name}" for name in ("etc", "opt", "run", "var")]
    return ["--host-root", HOST]


def _install(engine: str, box: Box) -> None:
    options, tree = _prepared(box), _tree(box)
    words = ["install", *options, "--tree", tree, "--engine", engine]
    if box.gpuhook(*words) == 0:
        box.gpuhook(*words, "-o", "json")
        box.look("installed")
        box.gpuhook("uninstall", *options, "--dry-run")
    box.gpuhook("uninstall", *options)


def _install_dry(box: Box) -> None:
    options, tree = _prepared(box), _tree(box)
    words = ["install", *options, "--tree", tree, "--dry-run"]
    for engine in ("none", "docker", "containerd", "podman", "auto"):
        box.gpuhook(*words, "--engine", engine, "-o", "json")
    box.gpuhook(*words, "--engine", "docker", "--route", "cdi")
    box.gpuhook(*words, "--engine", "docker", "--install-dir", "/home/gpuhook")
    box.gpuhook(*words, "--engine", "docker", "--install-dir", "relative")


def _install_broken(box: Box) -> None:
    options, tree = _prepared(box), _tree(box)
    box.write("tree/launchers/bin/gpuhook-hook", "#!/bin/sh\necho no >&2; exit 3\n", 0o755)
    box.gpuhook("install", *options, "--tree", tree, "--engine", "none")
    box.gpuhook("install", *options, "--tree", "/nowhere", "--engine", "none")
    box.gpuhook("install", *options, "--engine", "none")
    box.write("tree/tree.json", "{")
    box.gpuhook("install", *options, "--tree", tree, "--engine", "none")


def _installed(box: Box) -> None:
    """List what packaging/install.py installs, without the package's modules and byte code."""
    destdir = Path("/mnt/tmp/destination")
    surface.install(destdir, "--nvidia-compat")
    library = f"{surface.PREFIX}/lib/gpuhook/"
    lines = []
    for path in sorted(destdir.rglob("*")):
        name = str(path).removeprefix(str(destdir))
        if path.is_file() and not name.startswith(library):
            lines.append(f"{path.stat().st_mode & 0o7777:04o} {name}\n")
    box.note("installed files", "".join(lines))
