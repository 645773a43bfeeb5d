# SPDX-License-Identifier: Apache-2.0
"""Engines that read the version of their runtime find runc's in what gpuhook-runtime prints."""

from __future__ import annotations

import json

import pytest

from tests.engines.docker_engine import dockerd
from tests.engines.engine_node import EngineNode

RUNTIME = "/usr/bin/gpuhook-runtime"
COMPONENTS = "{{range .Server.Components}}{{.Name}} {{.Version}} {{.Details.GitCommit}}\n{{end}}"


def docker_versions(node: EngineNode, runtime: str) -> tuple[str, str]:
    """Return what dockerd has of its default runtime: the commit, and version with commit."""
    with dockerd(node):
        commit = node.check("docker", "info", "--format", "{{.RuncCommit.ID}}").strip()
        lines = node.check("docker", "version", "--format", COMPONENTS).splitlines()
    (found,) = [line.partition(" ")[2] for line in lines if line.startswith(f"{runtime} ")]
    return commit, found


def test_docker_shows_the_version_of_runc(node: EngineNode) -> None:
    """`docker info` and `docker version` print the same for gpuhook-runtime as for runc."""
    plain = docker_versions(node, "runc")
    assert plain[1].startswith(node.version("runc", "--version"))
    # Without a record of a former test's runtime, which the wrapper has until the next create.
    node.check("rm", "-f", "/run/gpuhook/low-level-runtime")
    node.check("gpuhook", "configure", "docker", "--set-as-default")
    try:
        assert docker_versions(node, "nvidia") == plain
    finally:
        node.check("gpuhook", "configure", "undo", "docker")


def test_podman_shows_both_versions(node: EngineNode) -> None:
    """`podman info` has all that the runtime prints."""
    info = node.check("podman", "--runtime", RUNTIME, "info", "--format", "json")
    runtime = json.loads(info)["host"]["ociRuntime"]
    assert runtime["path"] == RUNTIME
    printed = node.check(RUNTIME, "--version")
    assert runtime["version"] == printed.strip()
    version = node.check("gpuhook", "--version").split()[-1]
    assert printed.endswith(f"\ngpuhook: {version}\n")
    low = node.check("cat", "/run/gpuhook/low-level-runtime").strip()
    assert printed.startswith(node.check(low, "--version"))


@pytest.mark.releases("forky")
def test_containerd_2_finds_the_features_of_runc(node: EngineNode) -> None:
    """containerd 2 does not parse a version: it runs `features`, whose annotations have it."""
    with node.daemon(["containerd"], lambda: node.run("ctr", "version").rc == 0):
        plain, wrapped = (
            json.loads(node.check("ctr", "plugins", "inspect-runtime", "--runc-binary", program))
            for program in ("runc", RUNTIME)
        )
    assert plain["Features"]["annotations"]["org.opencontainers.runc.version"]
    assert wrapped["Features"] == plain["Features"]
