# SPDX-License-Identifier: Apache-2.0
"""The application profile of EGL names a container's GPUs, by whatever way these came."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract import integrations, roots
from tests.contract.installation import Installation, asks
from tests.contract.integrations import Integrations
from tests.contract.live import sleeping, wrapped
from tests.contract.roots import Roots
from tests.contract.test_detach import assert_profile
from tests.contract.test_prestart import PROFILE
from tests.contract.views import questions

ASKED = ["/probe", *questions(PROFILE)]
GRAPHICS = ["NVIDIA_DRIVER_CAPABILITIES=graphics"]
INTEGRATIONS = ["runc", "crun", "ctr", "podman-runtime", "podman-cdi", "runc-prestart"]


def bits(node: Installation, *indexes: int) -> int:
    """Return the mask of these GPUs."""
    return sum(1 << (node.gpu(index).minor or 0) for index in indexes)


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_every_door(
    integration: str, node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """It has the bits of the GPUs that the container has, and of no other."""
    assert integration in integrations.ALL
    view = enter.through(integration, root_of("debian"), ASKED, "2,5", GRAPHICS).view
    text = view.paths[PROFILE].content.decode()
    assert f'"EGLVisibleDGPUDevices", {bits(node8, 2, 5):#x}]' in text


def test_without_egl(node8: Installation, enter: Integrations, root_of: Roots) -> None:
    """A container that requests no graphics gets no profile, which nothing would read."""
    root = root_of("debian")
    enter.through("runc", root, ASKED, "2", ["NVIDIA_DRIVER_CAPABILITIES=compute,utility"])
    assert PROFILE[1:] not in roots.listing(root)


def test_other_gpus_at_the_next_start(
    node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """Started again with another GPU, the container has that one's bit."""
    root = root_of("debian")
    enter.through("runc", root, ASKED, "2", GRAPHICS)
    view = enter.through("runc", root, ASKED, "3", GRAPHICS).view
    assert f"{bits(node8, 3):#x}]" in view.paths[PROFILE].content.decode()


def test_what_is_taken_from_a_running_container(node8: Installation, tmp_path: Path) -> None:
    """The profile that the wrapper wrote follows what is detached, and what is attached."""
    made = sleeping(tmp_path, env=asks("2,3", "all"))
    with wrapped(made, node8) as live:
        assert_profile(live, bits(node8, 2, 3))
        live.detach("3")
        assert_profile(live, bits(node8, 2))
        live.attach("4")
        assert_profile(live, bits(node8, 2, 4))
