# SPDX-License-Identifier: Apache-2.0
"""gpuhook's handler of containerd takes settings from an existing one."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook.engines.read import toml_document
from tests.unit.configuring import configured

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
