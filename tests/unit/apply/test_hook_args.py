# SPDX-License-Identifier: Apache-2.0
"""The hook's arguments: those that are refused, and the hooks that are gpuhook's."""

from __future__ import annotations

import pytest

from gpuhook.apply.rootfs import hook_args
from gpuhook.errors import GpuhookError


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
def test_invalid_arguments_are_refused(arguments: list[str]) -> None:
    """GH1640 has the argument, and no job is done."""
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
def test_gpuhooks_hooks_are_recognized(hook: object, is_ours: bool) -> None:
    """By name and verb, in any directory; malformed hooks are not gpuhook's."""
    assert hook_args.is_ours(hook) is is_ours


def test_hook_has_its_own_environment() -> None:
    """Without its own environment a hook would have the image's."""
    hook = hook_args.Jobs("/h").hook()
    assert hook["env"] == ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    hook["env"].append("X=1")
    assert hook_args.Jobs("/h").hook()["env"] != hook["env"]


def test_equal_gpus_share_one_argument() -> None:
    """The facts for requirements are listed by minors, as far as they are known."""
    job = hook_args.parse(
        ["--gpus", "0-3,7=9.0,nvidia", "--gpus", "4=,tesla", "--cuda-version", "13.0"]
    )
    assert job.gpus == [("0-3,7", "9.0", "nvidia"), ("4", "", "tesla")]
    assert job.cuda_version == "13.0"
    assert job.arguments()[:4] == ["--gpus", "0-3,7=9.0,nvidia", "--gpus", "4=,tesla"]


def test_selected_jobs() -> None:
    """Libraries and links are selected by path, the other jobs remain."""
    job = hook_args.parse(
        ["--library", "/a/l.so.2=l.so.1", "--link", "t::/b/l.so", "--driver-params"]
    )
    job.keep(lambda path: path.startswith("/b/"))
    assert (job.libraries, job.links, job.driver_params) == ([], [("t", "/b/l.so")], True)


def test_inseparable_jobs_are_kept() -> None:
    """They lose no file, and the edits of their spec are recognized by them."""
    job = hook_args.parse(["--library", "/a/l.so.2=l.so.1", "--link", "t::/b/l.so", "--whole"])
    job.keep(lambda _: False)
    assert (job.libraries, job.links) == ([("/a/l.so.2", "l.so.1")], [("t", "/b/l.so")])
    assert hook_args.is_whole({"hooks": [job.hook()]})
    assert not hook_args.is_whole({"hooks": [hook_args.Jobs("/h").hook()]})
    assert not hook_args.is_whole(
        {"hooks": [{**job.hook(), "args": ["other", "apply", "--whole"]}]}
    )
    assert not hook_args.is_whole({})
