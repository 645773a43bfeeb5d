# SPDX-License-Identifier: Apache-2.0
"""config-manager: the label of the node, the file that the plugin reads, and the signal."""

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
# What the GPU Operator's DaemonSet says.
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
    edition(made, 1, {"default": "version: v1\n", "four": "version: v1\n# 4\n"})
    return made


def edition(place: Path, number: int, texts: Mapping[str, str]) -> None:
    """Mount another edition of the ConfigMap, as the kubelet does."""
    data = place / f"..{number}"
    data.mkdir(parents=True)
    for name, text in texts.items():
        (data / name).write_text(text, encoding="utf-8")
        if not (place / name).is_symlink():
            (place / name).symlink_to(f"..data/{name}")
    (place / "..new").symlink_to(data.name)
    (place / "..new").rename(place / "..data")


def said(place: Path, **more: str) -> ManagerOptions:
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


def lead(place: Path) -> str:
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
def test_the_configuration_of_a_node(
    tmp_path: Path, configs: Path, label: str | None, more: dict[str, str], expected: str
) -> None:
    chosen = said(tmp_path, **more)
    assert config_choice.choose(label, config_source.names(str(configs)), chosen) == expected


def test_the_only_configuration(tmp_path: Path) -> None:
    edition(tmp_path / "available", 1, {"mine": "version: v1\n"})
    chosen = said(tmp_path, FALLBACK_STRATEGIES="named,single")
    known = config_source.names(chosen.config_file_srcdir)
    assert config_choice.choose(None, known, chosen) == "mine"


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
def test_nothing_is_guessed(
    tmp_path: Path, configs: Path, label: str | None, more: dict[str, str], code: str
) -> None:
    with pytest.raises(GpuhookError) as caught:
        config_choice.choose(label, config_source.names(str(configs)), said(tmp_path, **more))
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
def test_wrong_variables_are_named(tmp_path: Path, more: dict[str, str]) -> None:
    with pytest.raises(GpuhookError) as caught:
        said(tmp_path, **more)
    assert caught.value.code == "GH2108"
    name = "PROCESS_TO_SIGNAL" if "SEND_SIGNAL" in more else next(iter(more))
    assert name in caught.value.message


def test_options_count_more_than_variables(tmp_path: Path) -> None:
    mine = {"CONFIG_FILE_SRCDIR": "/a", "CONFIG_FILE_DST": "/b"}
    words = ["--node-name", "other", "--config-file-dst=/c", "--oneshot", "--signal=SIGUSR1"]
    found = options(words, {**OPERATOR, **mine, "ONESHOT": "false"})
    assert (found.node_name, found.config_file_dst, found.oneshot) == ("other", "/c", True)
    assert found.signal == signal.SIGUSR1
    with pytest.raises(GpuhookError):
        options(["--nodename=x"], {**OPERATOR, **mine})


def test_the_destination_is_replaced_and_what_it_led_to_stays(
    tmp_path: Path, configs: Path
) -> None:
    chosen = said(tmp_path)
    assert config_choice.link(chosen, "four")
    assert not config_choice.link(chosen, "four")
    assert config_choice.link(chosen, config_choice.EMPTY)
    assert not config_choice.link(chosen, config_choice.EMPTY)
    assert (configs / "four").read_text(encoding="utf-8") == "version: v1\n# 4\n"
    assert (tmp_path / "config/config.yaml").read_text(encoding="utf-8") == "version: v1\n"
    assert config_choice.link(chosen, "default")
    assert os.listdir(tmp_path / "config") == ["config.yaml"]


