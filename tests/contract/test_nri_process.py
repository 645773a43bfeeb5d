# SPDX-License-Identifier: Apache-2.0
"""The process of the NRI plugin: start, restarts of the runtime, signals, errors, metrics."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.contract.installation import Installation
from tests.nri.fake_runtime import RUNTIME, FakePlugin, FakeRuntime, container, pod
from tests.nri.nri_plugin import nri_plugin
from tests.waiting import eventually

NODE = ("containerd", "1.7.24~ds1")


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


def asking() -> object:
    return container(["NVIDIA_VISIBLE_DEVICES=0"])


def run_alone(node: Installation, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a plugin that is expected to end by itself."""
    command = [str(node.bindir / "gpuhook"), "nri", "run", *options]
    return subprocess.run(
        command,
        env={**os.environ, **node.env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_registration(node: Installation, runtime: FakeRuntime) -> None:
    """Name and index of the options; Configure may come before the answer to the registration."""
    with nri_plugin(node, runtime.path, "--name", "gpus", "--index", "7") as plugin:
        link = runtime.accept()
        found = link.accept_registration(answer=False)
        assert (found.plugin_name, found.plugin_idx) == ("gpus", "07")
        assert link.configure(*NODE) == 8
        link.send(RUNTIME, 1, 2, b"")
        link.synchronize()
        plugin.wait_for("ready")
        assert link.create(pod(), asking()).HasField("adjust")


def test_readiness(node: Installation, runtime: FakeRuntime, tmp_path: Path) -> None:
    """systemd learns that the service is ready after Synchronize, and not before."""
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(place))
        notified.settimeout(60)
        with nri_plugin(node, runtime.path, env={"NOTIFY_SOCKET": str(place)}) as plugin:
            link = runtime.accept()
            link.accept_registration()
            link.configure(*NODE)
            link.synchronize(more=True)
            notified.setblocking(False)
            with pytest.raises(BlockingIOError):
                notified.recv(100)
            notified.settimeout(60)
            link.synchronize()
            assert notified.recv(100) == b"READY=1"
            plugin.process.send_signal(signal.SIGTERM)
            assert notified.recv(100) == b"STOPPING=1"
            assert plugin.process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals(number: signal.Signals, node: Installation, runtime: FakeRuntime) -> None:
    """A signal closes the connection and ends the process with status 0."""
    with nri_plugin(node, runtime.path) as plugin:
        link = runtime.accept()
        link.start(*NODE)
        plugin.process.send_signal(number)
        with pytest.raises(EOFError):
            link.frame()
        assert plugin.process.wait(60) == 0
        assert plugin.lines("stopped")


def test_signal_during_creates(node: Installation, runtime: FakeRuntime) -> None:
    """A container that the runtime has asked about gets its answer before the process ends."""
    with nri_plugin(node, runtime.path) as plugin:
        link = runtime.accept()
        link.start(*NODE)
        plugin.process.send_signal(signal.SIGSTOP)
        request = link_create(link)
        plugin.process.send_signal(signal.SIGTERM)
        plugin.process.send_signal(signal.SIGCONT)
        assert link.answer(request)
        assert plugin.process.wait(60) == 0


def link_create(link: FakePlugin) -> int:
    """Ask about a container, and return the stream of the call."""
    from tests.nri import nri_api

    payload = nri_api.new("CreateContainerRequest", pod=pod(), container=asking())
    return link.begin("CreateContainer", payload.SerializeToString())


def test_runtime_restarts(node: Installation, runtime: FakeRuntime) -> None:
    """The plugin registers again with a runtime that restarts, also if the socket is gone."""
    with nri_plugin(node, runtime.path) as plugin:
        for number in range(1, 4):
            link = runtime.accept()
            link.start(*NODE)
            plugin.wait_for("ready", number)
            assert link.create(pod(), asking()).HasField("adjust")
            runtime.close()
            plugin.wait_for("disconnected", number)
            eventually(lambda: "GH2700" in plugin.text())
            runtime = FakeRuntime(runtime.path)
        runtime.accept().start("cri-o", "1.34.1")
        plugin.wait_for("ready", 4)
        assert [line["mode"] for line in plugin.lines("configured")][-1] == "cdi"
        runtime.close()


def test_runtime_drops_the_plugin(node: Installation, runtime: FakeRuntime) -> None:
    """A runtime that closes the connection in the middle of a message gets a new one."""
    with nri_plugin(node, runtime.path) as plugin:
        link = runtime.accept()
        link.start(*NODE)
        link.link.sendall(b"\0\0\0\1\0\0\0\x40\0\0")
        link.close()
        runtime.accept().start(*NODE)
        plugin.wait_for("ready", 2)


def test_shutdown(node: Installation, runtime: FakeRuntime) -> None:
    """The plugin answers Shutdown, and connects again."""
    with nri_plugin(node, runtime.path) as plugin:
        link = runtime.accept()
        link.start(*NODE)
        assert link.call("Shutdown") == b""
        with pytest.raises(EOFError):
            link.frame()
        runtime.accept().start(*NODE)
        plugin.wait_for("ready", 2)


def test_refused_registration(node: Installation, runtime: FakeRuntime) -> None:
    """A refusal of the runtime is reported with its text, and the plugin tries again."""
    from tests.nri import nri_api

    with nri_plugin(node, runtime.path) as plugin:
        link = runtime.accept()
        link.message(RUNTIME)
        status = {"code": 2, "message": "invalid plugin index"}
        link.send(RUNTIME, 1, 2, nri_api.new("Response", status=status).SerializeToString())
        runtime.accept().start(*NODE)
        assert "invalid plugin index" in plugin.wait_for("disconnected")["reason"]


def test_silent_runtime(node: Installation, runtime: FakeRuntime) -> None:
    """A runtime that does not answer the registration is left after five seconds."""
    with nri_plugin(node, runtime.path) as plugin:
        silent = runtime.accept()
        silent.message(RUNTIME)
        with pytest.raises(EOFError):
            silent.frame()
        runtime.accept().start(*NODE)
        plugin.wait_for("ready")
        assert "does not answer" in plugin.lines("disconnected")[0]["reason"]


def test_launched_plugin(node: Installation, tmp_path: Path) -> None:
    """A runtime may start the plugin itself: its socket is a descriptor, and few variables."""
    ours, theirs = socket.socketpair()
    env = {
        "NRI_PLUGIN_NAME": "gpuhook",
        "NRI_PLUGIN_IDX": "10",
        "NRI_PLUGIN_SOCKET": str(theirs.fileno()),  # 3, from a runtime
        **node.env,
    }
    process = subprocess.Popen(
        [str(node.bindir / "gpuhook"), "nri", "run"],
        env=env,
        pass_fds=[theirs.fileno()],
        cwd=tmp_path,
    )
    theirs.close()
    link = FakePlugin(ours)
    try:
        assert link.start(*NODE) == 8
        assert (link.registered.plugin_name, link.registered.plugin_idx) == ("gpuhook", "10")
        assert link.create(pod(), asking()).HasField("adjust")
        link.close()
        assert process.wait(60) == 0
    finally:
        link.close()
        process.kill()
        process.wait()


def test_second_instance(node: Installation, runtime: FakeRuntime) -> None:
    """A second instance for the same socket, under any name of it, ends with the reason."""
    with nri_plugin(node, runtime.path):
        runtime.accept().start(*NODE)
        other = runtime.path.parent / "link.sock"
        other.symlink_to(runtime.path)
        for path in (runtime.path, other):
            done = run_alone(node, "--socket", str(path), "--name", "other")
            assert done.returncode == 1
            assert "Error GH2702" in done.stderr


def test_no_socket(node: Installation, tmp_path: Path) -> None:
    """Without a socket the command fails and says how to get one; with --wait it waits."""
    path = tmp_path / "none/nri.sock"
    done = run_alone(node, "--socket", str(path))
    assert (done.returncode, "Error GH2700" in done.stderr) == (1, True)
    with nri_plugin(node, path, "--wait") as plugin:
        eventually(lambda: "GH2700" in plugin.text())
        runtime = FakeRuntime(path)
        runtime.accept().start(*NODE)
        plugin.wait_for("ready")
        runtime.close()
        assert plugin.text().count("GH2700") <= 2  # once for each time that it is missing


def test_wrong_sockets(node: Installation, tmp_path: Path) -> None:
    """A file that is no socket, and a socket without a listener, are named."""
    file = tmp_path / "file"
    file.touch()
    done = run_alone(node, "--socket", str(file))
    assert (done.returncode, "it is not a socket" in done.stderr) == (1, True)
    dead = FakeRuntime(tmp_path / "dead.sock")
    dead.path.rename(tmp_path / "kept.sock")
    dead.close()
    done = run_alone(node, "--socket", str(tmp_path / "kept.sock"))
    assert (done.returncode, "Connection refused" in done.stderr) == (1, True)
    assert "GH2701" in done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--index", "100"), "--index"),
        (("--index", "x"), "--index"),
        (("--metrics-address", "nowhere"), "GH1891"),
        (("--metrics-address", "192.0.2.1:1"), "GH1890"),
        (("--unknown",), "--unknown"),
        (("--name", "a/b"), "--name"),
        (("--name", ""), "--name"),
    ],
)
def test_wrong_options(
    options: tuple[str, ...], text: str, node: Installation, runtime: FakeRuntime
) -> None:
    done = run_alone(node, "--socket", str(runtime.path), *options)
    assert done.returncode in {1, 2}
    assert text in done.stderr


