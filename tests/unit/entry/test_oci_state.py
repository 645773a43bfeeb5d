# SPDX-License-Identifier: Apache-2.0
"""The OCI state of a hook that runs in the container's user namespace."""

from __future__ import annotations

import pytest

from gpuhook.entry.hooks import oci_state
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files


def test_unreadable_config_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """podman 5 hides the bundle from the root of `--userns=auto`."""

    def denied(path: str) -> bytes:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(files, "read", denied)
    with pytest.raises(GpuhookError, match=r"/bundle/config\.json") as raised:
        _ = oci_state.HookState({"id": "x", "bundle": "/bundle"}).spec
    assert raised.value.code == "GH1649"
