# SPDX-License-Identifier: Apache-2.0
"""What docs/reference/compatibility-promise.md promises on the hook's arguments."""

from __future__ import annotations

import pytest

from gpuhook import __version__
from gpuhook.apply.rootfs import hook_args
from gpuhook.errors import GpuhookError

# The arguments of release 0.1.0: each later release reads them with the same meaning. Never
# change these lines; a release with more arguments adds its own lines.
FIRST = [
    *("--library", "/usr/lib/libcuda.so.550.54.15=libcuda.so.1"),
    *("--link", "libcuda.so.1::/usr/lib/libcuda.so"),
    *("--gpus", "0=9.0,nvidia"),
    *("--needs", "compute,video=/usr/bin/tool"),
    *("--chmod", "0755:/dev/dri"),
    *("--skip", "links"),
    *("--skip", "loader-cache"),
    *("--skip", "profile"),
    *("--cuda-compat", "/usr/local/cuda/compat"),
    *("--cuda-version", "12.4"),
    *("--driver-version", "550.54.15"),
    *("--fingerprint", "boot=b,driver=550.54.15,gpus=1,majors=m,mig=,tree=t"),
    *("--host-root", "/host"),
    *("--ldconfig", "/sbin/ldconfig"),
    *("--libcuda", "/usr/lib/libcuda.so.550.54.15"),
    "--driver-params",
    "--whole",
]
FIRST_FACTS = {
    "chmod": [(0o755, "/dev/dri")],
    "cuda_compat": "/usr/local/cuda/compat",
    "cuda_version": "12.4",
    "driver_params": True,
    "driver_version": "550.54.15",
    "fingerprint": "boot=b,driver=550.54.15,gpus=1,majors=m,mig=,tree=t",
    "gpus": [("0", "9.0", "nvidia")],
    "host_root": "/host",
    "ldconfig": "/sbin/ldconfig",
    "libcuda": "/usr/lib/libcuda.so.550.54.15",
    "libraries": [("/usr/lib/libcuda.so.550.54.15", "libcuda.so.1")],
    "links": [("libcuda.so.1", "/usr/lib/libcuda.so")],
    "needs": {"/usr/bin/tool": frozenset(("compute", "video"))},
    "skipped": ["links", "loader-cache", "profile"],
    "whole": True,
}
NEWER = "999.0.1"


def test_arguments_of_the_first_release() -> None:
    """They have the same meaning, and are written unchanged for the same jobs."""
    read = hook_args.parse(FIRST)
    assert {name: getattr(read, name) for name in FIRST_FACTS} == FIRST_FACTS
    assert (read.since, read.optional) == ("", [])
    assert read.arguments() == FIRST


def test_optional_arguments_of_a_newer_release_are_ignored() -> None:
    """An older hook passes them on, and does all other jobs."""
    more = ["--optional=--shiny=/x=y", "--optional=", "--optional=--switch"]
    read = hook_args.parse([more[0], *FIRST, *more[1:]])
    assert {name: getattr(read, name) for name in FIRST_FACTS} == FIRST_FACTS
    assert read.optional == more
    again = hook_args.parse(read.arguments())
    assert again.arguments() == read.arguments()
    assert again.optional == more


@pytest.mark.parametrize("since", [NEWER, f"{NEWER}+local", "0.1.0.1", "1"])
def test_required_newer_release_is_named(since: str) -> None:
    """The message contains the release, whatever other arguments are unknown."""
    with pytest.raises(GpuhookError) as raised:
        hook_args.parse(["--brand-new", "x", *FIRST, "--since", since])
    assert raised.value.code == "GH2143"
    assert since in raised.value.message
    assert __version__ in raised.value.message


@pytest.mark.parametrize("since", ["0", "0.0.9", "0.1", "0.1.0", __version__])
def test_current_and_older_requirements_are_met(since: str) -> None:
    """A spec for this release or an older one is read."""
    assert hook_args.parse([*FIRST, "--since", since]).since == since


@pytest.mark.parametrize("since", ["", "x", "1.x", "-1", "1..2", "٣", "9" * 5000])
def test_invalid_release_is_refused(since: str) -> None:
    """The message contains the argument."""
    with pytest.raises(GpuhookError) as raised:
        hook_args.parse(["--since", since])
    assert raised.value.code == "GH1640"


def test_unknown_argument_names_the_release() -> None:
    """Without a required release, the message has at least that of the hook."""
    with pytest.raises(GpuhookError) as raised:
        hook_args.parse(["--brand-new", "x"])
    assert raised.value.code == "GH1640"
    assert __version__ in raised.value.message