def test_what_a_killed_run_left_is_not_written_through(tmp_path: Path, configs: Path) -> None:
    """It is a link to a configuration."""
    chosen = said(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml.new").symlink_to(configs / "four")
    assert config_choice.link(chosen, config_choice.EMPTY)
    assert (configs / "four").read_text(encoding="utf-8") == "version: v1\n# 4\n"
    made = tmp_path / "config/config.yaml"
    assert not made.is_symlink()
    assert made.read_text(encoding="utf-8") == "version: v1\n"


def test_once(tmp_path: Path, configs: Path, api: ApiStandIn) -> None:
    """The init container reads the node, selects, and exits."""
    api.otherwise = lambda asked: asked.reply(node({LABEL: "four"}))
    manager_process.run(said(tmp_path), api.access)
    assert lead(tmp_path) == "four"
    assert [asked.path for asked in api.asked] == ["/api/v1/nodes/node-1"]


def test_once_without_a_permission(tmp_path: Path, configs: Path, api: ApiStandIn) -> None:
    api.otherwise = status(403, "no")
    with pytest.raises(GpuhookError) as caught:
        manager_process.run(said(tmp_path), api.access)
    assert caught.value.code == "GH1863"
    assert not (tmp_path / "config/config.yaml").exists()


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Return a process with the name of the plugin that writes a line at each SIGHUP."""
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


def following(tmp_path: Path, api: ApiStandIn, name: str) -> manager_process._Follower:
    more = {"ONESHOT": "false", "SEND_SIGNAL": "true", "SIGNAL": "1", "PROCESS_TO_SIGNAL": name}
    return manager_process._Follower(said(tmp_path, **more), ApiServer(api.access))


def signals(log: Path) -> int:
    return log.read_text(encoding="utf-8").count("hup")


async def until(what: object) -> None:
    """Wait until `what()` is true, at most for the time limit of the test."""
    assert callable(what)
    while not what():
        await asyncio.sleep(0.01)


def test_following(
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
            elif not process_is_there(log):
                return
            time.sleep(0.005)

    api.answers = [lambda asked: asked.reply(node({LABEL: "default"}))]
    api.otherwise = watched
    found = following(tmp_path, api, name)

    async def steps() -> None:
        task = asyncio.create_task(found.run())
        await until(lambda: signals(log) == 1)
        assert lead(tmp_path) == "default"
        news.append(node({LABEL: "four"}, "2"))
        await until(lambda: signals(log) == 2)
        assert lead(tmp_path) == "four"
        news.append(node({LABEL: "nine"}, "3"))  # there is none: what is chosen stays
        news.append(node({LABEL: "four"}, "4"))
        edition(configs, 2, {"default": "version: v1\n", "four": "version: v1\n# 5\n"})
        await until(lambda: signals(log) == 3)
        assert lead(tmp_path) == "four"
        found._stop.set()
        await task

    asyncio.run(steps())


def test_an_edition_that_came_with_a_label_of_nothing_is_told_with_the_next(
    tmp_path: Path, configs: Path, api: ApiStandIn, plugin: tuple[str, Path]
) -> None:
    name, log = plugin
    found = following(tmp_path, api, name)
    found._changed("default")
    deadline = time.monotonic() + 60
    while signals(log) == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    found._changed("nine")
    edition(configs, 2, {"default": "version: v1\n# 5\n"})
    found._update()  # nothing can be chosen
    found._changed("default")
    while signals(log) == 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert signals(log) == 2


def process_is_there(log: Path) -> bool:
    return log.exists()


def test_following_ends_where_the_label_may_not_be_read(
    tmp_path: Path, configs: Path, api: ApiStandIn
) -> None:
    """A sidecar without permission exits."""
    api.otherwise = status(403, "no")
    with pytest.raises(GpuhookError) as caught:
        asyncio.run(following(tmp_path, api, "nobody").run())
    assert caught.value.code == "GH1863"


def test_a_process_that_may_not_be_told_is_named(
    tmp_path: Path,
    configs: Path,
    api: ApiStandIn,
    plugin: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The configuration is selected nevertheless: the process reads it at its next start."""

    def refused(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    api.otherwise = lambda asked: asked.reply(node({LABEL: "four"}))
    more = {"SEND_SIGNAL": "true", "PROCESS_TO_SIGNAL": plugin[0]}
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", refused)
        manager_process.run(said(tmp_path, **more), api.access)
    assert lead(tmp_path) == "four"
    told = capfd.readouterr()
    assert plugin[0] in told.out + told.err
    assert "permission denied to signal" in told.out + told.err


def test_processes_are_known_by_their_first_word(tmp_path: Path) -> None:
    for pid, words in {
        "1": b"nvidia-device-plugin\0--x\0",
        "22": b"/usr/bin/nvidia-device-plugin\0",
        "3": b"sh\0nvidia-device-plugin\0",
        "4": b"",
        "self": b"nvidia-device-plugin\0",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(words)
    (tmp_path / "5").mkdir()  # it has ended meanwhile
    assert manager_process.processes("nvidia-device-plugin", str(tmp_path)) == [1, 22]
