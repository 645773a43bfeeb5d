# SPDX-License-Identifier: Apache-2.0
"""config-manager: the label of the node, the selected file, and the signal to the plugin."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpuhook.device_plugin.api_server.client import ApiServer
from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.config_manager import config_choice, manager_process
from gpuhook.device_plugin.config_manager.manager_options import ManagerOptions, options
from gpuhook.errors import GpuhookError
from tests.unit.api_stand_in import ApiStandIn, Asked, serving, status

LABEL = "nvidia.com/device-plugin.config"
# The variables of the GPU Operator's DaemonSet.
OPERATOR = {
    "ONESHOT": "true",
    "KUBECONFIG": "",
    "NODE_NAME": "node-1",
    "NODE_LABEL": LABEL,
    "DEFAULT_CONFIG": "",
    "SEND_SIGNAL": "false",
    "SIGNAL": "",
    "PROCESS_TO_SIGNAL": "",
}


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """Return a ConfigMap as the kubelet mounts it: files are links through ..data."""
    made = tmp_path / "available"
    publish(made, 1, {"default": "version: v1\n", "four": "version: v1\n# 4\n"})
    return made


def publish(place: Path, number: int, texts: Mapping[str, str]) -> None:
    """Publish another version of the ConfigMap, as the kubelet does."""
    data = place / f"..{number}"
    data.mkdir(parents=True)
    for name, text in texts.items():
        (data / name).write_text(text, encoding="utf-8")
        if not (place / name).is_symlink():
            (place / name).symlink_to(f"..data/{name}")
    (place / "..new").symlink_to(data.name)
    (place / "..new").rename(place / "..data")


def manager_options(place: Path, **more: str) -> ManagerOptions:
    """Return the operator's options, overridden by `more`."""
    mine = {
        "CONFIG_FILE_SRCDIR": str(place / "available"),
        "CONFIG_FILE_DST": str(place / "config/config.yaml"),
    }
    return options([], {**OPERATOR, **mine, **more})


def node(labels: Mapping[str, str], version: str = "1") -> dict[str, object]:
    metadata = {"name": "node-1", "labels": dict(labels), "resourceVersion": version}
    return {"kind": "Node", "metadata": metadata}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiStandIn]:
    (tmp_path / "secrets").mkdir()
    with serving(tmp_path / "secrets") as server:
        yield server


def linked_name(place: Path) -> str:
    """Return the name of the linked configuration."""
    return os.path.basename(os.readlink(place / "config/config.yaml"))


@pytest.mark.parametrize(
    ("label", "more", "expected"),
    [
        ("four", {}, "four"),
        ("four", {"DEFAULT_CONFIG": "default"}, "four"),
        (None, {"DEFAULT_CONFIG": "four"}, "four"),
        ("", {"DEFAULT_CONFIG": "four"}, "four"),
        (None, {"FALLBACK_STRATEGIES": "named,single,empty"}, "default"),
        (None, {"FALLBACK_STRATEGIES": "single,named"}, "default"),
        (None, {"FALLBACK_STRATEGIES": "empty"}, config_choice.EMPTY),
    ],
)
def test_label_default_and_fallback_select_the_configuration(
    tmp_path: Path, configs: Path, label: str | None, more: dict[str, str], expected: str
) -> None:
    manager = manager_options(tmp_path, **more)
    assert config_choice.choose(label, config_source.names(str(configs)), manager) == expected


def test_fallback_single_selects_the_only_configuration(tmp_path: Path) -> None:
    publish(tmp_path / "available", 1, {"mine": "version: v1\n"})
    manager = manager_options(tmp_path, FALLBACK_STRATEGIES="named,single")
    known = config_source.names(manager.config_file_srcdir)
    assert config_choice.choose(None, known, manager) == "mine"


@pytest.mark.parametrize(
    ("label", "more", "code"),
    [
        ("nine", {}, "GH2107"),
        ("nine", {"FALLBACK_STRATEGIES": "empty"}, "GH2107"),
        (None, {"DEFAULT_CONFIG": "nine"}, "GH2107"),
        (None, {}, "GH2109"),
        (None, {"FALLBACK_STRATEGIES": "single"}, "GH2109"),
    ],
)
def test_unknown_or_missing_name_is_a_fault(
    tmp_path: Path, configs: Path, label: str | None, more: dict[str, str], code: str
) -> None:
    with pytest.raises(GpuhookError) as caught:
        config_choice.choose(
            label, config_source.names(str(configs)), manager_options(tmp_path, **more)
        )
    assert caught.value.code == code


