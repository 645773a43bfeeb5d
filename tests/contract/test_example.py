# SPDX-License-Identifier: Apache-2.0
"""A first contract test, which tests/README.md explains."""

from __future__ import annotations

import pytest

from tests.contract.installation import CONTROL, Installation
from tests.contract.integrations import Integrations
from tests.contract.roots import Roots


@pytest.mark.parametrize("integration", ["runc", "crun-v2", "podman-cdi"])
def test_one_gpu(
    integration: str, node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """A container that requests GPU 2 can open its node, and has no other GPU."""
    view = enter.through(integration, root_of("debian"), ["/probe"], "2").view
    gpus = [path for path in view.gpus() if path[11:].isdecimal()]
    assert gpus == [node8.device(2)]
    assert view.gpus()[node8.device(2)].allowed
    assert set(view.gpus()) > CONTROL
