# SPDX-License-Identifier: Apache-2.0
"""gpuhook's handler of containerd takes settings from an existing one."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook.engines.configure.containerd import configure_containerd
from gpuhook.engines.read import toml_document
from gpuhook.errors import GpuhookError
from tests.unit.configuring import configured, wanted

PATH = "/etc/containerd/config.toml"
CRI = "io.containerd.grpc.v1.cri"


def taken_over(patterns: list[str]) -> list[str]:
    """Return container_annotations after taking over a handler with these patterns."""
    text = (
        f'version = 2\n[plugins."{CRI}".containerd.runtimes.nvidia]\n'
        f'runtime_type = "io.containerd.runc.v2"\ncontainer_annotations = {patterns}\n'
    )
    after = configured("containerd", {PATH: text.encode()}, takes_over=True)
    document: dict[str, Any] = toml_document.parsed(after[PATH])
    handler = document["plugins"][CRI]["containerd"]["runtimes"]["nvidia"]
    found: list[str] = handler["container_annotations"]
    return found


@pytest.mark.parametrize("pattern", ["cdi.k8s.io/*", "*/*", "cdi.*/*", "*.k8s.io/*"])
def test_covered_pattern_is_not_added(pattern: str) -> None:
    assert taken_over([pattern]) == [pattern]


@pytest.mark.parametrize(
    "pattern", ["*", "cdi.k8s.io/x", "cdi.k8s.io/x*", "example.com/*", "[c]*/*", "[", "", "*/*/*"]
)
def test_pattern_is_added_to_others(pattern: str) -> None:
    """containerd's `*` stops at a "/" (path.Match of Go): `*` alone covers no CDI annotation."""
    assert taken_over([pattern]) == [pattern, "cdi.k8s.io/*"]


def test_a_drop_in_cannot_copy_a_plugin_that_is_not_a_table() -> None:
    text = f'version = 2\n[plugins."{CRI}"]\ncontainerd = 5\n'
    with pytest.raises(GpuhookError) as caught:
        configured("containerd", {PATH: text.encode()}, drop_in="/etc/containerd/x.toml")
    assert caught.value.code == "GH2027"
    assert "containerd is not a table" in caught.value.message


def test_undo_of_a_file_that_became_invalid_by_a_second_handler() -> None:
    """Another program has appended the handler again: TOML has no table twice."""
    theirs = (
        f'[plugins."{CRI}".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    )
    before = b"version = 2\n"
    after = configured("containerd", {PATH: before})[PATH] + theirs.encode()
    with pytest.raises(toml_document.UnreadableTomlError):
        toml_document.parsed(after)
    left = configure_containerd.without(PATH, after, wanted(), before)
    assert left is not None
    assert toml_document.parsed(left)["plugins"][CRI]["containerd"]["runtimes"]["nvidia"]


@pytest.mark.parametrize(
    "name", ["nvidia-container-runtime", "nvidia-container-runtime-experimental"]
)
def test_the_hook_is_not_added_to_nvidias_runtime(name: str) -> None:
    """A handler with the hook runs the engine's own runtime, not one that also adds GPUs."""
    text = (
        "version = 2\n"
        f'[plugins."{CRI}".containerd]\ndefault_runtime_name = "nvidia"\n'
        f'[plugins."{CRI}".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
        f'[plugins."{CRI}".containerd.runtimes.nvidia.options]\nBinaryName = "/usr/bin/{name}"\n'
    )
    files = {PATH: text.encode()}
    after = configured(
        "containerd", files, route="hook", name="gpuhook", base_spec=b'{"process": {}}'
    )
    handlers = toml_document.parsed(after[PATH])["plugins"][CRI]["containerd"]["runtimes"]
    assert "options" not in handlers["gpuhook"]
