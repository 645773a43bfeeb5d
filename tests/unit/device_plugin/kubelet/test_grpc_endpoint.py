# SPDX-License-Identifier: Apache-2.0
"""Sockets of resources: their names, and whose they are."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from gpuhook.device_plugin.kubelet.grpc_endpoint import Endpoint, socket_name
from gpuhook.device_plugin.kubelet.resource_server import ResourceServer
from gpuhook.errors import GpuhookError
from tests.kubelet.plugin import Answers, Observed, resource

DIRECTORY = "/var/lib/kubelet/device-plugins"


def test_names() -> None:
    """A socket is named after its resource, as others name it, without the domain."""
    assert socket_name("nvidia.com/gpu", DIRECTORY) == "nvidia-gpu.sock"
    assert socket_name("nvidia.com/mig-1g.5gb.me", DIRECTORY) == "nvidia-mig-1g.5gb.me.sock"
    assert socket_name("example.com/gpu", DIRECTORY) == "nvidia-gpu.sock"


def test_one_word_of_two_domains() -> None:
    """Resources that share a word do not share a socket, and keep their names for ever."""
    first = socket_name("nvidia.com/gpu", DIRECTORY)
    second = socket_name("example.com/gpu", DIRECTORY, {first})
    assert second == socket_name("example.com/gpu", DIRECTORY, {first, "another.sock"})
    assert second.startswith("nvidia-gpu-")
    assert len({first, second, socket_name("example.org/gpu", DIRECTORY, {first})}) == 3


def test_the_longest_resource_fits_where_the_kubelet_is() -> None:
    """63 characters, as long as Kubernetes lets one be, need no digest in the usual directory."""
    assert socket_name("nvidia.com/" + "x" * 63, DIRECTORY) == f"nvidia-{'x' * 63}.sock"


@pytest.mark.parametrize("length", range(60, 108))
def test_long_directories(length: int) -> None:
    """A name is cut until it fits, and still its own; where none fits, that is said."""
    directory = "/" + "d" * (length - 1)
    words = ("x" * 63, "x" * 62 + "y", "gpu")
    if length > 107 - 1 - 24:
        with pytest.raises(GpuhookError, match="is too long") as raised:
            socket_name("nvidia.com/gpu", directory)
        assert raised.value.code == "GH1822"
        return
    names = {socket_name(f"nvidia.com/{word}", directory) for word in words}
    assert len(names) == 3
    assert "nvidia-gpu.sock" in names
    assert all(len(f"{directory}/{name}") <= 107 for name in names)


def served() -> ResourceServer:
    return ResourceServer(resource(), Answers(), Observed(), pre_start=False)


def test_a_socket_is_there_whole_and_goes_with_its_server(tmp_path: Path) -> None:
    """Only the socket itself is left of serving, and nothing of stopping."""
    path = str(tmp_path / "a %41?#é.sock")

    async def work() -> None:
        endpoint = await Endpoint.listening(path, served())
        assert os.listdir(tmp_path) == [os.path.basename(path)]
        assert endpoint.is_ours()
        assert not endpoint.is_taken()
        await endpoint.close()
        assert os.listdir(tmp_path) == []
        assert not endpoint.is_ours()
        assert not endpoint.is_taken()

    asyncio.run(work())


def test_in_the_longest_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of 107 bytes can be served, although it is bound by another name first."""
    directory = tmp_path / "d"
    directory.mkdir()
    monkeypatch.chdir(tmp_path)
    path = "d/" + "n" * 105

    async def work() -> None:
        endpoint = await Endpoint.listening(path, served())
        assert endpoint.is_ours()
        await endpoint.close()

    asyncio.run(work())


def test_another_socket_is_left_alone(tmp_path: Path) -> None:
    """An older server that stops does not take the newer one's socket away."""
    path = str(tmp_path / "a.sock")

    async def work() -> None:
        old = await Endpoint.listening(path, served())
        new = await Endpoint.listening(path, served())
        assert (old.is_ours(), new.is_ours()) == (False, True)
        assert (old.is_taken(), new.is_taken()) == (True, False)
        await old.close()
        assert new.is_ours()
        await new.close()
        assert os.listdir(tmp_path) == []

    asyncio.run(work())


@pytest.mark.parametrize("left", ["socket", "file"])
def test_what_was_left_behind_is_replaced(tmp_path: Path, left: str) -> None:
    """A socket without a listener, or a plain file, is neither ours nor taken."""
    path = str(tmp_path / "a.sock")

    async def work() -> None:
        endpoint = await Endpoint.listening(path, served())
        os.unlink(path)
        if left == "socket":
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(path)
        else:
            Path(path).touch()
        assert not endpoint.is_ours()
        assert not endpoint.is_taken()
        again = await Endpoint.listening(path, served())
        assert again.is_ours()
        await endpoint.close()
        await again.close()

    asyncio.run(work())


def test_where_no_socket_can_be(tmp_path: Path) -> None:
    """A missing directory, a directory in the way: the reason is said, nothing is left."""
    (tmp_path / "a.sock").mkdir()

    async def reason(path: Path) -> str:
        with pytest.raises(GpuhookError) as raised:
            await Endpoint.listening(str(path), served())
        assert raised.value.code == "GH1821"
        return raised.value.message

    async def work() -> None:
        assert "No such file" in await reason(tmp_path / "none" / "b.sock")
        assert "directory" in await reason(tmp_path / "a.sock")
        assert os.listdir(tmp_path) == ["a.sock"]
        fds = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            await reason(tmp_path / "a.sock")
        assert len(os.listdir("/proc/self/fd")) == fds

    asyncio.run(work())
