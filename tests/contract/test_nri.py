# SPDX-License-Identifier: Apache-2.0
"""`gpuhook nri run` with the runtime's end of the socket: what each container gets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.installation import CONTROL, KIND, Installation
from tests.nri.fake_runtime import FakeRuntime, StatusError, container, pod
from tests.nri.nri_plugin import NriPlugin, nri_plugin

NODE = ("containerd", "1.7.24~ds1")  # the runtime's name and version


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    """Yield a runtime that listens."""
    made = FakeRuntime(tmp_path / "nri/nri.sock")
    yield made
    made.close()


@pytest.fixture
def node(node8: Installation, tmp_path: Path) -> Installation:
    """Return an installation on which pods of the namespace `default` may request devices."""
    return node8.apart(tmp_path / "apart", nri={"namespaces": ["default"]})


@pytest.fixture
def plugin(node: Installation, runtime: FakeRuntime) -> Iterator[NriPlugin]:
    """Yield a plugin that connects to it."""
    with nri_plugin(node, runtime.path) as made:
        yield made


def asking(value: str, **more: Any) -> Any:
    """Return a container whose variable requests devices."""
    return container([f"NVIDIA_VISIBLE_DEVICES={value}"], **more)


def variables(adjust: Any) -> dict[str, str]:
    return {one.key: one.value for one in adjust.env}


def test_expanded(node: Installation, runtime: FakeRuntime, plugin: NriPlugin) -> None:
    """containerd 1.7 gets each device, mount and hook of the grant."""
    link = runtime.accept()
    assert link.start(*NODE) == 8
    adjust = link.create(pod(), asking("2")).adjust
    paths = {device.path for device in adjust.linux.devices}
    assert paths >= {*CONTROL, node.device(2)}
    assert node.device(1) not in paths
    assert variables(adjust)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert (
        any(mount.destination.endswith("libcuda.so.1") for mount in adjust.mounts) or adjust.mounts
    )
    (hook,) = adjust.hooks.create_container
    assert list(hook.args[:2]) == ["gpuhook-hook", "apply"]
    assert not adjust.CDI_devices
    assert plugin.wait_for("injected")["devices"] == [f"{KIND}=2"]


def test_by_cdi(runtime: FakeRuntime, plugin: NriPlugin) -> None:
    """containerd 2.1 applies the specs itself."""
    link = runtime.accept()
    link.start("containerd", "v2.1.4")
    adjust = link.create(pod(), asking("2")).adjust
    assert [one.name for one in adjust.CDI_devices] == [f"{KIND}=2"]
    assert variables(adjust) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert {field.name for field, _ in adjust.ListFields()} == {"env", "CDI_devices"}
    assert plugin.wait_for("injected")["mode"] == "cdi"


def test_no_request(runtime: FakeRuntime, plugin: NriPlugin) -> None:
    """A container without a request gets an empty answer, and no line in the log."""
    link = runtime.accept()
    link.start(*NODE)
    assert link.create(pod(), container()).ByteSize() == 0
    assert plugin.lines("unchanged") == []


def test_unknown_device(runtime: FakeRuntime, plugin: NriPlugin) -> None:
    """A container whose device does not exist does not start, with the reason."""
    link = runtime.accept()
    link.start(*NODE)
    with pytest.raises(StatusError, match="GH1102"):
        link.create(pod(), asking("77"))
    assert plugin.wait_for("refused")["code"] == "GH1102"


@pytest.mark.parametrize("mode", [("containerd", "1.7.24~ds1"), ("containerd", "v2.1.4")], ids=str)
def test_figures(
    mode: tuple[str, str],
    runtime: FakeRuntime,
    plugin: NriPlugin,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1,000 creates with and without a request; the figures are printed, and none is asserted."""
    link = runtime.accept()
    link.start(*mode)
    figures = {}
    for title, one in (("none", container()), ("one GPU", asking("2"))):
        seconds = []
        for index in range(1000):
            one.id = f"{title[0]}{index}"
            began = time.perf_counter()
            answer = link.create(pod(), one)
            seconds.append(time.perf_counter() - began)
        assert answer.HasField("adjust") == (title != "none")
        ordered = sorted(seconds)
        figures[title] = [round(ordered[at] * 1e3, 3) for at in (500, 990)]
    with capsys.disabled():
        print(f"{mode}: ms p50, p99 {figures}; {plugin.resident // 1024} MiB resident")
