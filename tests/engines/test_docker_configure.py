# SPDX-License-Identifier: Apache-2.0
"""`gpuhook configure docker`, restarts of dockerd, and undo."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.contract.installation import ALL_CONTROL
from tests.engines.docker_engine import (
    DAEMON_JSON,
    HOOK,
    LOW_LEVEL,
    WRAPPER,
    Docker,
    assert_gpus,
    configured,
    daemon_json,
    dockerd,
)
from tests.engines.engine_node import EngineNode, low_level_runtime
from tests.waiting import eventually

# With a tab, an escape that JSON libraries change, and no line break at the end.
ODD = '{ "debug":false,\n\t"labels": ["\\u0061=b"],  "runtimes":{} }'
NEWER = pytest.mark.releases("trixie", "forky")  # Docker 20.10 has no CDI, and refuses the texts
CASES = [
    (None, ()),
    (ODD, ()),
    (ODD, ("--set-as-default",)),
    pytest.param("", (), marks=NEWER),
    pytest.param("\ufeff{}\n", (), marks=NEWER),
]
RUNTIMES = '{"runtimes": {"crun": {"path": "/usr/bin/crun"}}}\n'


@pytest.mark.parametrize("low_level", LOW_LEVEL)
def test_containers_survive_dockerd(
    node: EngineNode, docker_image: str, low_level: str, covers: Callable[..., None]
) -> None:
    """With live-restore, a container keeps its GPU while dockerd is restarted, and is found."""
    del docker_image
    docker = Docker(node, low_level)
    words = (*WRAPPER, "NVIDIA_VISIBLE_DEVICES=2")
    with (
        low_level_runtime(node, low_level),
        configured(node, text='{"live-restore": true}\n'),
    ):
        with dockerd(node):
            started = docker.start("--restart=always", *words)
            before = docker.pid(started)
        assert docker.listed()[started]["gpus"] == [docker.uuid(2)]
        node.check("gpuhook", "attach", started, "--device", "0")
        with dockerd(node):
            assert docker.pid(started) == before
            assert_gpus(docker, docker.executed(started), 0, 2)
            assert set(docker.listed()[started]["gpus"]) == {docker.uuid(0), docker.uuid(2)}
            node.check("gpuhook", "detach", started, "--device", "0")
            node.check("gpuhook", "inspect", "--exit-code", started)
            node.check("kill", "-KILL", str(before))
            eventually(lambda: docker.pid(started) not in {0, before}, "the next process")
            assert_gpus(docker, docker.executed(started), 2)
            node.check("docker", "rm", "--force", started)
            assert started not in docker.listed()
            covers("Docker", docker.version, "live-restore", docker.low_level_version)


def test_restart_policy_after_dockerd(node: EngineNode, docker_image: str) -> None:
    """Without live-restore, Docker starts the container again with its GPU."""
    del docker_image
    docker = Docker(node)
    with configured(node, "--set-as-default", text="{}\n"):
        with dockerd(node):
            started = docker.start("--restart=always", "--env", "NVIDIA_VISIBLE_DEVICES=2")
        assert started not in docker.listed()
        with dockerd(node):
            eventually(lambda: docker.pid(started) != 0, "the container's process")
            assert_gpus(docker, docker.executed(started), 2)
            node.check("docker", "rm", "--force", started)


@pytest.mark.parametrize(("text", "words"), CASES)
def test_configure_and_undo(
    node: EngineNode, docker_image: str, text: str | None, words: tuple[str, ...]
) -> None:
    """dockerd reads what configure wrote; undo restores each byte, and dockerd starts with it."""
    del docker_image
    docker = Docker(node)
    runtime = () if words else WRAPPER[:2]
    with configured(node, *words, text=text):
        written = json.loads(node.path(DAEMON_JSON).read_text(encoding="utf-8-sig"))
        assert written["runtimes"]["nvidia"] == {"path": "/usr/bin/gpuhook-runtime"}
        assert "already configured" in node.run("gpuhook", "configure", "docker", *words).stderr
        with dockerd(node):
            seen = docker.view(*runtime, "--env", "NVIDIA_VISIBLE_DEVICES=2")
            assert_gpus(docker, seen, 2)
            assert not docker.view().gpus()
    with daemon_json(node, text), dockerd(node):
        refused = docker.run(*WRAPPER[:2])
        assert refused.rc != 0
        assert "nvidia" in refused.stderr


def test_restart_without_systemd(node: EngineNode, docker_image: str) -> None:
    """`--restart` sends SIGHUP if that is enough, and else says how dockerd is restarted.

    Docker 26 reads features.cdi only when it starts. SIGHUP removes no key.
    """
    del docker_image
    docker = Docker(node)
    has_cdi = node.release.suite == "trixie"
    text = '{"runtimes": {}}\n'
    with daemon_json(node, text), dockerd(node):
        done = node.run("gpuhook", "configure", "docker", "--restart")
        assert (done.rc, "GH2007" in done.stderr) == ((1, True) if has_cdi else (0, False))
        assert ("restart it the way it was started" in done.stderr) == has_cdi
        if not has_cdi:
            assert "sent SIGHUP to process" in done.stderr
            eventually(lambda: "nvidia" in _info(node, "{{json .Runtimes}}"), "the runtime")
            assert_gpus(docker, docker.view(*WRAPPER, "NVIDIA_VISIBLE_DEVICES=2"), 2)
            undone = node.run("gpuhook", "configure", "undo", "docker", "--restart")
            assert "sent SIGHUP to process" in undone.stderr
            eventually(lambda: "nvidia" not in _info(node, "{{json .Runtimes}}"), "no runtime")
            node.check("gpuhook", "configure", "docker", "--set-as-default", "--restart")
            eventually(lambda: "nvidia" in _info(node, "{{.DefaultRuntime}}"), "the default")
            refused = node.run("gpuhook", "configure", "undo", "docker", "--restart")
            assert "GH2007" in refused.stderr
            node.check("gpuhook", "configure", "undo", "docker")


def _info(node: EngineNode, form: str) -> str:
    return node.check("docker", "info", "--format", form)


def test_dry_run_reports_the_end_of_containers(node: EngineNode) -> None:
    """A restart stops containers, unless daemon.json has live-restore."""
    ends = "a restart of dockerd stops its containers"
    for text, is_reported in (("{}\n", True), ('{"live-restore": true}\n', False)):
        with daemon_json(node, text):
            done = node.run("gpuhook", "configure", "docker", "--route", "hook", "--dry-run")
            assert done.rc == 0, done
            assert (ends in done.stderr) == is_reported
            assert not node.path(HOOK).exists()


def test_runtime_of_another_program(node: EngineNode, docker_image: str) -> None:
    """Another program's runtime `nvidia` is kept; with --take-over, undo restores it."""
    del docker_image
    docker = Docker(node)
    text = '{"runtimes": {"nvidia": {"path": "/usr/bin/runc", "runtimeArgs": ["--debug"]}}}\n'
    with daemon_json(node, text):
        assert "GH2000" in node.run("gpuhook", "configure", "docker").stderr
    with configured(node, "--take-over", text=text), dockerd(node):
        assert_gpus(docker, docker.view(*WRAPPER, "NVIDIA_VISIBLE_DEVICES=2"), 2)
    with configured(node, "--runtime-name", "gpuhook", text=text), dockerd(node):
        seen = docker.view("--runtime", "gpuhook", "--env", "NVIDIA_VISIBLE_DEVICES=2")
        assert_gpus(docker, seen, 2)
        assert not docker.view(*WRAPPER, "NVIDIA_VISIBLE_DEVICES=2").gpus()