@pytest.mark.parametrize(
    "more",
    [
        {"NODE_NAME": ""},
        {"CONFIG_FILE_DST": ""},
        {"KUBECONFIG": "/root/.kube/config"},
        {"ONESHOT": "perhaps"},
        {"SIGNAL": "77"},
        {"SIGNAL": "SIGNONE"},
        {"SEND_SIGNAL": "true"},
        {"FALLBACK_STRATEGIES": "first"},
    ],
)
def test_invalid_variable_is_named(tmp_path: Path, more: dict[str, str]) -> None:
    with pytest.raises(GpuhookError) as caught:
        manager_options(tmp_path, **more)
    assert caught.value.code == "GH2108"
    name = "PROCESS_TO_SIGNAL" if "SEND_SIGNAL" in more else next(iter(more))
    assert name in caught.value.message


def test_options_take_precedence_over_variables(tmp_path: Path) -> None:
    mine = {"CONFIG_FILE_SRCDIR": "/a", "CONFIG_FILE_DST": "/b"}
    words = ["--node-name", "other", "--config-file-dst=/c", "--oneshot", "--signal=SIGUSR1"]
    found = options(words, {**OPERATOR, **mine, "ONESHOT": "false"})
    assert (found.node_name, found.config_file_dst, found.oneshot) == ("other", "/c", True)
    assert found.signal == signal.SIGUSR1
    with pytest.raises(GpuhookError):
        options(["--nodename=x"], {**OPERATOR, **mine})


def test_link_replaces_the_destination_and_not_its_target(tmp_path: Path, configs: Path) -> None:
    manager = manager_options(tmp_path)
    assert config_choice.link(manager, "four")
    assert not config_choice.link(manager, "four")
    assert config_choice.link(manager, config_choice.EMPTY)
    assert not config_choice.link(manager, config_choice.EMPTY)
    assert (configs / "four").read_text(encoding="utf-8") == "version: v1\n# 4\n"
    assert (tmp_path / "config/config.yaml").read_text(encoding="utf-8") == "version: v1\n"
    assert config_choice.link(manager, "default")
    assert os.listdir(tmp_path / "config") == ["config.yaml"]


