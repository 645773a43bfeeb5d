# SPDX-License-Identifier: Apache-2.0
"""Sockets of resources: their names and their ownership."""

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


def test_socket_is_named_after_its_resource() -> None:
    """The name has no domain."""
    assert socket_name("nvidia.com/gpu", DIRECTORY) == "nvidia-gpu.sock"
    assert socket_name("nvidia.com/mig-1g.5gb.me", DIRECTORY) == "nvidia-mig-1g.5gb.me.sock"
    assert socket_name("example.com/gpu", DIRECTORY) == "nvidia-gpu.sock"


def test_resources_of_two_domains_have_different_sockets() -> None:
    """The name of the second socket has a digest, and does not depend on other sockets."""
    first = socket_name("nvidia.com/gpu", DIRECTORY)
    second = socket_name("example.com/gpu", DIRECTORY, {first})
    assert second == socket_name("example.com/gpu", DIRECTORY, {first, "another.sock"})
    assert second.startswith("nvidia-gpu-")
    assert len({first, second, socket_name("example.org/gpu", DIRECTORY, {first})}) == 3


def test_longest_resource_name_fits_into_the_default_directory() -> None:
    """Kubernetes allows 63 characters."""
    assert socket_name("nvidia.com/" + "x" * 63, DIRECTORY) == f"nvidia-{'x' * 63}.sock"


@pytest.mark.parametrize("length", range(60, 108))
def test_socket_name_is_shortened_in_a_long_directory(length: int) -> None:
    """A directory without space for a unique name is refused."""
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


def resource_server() -> ResourceServer:
    return ResourceServer(resource(), Answers(), Observed(), pre_start=False)


def test_socket_is_created_atomically_and_removed_at_close(tmp_path: Path) -> None:
    """No temporary file remains."""
    path = str(tmp_path / "a %41?#é.sock")

    async def work() -> None:
        endpoint = await Endpoint.listening(path, resource_server())
        assert os.listdir(tmp_path) == [os.path.basename(path)]
        assert endpoint.is_ours()
        assert not endpoint.is_taken()
        await endpoint.close()
        assert os.listdir(tmp_path) == []
        assert not endpoint.is_ours()
        assert not endpoint.is_taken()

    asyncio.run(work())


def test_socket_path_of_107_bytes_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary name in the same directory may not be longer."""
    directory = tmp_path / "d"
    directory.mkdir()
    monkeypatch.chdir(tmp_path)
    path = "d/" + "n" * 105

    async def work() -> None:
        endpoint = await Endpoint.listening(path, resource_server())
        assert endpoint.is_ours()
        await endpoint.close()

    asyncio.run(work())


def test_close_leaves_the_socket_of_a_newer_server(tmp_path: Path) -> None:
    """An older server that stops does not take the newer one's socket away."""
    path = str(tmp_path / "a.sock")

    async def work() -> None:
        old = await Endpoint.listening(path, resource_server())
        new = await Endpoint.listening(path, resource_server())
        assert (old.is_ours(), new.is_ours()) == (False, True)
        assert (old.is_taken(), new.is_taken()) == (True, False)
        await old.close()
        assert new.is_ours()
        await new.close()
        assert os.listdir(tmp_path) == []

    asyncio.run(work())


@pytest.mark.parametrize("left", ["socket", "file"])
def test_stale_socket_or_file_is_replaced(tmp_path: Path, left: str) -> None:
    """It is neither ours nor taken."""
    path = str(tmp_path / "a.sock")

    async def work() -> None:
        endpoint = await Endpoint.listening(path, resource_server())
        os.unlink(path)
        if left == "socket":
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(path)
        else:
            Path(path).touch()
        assert not endpoint.is_ours()
        assert not endpoint.is_taken()
        again = await Endpoint.listening(path, resource_server())
        assert again.is_ours()
        await endpoint.close()
        await again.close()

    asyncio.run(work())


def test_socket_that_cannot_be_created_is_a_fault(tmp_path: Path) -> None:
    """The fault has the reason, and no file or descriptor remains."""
    (tmp_path / "a.sock").mkdir()

    async def reason(path: Path) -> str:
        with pytest.raises(GpuhookError) as raised:
            await Endpoint.listening(str(path), resource_server())
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
