# SPDX-License-Identifier: Apache-2.0
"""The route nri: the setting that enables NRI in containerd and CRI-O, and refused engines."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.engines.read import containerd_config, crio_config
from tests.refusal import refused
from tests.unit.configuring import Tree, configured, undone

C = containerd_config.PATH
DROP = "/etc/containerd/conf.d/50-user.toml"
D = crio_config.DROP_INS
NRI = '[plugins."io.containerd.nri.v1.nri"]\n'
CRI = '[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "pause"\n'
IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
OFF, OLD, NEW = f"{NRI}  disable = true\n", (1, 7, 24), (2, 1, 9)

Texts = dict[str, str]
# Files, the version of the daemon, the file that changes ("" for none).
CONTAINERD: dict[str, tuple[Texts, Any, str]] = {
    "no file": ({}, OLD, C),
    "no file, unknown version": ({}, None, C),
    "a file without the table": ({C: f"version = 2\n{CRI}"}, OLD, C),
    "disabled": ({C: f"version = 2\n{CRI}{OFF}"}, OLD, C),
    "disabled in 2": ({C: f"version = 3\n{OFF}"}, NEW, C),
    "disabled in a drop-in": ({C: f"version = 2\n{IMPORTS}{CRI}", DROP: OFF}, OLD, DROP),
    "replaced by a drop-in": (
        {C: f"version = 2\n{IMPORTS}{NRI}disable = false\n", DROP: f"version = 2\n{NRI}"},
        OLD,
        DROP,
    ),
    "other settings": ({C: f'version = 2\n{NRI}  socket_path = "/run/nri.sock"\n'}, OLD, C),
    "version 1": ({C: "[plugins.cri]\n"}, OLD, C),
    "in disabled_plugins": (
        {C: 'version = 3\ndisabled_plugins = ["io.containerd.nri.v1.nri", "x.y.z"]\n'},
        NEW,
        C,
    ),
    "enabled": ({C: f"version = 2\n{NRI}disable = false\n"}, OLD, ""),
    "enabled by default": ({C: "version = 3\n"}, NEW, ""),
    "merged drop-in": (
        {C: f"version = 3\n{IMPORTS}{NRI}disable = false\n", DROP: f"version = 3\n{NRI}"},
        NEW,
        "",
    ),
}


def encoded(texts: Texts) -> dict[str, bytes]:
    return {path: text.encode() for path, text in texts.items()}


@pytest.mark.parametrize(("texts", "version", "changed"), CONTAINERD.values(), ids=CONTAINERD)
def test_containerd(texts: Texts, version: Any, changed: str) -> None:
    """One file changes, containerd then has NRI, and undo restores each byte."""
    files = encoded(texts)
    after = configured("containerd", files, route="nri", version=version)
    assert [path for path in after if after[path] != files.get(path)] == [changed][: bool(changed)]
    found = containerd_config.read(Tree(after), C, version)
    assert found.nri.is_enabled
    assert "nvidia" not in found.configuration.runtimes
    if "x.y.z" in str(texts):
        assert found.disabled == ("x.y.z",)


@pytest.mark.parametrize("name", [one for one, (_, _, path) in CONTAINERD.items() if path])
def test_undo_of_an_edited_file(name: str) -> None:
    """gpuhook's lines are removed, and those that they replaced are restored."""
    texts, version, _ = CONTAINERD[name]
    files = encoded(texts)
    assert undone("containerd", files, route="nri", version=version) == files


def test_containerd_without_nri() -> None:
    with refused("GH2713"):
        configured("containerd", {C: b"version = 2\n"}, route="nri", version=(1, 6, 20))


def test_containerd_without_cri() -> None:
    files = {C: b'version = 2\ndisabled_plugins = ["cri"]\n'}
    with refused("GH2020"):
        configured("containerd", files, route="nri", version=OLD)


CRIO: dict[str, tuple[Texts, Any, str]] = {
    "before 1.30": ({}, (1, 29, 1), f"{D}/99-gpuhook.conf"),
    "disabled": (
        {f"{D}/10-nri.conf": "[crio.nri]\nenable_nri = false\n"},
        (1, 34, 1),
        f"{D}/99-gpuhook.conf",
    ),
    "disabled in a later file": (
        {f"{D}/99-nri.conf": "[crio.nri]\nenable_nri = false\n"},
        (1, 34, 1),
        f"{D}/zz-gpuhook.conf",
    ),
    "enabled by default": ({}, (1, 34, 1), ""),
    "enabled": ({f"{D}/10-nri.conf": "[crio.nri]\nenable_nri = true\n"}, (1, 29, 1), ""),
}


@pytest.mark.parametrize(("texts", "version", "changed"), CRIO.values(), ids=CRIO)
def test_crio(texts: Texts, version: Any, changed: str) -> None:
    files = encoded(texts)
    after = configured("crio", files, route="nri", version=version)
    assert [path for path in after if after[path] != files.get(path)] == [changed][: bool(changed)]
    assert crio_config.read(Tree(after)).nri(version).is_enabled
    assert undone("crio", files, route="nri", version=version) == files


def test_crio_without_nri() -> None:
    with refused("GH2713"):
        configured("crio", {}, route="nri", version=(1, 25, 0))


def test_crio_that_a_last_file_overrides() -> None:
    files = {f"{D}/zzz.conf": b"[crio.nri]\nenable_nri = false\n"}
    with refused("GH2052"):
        configured("crio", files, route="nri", version=(1, 34, 1))


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_other_engines_have_no_such_route(engine: str) -> None:
    words = ["configure", engine, "--route", "nri", "--dry-run"]
    done = CliRunner().invoke(main, words, prog_name="gpuhook")
    assert done.exit_code == 2
    assert "'nri' is not one of" in done.output