def test_leftover_temporary_link_is_replaced(tmp_path: Path, configs: Path) -> None:
    """A killed process can leave a link to a configuration; its target must not be written."""
    manager = manager_options(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml.new").symlink_to(configs / "four")
    assert config_choice.link(manager, config_choice.EMPTY)
    assert (configs / "four").read_text(encoding="utf-8") == "version: v1\n# 4\n"
    made = tmp_path / "config/config.yaml"
    assert not made.is_symlink()
    assert made.read_text(encoding="utf-8") == "version: v1\n"


def test_oneshot_selects_the_configuration_and_exits(
    tmp_path: Path, configs: Path, api: ApiStandIn
) -> None:
    """The init container of the GPU Operator uses it."""
    api.otherwise = lambda asked: asked.reply(node({LABEL: "four"}))
    manager_process.run(manager_options(tmp_path), api.access)
    assert linked_name(tmp_path) == "four"
    assert [asked.path for asked in api.asked] == ["/api/v1/nodes/node-1"]


def test_oneshot_without_permission_fails(tmp_path: Path, configs: Path, api: ApiStandIn) -> None:
    api.otherwise = status(403, "no")
    with pytest.raises(GpuhookError) as caught:
        manager_process.run(manager_options(tmp_path), api.access)
    assert caught.value.code == "GH1863"
    assert not (tmp_path / "config/config.yaml").exists()


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Start a process with the name of the plugin that writes a line at each SIGHUP."""
    name, log = f"nvidia-device-plugin-{os.getpid()}", tmp_path / "signals"
    script = f"trap 'echo hup >> {log}' HUP; echo up >> {log}; while :; do sleep 0.02; done"
    process = subprocess.Popen([name, "-c", script], executable="/bin/sh")
    try:
        while not log.exists():
            assert process.poll() is None
        yield name, log
    finally:
        process.kill()
        process.wait()


def follower(tmp_path: Path, api: ApiStandIn, name: str) -> manager_process._Follower:
    more = {"ONESHOT": "false", "SEND_SIGNAL": "true", "SIGNAL": "1", "PROCESS_TO_SIGNAL": name}
    return manager_process._Follower(manager_options(tmp_path, **more), ApiServer(api.access))


def signal_count(log: Path) -> int:
    return log.read_text(encoding="utf-8").count("hup")


async def until(what: object) -> None:
    """Wait until `what()` is true, at most for the time limit of the test."""
    assert callable(what)
    while not what():
        await asyncio.sleep(0.01)


def test_new_label_and_new_config_map_signal_the_plugin(
    tmp_path: Path,
    configs: Path,
    api: ApiStandIn,
    plugin: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another label and another edition of the ConfigMap apply, and the plugin gets a signal."""
    monkeypatch.setattr(manager_process, "LOOK", 0.02)
    name, log = plugin
    news: list[dict[str, object]] = []

    def watched(asked: Asked) -> None:
        asked.begin()
        while True:
            if news:
                asked.line({"type": "MODIFIED", "object": news.pop(0)})
            elif not is_plugin_running(log):
                return
            time.sleep(0.005)

    api.answers = [lambda asked: asked.reply(node({LABEL: "default"}))]
    api.otherwise = watched
    found = follower(tmp_path, api, name)

    async def steps() -> None:
        task = asyncio.create_task(found.run())
        await until(lambda: signal_count(log) == 1)
        assert linked_name(tmp_path) == "default"
        news.append(node({LABEL: "four"}, "2"))
        await until(lambda: signal_count(log) == 2)
        assert linked_name(tmp_path) == "four"
        news.append(node({LABEL: "nine"}, "3"))  # unknown: the selection remains
        news.append(node({LABEL: "four"}, "4"))
        publish(configs, 2, {"default": "version: v1\n", "four": "version: v1\n# 5\n"})
        await until(lambda: signal_count(log) == 3)
        assert linked_name(tmp_path) == "four"
        found._stop.set()
        await task

    asyncio.run(steps())


def test_change_during_an_unknown_label_is_signalled_with_the_next_label(
    tmp_path: Path, configs: Path, api: ApiStandIn, plugin: tuple[str, Path]
) -> None:
    name, log = plugin
    found = follower(tmp_path, api, name)
    found._changed("default")
    deadline = time.monotonic() + 60
    while signal_count(log) == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    found._changed("nine")
    publish(configs, 2, {"default": "version: v1\n# 5\n"})
    found._update()  # no configuration can be selected
    found._changed("default")
    while signal_count(log) == 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert signal_count(log) == 2


def is_plugin_running(log: Path) -> bool:
    return log.exists()


def test_follower_without_permission_ends(tmp_path: Path, configs: Path, api: ApiStandIn) -> None:
    """A sidecar without permission exits."""
    api.otherwise = status(403, "no")
    with pytest.raises(GpuhookError) as caught:
        asyncio.run(follower(tmp_path, api, "nobody").run())
    assert caught.value.code == "GH1863"


def test_refused_signal_is_reported(
    tmp_path: Path,
    configs: Path,
    api: ApiStandIn,
    plugin: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The configuration is selected; the process reads it at its next start."""

    def refused(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    api.otherwise = lambda asked: asked.reply(node({LABEL: "four"}))
    more = {"SEND_SIGNAL": "true", "PROCESS_TO_SIGNAL": plugin[0]}
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", refused)
        manager_process.run(manager_options(tmp_path, **more), api.access)
    assert linked_name(tmp_path) == "four"
    output = capfd.readouterr()
    assert plugin[0] in output.out + output.err
    assert "permission denied to signal" in output.out + output.err


def test_processes_are_found_by_their_first_argument(tmp_path: Path) -> None:
    for pid, words in {
        "1": b"nvidia-device-plugin\0--x\0",
        "22": b"/usr/bin/nvidia-device-plugin\0",
        "3": b"sh\0nvidia-device-plugin\0",
        "4": b"",
        "self": b"nvidia-device-plugin\0",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(words)
    (tmp_path / "5").mkdir()  # the process has exited
    assert manager_process.processes("nvidia-device-plugin", str(tmp_path)) == [1, 22]