def test_metrics(node: Installation, runtime: FakeRuntime) -> None:
    """The counters of creates by outcome, of connections, and the histogram of seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with nri_plugin(node, runtime.path, "--metrics-address", address) as plugin:
        link = runtime.accept()
        link.start(*NODE)
        plugin.wait_for("ready")
        link.create(pod(), asking())
        for _ in range(2):
            link.create(pod(), container())
        found = _scraped(address)
        assert found['gpuhook_nri_creates_total{outcome="injected"}'] == 1
        assert found['gpuhook_nri_creates_total{outcome="unchanged"}'] == 2
        assert found['gpuhook_nri_creates_total{outcome="refused"}'] == 0
        assert found["gpuhook_nri_connections_total"] == 1
        assert found["gpuhook_nri_ready"] == 1
        assert found['gpuhook_nri_create_seconds_count{requests="none"}'] == 2
        assert found['gpuhook_nri_create_seconds_bucket{requests="maybe",le="+Inf"}'] == 1
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{address}/", timeout=60)


def test_client_that_sends_half_a_request_delays_no_scrape(
    node: Installation, runtime: FakeRuntime
) -> None:
    """It is disconnected, also if it sends a byte now and then."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    text = f"{address[0]}:{address[1]}"
    with nri_plugin(node, runtime.path, "--metrics-address", text) as plugin:
        runtime.accept().start(*NODE)
        plugin.wait_for("ready")
        with socket.create_connection(address, timeout=60) as slow:
            slow.sendall(b"GET /met")
            assert _scraped(text)["gpuhook_nri_ready"] == 1
            with suppress(OSError):
                while not select.select([slow], [], [], 0.5)[0]:
                    slow.sendall(b"r")
                assert slow.recv(1) == b""


def _scraped(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    from prometheus_client.parser import text_string_to_metric_families

    assert list(text_string_to_metric_families(text))
    pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}
