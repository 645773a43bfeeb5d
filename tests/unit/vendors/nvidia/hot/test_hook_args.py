# SPDX-License-Identifier: Apache-2.0
"""The hook's arguments: which are refused, and which hooks are ours."""

from __future__ import annotations

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot.rootfs import hook_args


@pytest.mark.parametrize(
    "arguments",
    [
        ["--library"],
        ["--library", "/x/liba.so.1"],
        ["--library", "/x/liba.so.1="],
        ["--library", "/x/liba.so.1=../liba.so"],
        ["--library", "x/liba.so.1=liba.so"],
        ["--link", "target"],
        ["--link", "::/x"],
        ["--link", "target::x"],
        ["--fingerprint"],
        ["--gpus"],
        ["--gpus", "0"],
        ["--gpus", "0=9.0"],
        ["--gpus", "=9.0,nvidia"],
        ["--ldconfig", "sbin/ldconfig"],
        ["--libcuda", "/x/libcuda.so.1\0"],
        ["--host-root", "/\ud800"],
        ["--chmod", "0755"],
        ["--chmod", "0755:dev/dri"],
        ["--chmod", "+x:/dev/dri"],
        ["--chmod", "4755:/dev/dri"],
        ["--skip", "everything"],
        ["--unknown", "x"],
        ["positional", "x"],
        ["--driver-params", "--driver-params=1"],
    ],
)
def test_arguments_that_say_nothing(arguments: list[str]) -> None:
    """What cannot be understood is GH1640 with the argument, never half done."""
    with pytest.raises(GpuhookError) as caught:
        hook_args.parse(arguments)
    assert caught.value.code == "GH1640"
    assert arguments[-1].split("=")[0] in caught.value.message or arguments[0] in str(caught.value)


@pytest.mark.parametrize(
    ("hook", "is_ours"),
    [
        ({"args": ["gpuhook-hook", "apply"]}, True),
        ({"args": ["/opt/bin/gpuhook-hook", "apply", "--driver-params"]}, True),
        ({"args": ["gpuhook-hook", "prestart"]}, False),
        ({"args": ["gpuhook-hook"]}, False),
        ({"args": ["nvidia-ctk", "hook"]}, False),
        ({"args": [7, "apply"]}, False),
        ({"args": "gpuhook-hook apply"}, False),
        ({"path": "/usr/bin/gpuhook-hook"}, False),
        ("gpuhook-hook", False),
        (None, False),
    ],
)
def test_which_hooks_are_ours(hook: object, is_ours: bool) -> None:
    """A hook is ours by its name and verb, wherever it is installed; odd ones are not."""
    assert hook_args.is_ours(hook) is is_ours


def test_the_environment_is_explicit() -> None:
    """A hook always has its own environment, or the image's would reach it."""
    hook = hook_args.Jobs("/h").hook()
    assert hook["env"] == ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    hook["env"].append("X=1")
    assert hook_args.Jobs("/h").hook()["env"] != hook["env"]


def test_gpus_of_one_sort_are_one_argument() -> None:
    """What requirements are judged by goes by the minors, whatever of it is known."""
    job = hook_args.parse(
        ["--gpus", "0-3,7=9.0,nvidia", "--gpus", "4=,tesla", "--cuda-version", "13.0"]
    )
    assert job.gpus == [("0-3,7", "9.0", "nvidia"), ("4", "", "tesla")]
    assert job.cuda_version == "13.0"
    assert job.arguments()[:4] == ["--gpus", "0-3,7=9.0,nvidia", "--gpus", "4=,tesla"]


def test_what_is_kept() -> None:
    """Libraries and links are selected by path, the other jobs remain."""
    job = hook_args.parse(
        ["--library", "/a/l.so.2=l.so.1", "--link", "t::/b/l.so", "--driver-params"]
    )
    job.keep(lambda path: path.startswith("/b/"))
    assert (job.libraries, job.links, job.driver_params) == ([], [("t", "/b/l.so")], True)


def test_what_belongs_together_is_kept() -> None:
    """Jobs that are whole lose nothing, and their spec's edits are known by them."""
    job = hook_args.parse(["--library", "/a/l.so.2=l.so.1", "--link", "t::/b/l.so", "--whole"])
    job.keep(lambda _: False)
    assert (job.libraries, job.links) == ([("/a/l.so.2", "l.so.1")], [("t", "/b/l.so")])
    assert hook_args.is_whole({"hooks": [job.hook()]})
    assert not hook_args.is_whole({"hooks": [hook_args.Jobs("/h").hook()]})
    assert not hook_args.is_whole(
        {"hooks": [{**job.hook(), "args": ["other", "apply", "--whole"]}]}
    )
    assert not hook_args.is_whole({})
