# SPDX-License-Identifier: Apache-2.0
"""TOML that would need much memory is refused."""

from __future__ import annotations

import pytest

from gpuhook.engines.read import toml_document

LONG = "a" + ".a" * 100


@pytest.mark.parametrize(
    "text", [f"x = 1\n{LONG} = 1\n", f"\n[{LONG}]\n", f"\nx = {{{LONG} = 1}}\n"]
)
def test_keys_of_many_parts_are_refused(text: str) -> None:
    """A key of n parts takes n * n in memory: it is refused before it is parsed, by its line."""
    with pytest.raises(
        toml_document.UnreadableTomlError, match="a key has more than 100 parts"
    ) as caught:
        toml_document.parsed(text.encode())
    assert caught.value.line == 2
    assert caught.value.is_bounded


@pytest.mark.parametrize(
    ("text", "reason", "is_bounded"),
    [
        ("x = " + "[" * 5000 + "]" * 5000, "it is nested too deeply", True),
        ("x = " + "9" * 5000, "a number has too many digits", False),
    ],
)
def test_errors_of_the_parser_are_plain_text(text: str, reason: str, is_bounded: bool) -> None:
    with pytest.raises(toml_document.UnreadableTomlError, match=f"^{reason}$") as caught:
        toml_document.parsed(text.encode())
    assert caught.value.is_bounded == is_bounded


def test_keys_of_engines_are_read() -> None:
    """The keys of containerd, and texts with dots."""
    text = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nx = "' + "a." * 300
    assert toml_document.parsed((text + '"\n').encode())["plugins"]