def test_user_without_root(node: EngineNode) -> None:
    """The system's Docker is root's; the user's rootless one is configured by name."""
    node.check("useradd", "--create-home", "someone")
    try:
        as_user = ("runuser", "--login", "someone", "--command")
        refused = node.run(*as_user, "gpuhook configure docker")
        assert refused.rc == 1
        assert "GH2014" in refused.stderr
        assert not node.path("/home/someone/.config").exists()
        file = node.path("/home/someone/.config/docker/daemon.json")
        for verb, exists in (("docker --user", True), ("undo docker", False)):
            node.check(*as_user, f"gpuhook configure {verb}")
            assert file.exists() == exists
        assert not node.path(DAEMON_JSON).exists()
    finally:
        node.check("userdel", "--remove", "someone")


@pytest.mark.parametrize("low_level", LOW_LEVEL)
def test_runtime_and_gpus(node: EngineNode, docker_image: str, low_level: str) -> None:
    """With both, the wrapper removes the hook: nothing is added twice."""
    del docker_image
    text = '{"runtimes": {"nvidia": {"path": "/usr/bin/gpuhook-runtime"}}}\n'
    with (
        low_level_runtime(node, low_level),
        configured(node, "--route", "hook", text=text),
        dockerd(node),
    ):
        docker = Docker(node, low_level)
        with docker.container(*WRAPPER[:2], "--gpus", "device=4") as name:
            assert_gpus(docker, docker.executed(name), 4)
            assert docker.listed()[name]["route"] == "wrapper"


@pytest.mark.releases("bookworm")
def test_docker_without_cdi(node: EngineNode) -> None:
    refused = node.run("gpuhook", "configure", "docker", "--route", "cdi")
    assert refused.rc == 1
    assert "GH2045" in refused.stderr


@NEWER
@pytest.mark.parametrize("low_level", LOW_LEVEL)
def test_cdi(
    node: EngineNode, docker_image: str, low_level: str, covers: Callable[..., None]
) -> None:
    """`--device nvidia.com/gpu=...` gives all of the spec: dockerd cannot filter capabilities."""
    del docker_image
    with (
        low_level_runtime(node, low_level),
        configured(node, "--route", "cdi", text=RUNTIMES),
        dockerd(node),
    ):
        docker = Docker(node, low_level, ("--runtime", low_level))
        for value, indexes in (("2", (2,)), (docker.uuid(6), (6,)), ("all", tuple(range(8)))):
            seen = docker.view("--device", f"nvidia.com/gpu={value}")
            assert_gpus(docker, seen, *indexes, control=ALL_CONTROL)
        words = ("--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3")
        with docker.container(*words) as name:
            docker.node.check("docker", "restart", name)
            assert_gpus(docker, docker.executed(name), 1, 3, control=ALL_CONTROL)
        covers("Docker", docker.version, "--device nvidia.com/gpu", docker.low_level_version)
