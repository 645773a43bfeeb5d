# SPDX-License-Identifier: Apache-2.0
"""A configuration that is nested more deeply than Python walks: its words are crossed out."""

from __future__ import annotations

import pytest

from gpuhook.support_bundle.redaction import AllowList


@pytest.mark.parametrize("levels", [50, 450, 900, 100_000])
def test_deep_configuration_is_redacted(levels: int) -> None:
    content = b'{"data-root": ' + b"[" * levels + b'"hunter2"' + b"]" * levels + b"}"
    kept = AllowList().content("/etc/docker/daemon.json", content, "x")
    assert kept is not None
    assert (b"hunter2" in kept) == (levels == 50)  # a value of a listed key
