# SPDX-License-Identifier: Apache-2.0
"""Podman's drop-in and hooks.d: the files for root and for a user, and refused configurations."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook.engines.configure.drop_in import configure_podman
from gpuhook.engines.read import podman_config as reading
from gpuhook.engines.toml import toml_text
from gpuhook.errors import GpuhookError
from tests.unit.configuring import HOOK, RUNTIME, configured, node, undone, wanted

MAIN = reading.PATH
OURS = f"{MAIN}.d/99-gpuhook.conf"
LAST = f"{MAIN}.d/zz-gpuhook.conf"
HOME = "/home/me"
USERS = f"{HOME}/{reading.OF_A_USER}"
HEAD = "# gpuhook: `gpuhook configure undo podman` removes it\n"
RUNTIMES = f'[engine.runtimes]\nnvidia = ["{RUNTIME}"]\n'
SHARED = "/usr/share/containers/oci/hooks.d"
HOOKS = "/etc/containers/oci/hooks.d"
THEIRS = '[engine.runtimes]\nnvidia = ["/usr/bin/nvidia-container-runtime"]\n'

Texts = dict[str, str]
CASES: dict[str, tuple[Texts, Texts, dict[str, Any]]] = {
    "no file": ({}, {OURS: HEAD + RUNTIMES}, {}),
    "other runtimes": (
        {MAIN: '[engine]\nruntime = "crun"\n[engine.runtimes]\nkata = ["/kata"]\n'},
        {OURS: HEAD + RUNTIMES},
        {},
    ),
    "default": (
        {},
        {OURS: f'{HEAD}[engine]\nruntime = "nvidia"\n\n{RUNTIMES}'},
        {"is_default": True},
    ),
    "a later default": (
        {f"{MAIN}.d/99-x.conf": '[engine]\nruntime = "runc"\n'},
        {LAST: f'{HEAD}[engine]\nruntime = "nvidia"\n\n{RUNTIMES}'},
        {"is_default": True},
    ),
    "a user's": ({}, {f"{USERS}.d/99-gpuhook.conf": HEAD + RUNTIMES}, {"home": HOME}),
    "beside NVIDIA's": (
        {MAIN: THEIRS},
        {OURS: HEAD + RUNTIMES.replace("nvidia =", "gpuhook =")},
        {"name": "gpuhook"},
    ),
    "taken over": ({MAIN: THEIRS}, {OURS: HEAD + RUNTIMES}, {"takes_over": True}),
    "taken over from a later file": (
        {f"{MAIN}.d/99-nvidia.conf": THEIRS},
        {LAST: HEAD + RUNTIMES},
        {"takes_over": True},
    ),
    "configured by hand": ({MAIN: RUNTIMES}, {}, {}),
    "CDI": ({MAIN: THEIRS}, {}, {"route": "cdi"}),
    "CDI of the first podman that has it": ({}, {}, {"route": "cdi", "version": (4, 1)}),
    "hook": (
        {},
        {OURS: f'{HEAD}[engine]\nhooks_dir = ["{HOOKS}"]\n', f"{HOOKS}/99-gpuhook.json": ""},
        {"route": "hook"},
    ),
    "hook beside others": (
        {f"{SHARED}/a.json": "{}"},
        {
            OURS: f'{HEAD}[engine]\nhooks_dir = ["{SHARED}", "{HOOKS}"]\n',
            f"{HOOKS}/99-gpuhook.json": "",
        },
        {"route": "hook"},
    ),
    "hook where directories are said": (
        {MAIN: '[engine]\nhooks_dir = ["/a", "/b"]\n'},
        {"/b/99-gpuhook.json": ""},
        {"route": "hook"},
    ),
    "a user's hook": (
        {f"{SHARED}/a.json": "{}"},
        {
            f"{USERS}.d/99-gpuhook.conf": f"{HEAD}[engine]\n"
            f'hooks_dir = ["{HOME}/.config/containers/oci/hooks.d"]\n',
            f"{HOME}/.config/containers/oci/hooks.d/99-gpuhook.json": "",
        },
        {"route": "hook", "home": HOME},
    ),
}


def files(texts: Texts) -> dict[str, bytes]:
    return {path: text.encode() for path, text in texts.items()}


@pytest.mark.parametrize(("before", "new", "fields"), CASES.values(), ids=CASES)
def test_written_files(before: Texts, new: Texts, fields: dict[str, Any]) -> None:
    """It writes only gpuhook's files, and a second run writes nothing."""
    done = configured("podman", files(before), **fields)
    assert {path: done[path] for path in before} == files(before)
    assert set(done) == {*before, *new}
    for path, text in new.items():
        if path.endswith(".json"):
            assert f'"path": "{HOOK}"'.encode() in done[path]
        else:
            assert done[path].decode() == text


@pytest.mark.parametrize(("before", "new", "fields"), CASES.values(), ids=CASES)
def test_undo_restores_the_files(before: Texts, new: Texts, fields: dict[str, Any]) -> None:
    assert new.keys().isdisjoint(before)
    assert undone("podman", files(before), **fields) == files(before)


def test_addition_to_gpuhooks_file_is_kept() -> None:
    after = configured("podman", {}, is_default=True)[OURS]
    edited = after + b'kata = ["/kata"] # mine\n'
    left = configure_podman.without(OURS, edited, wanted(is_default=True))
    assert left is not None
    assert b'[engine.runtimes]\nkata = ["/kata"] # mine\n' in left
    assert b"nvidia" not in left


def test_hook_that_replaced_gpuhooks_file_is_kept() -> None:
    for content in (b'{"hook": {"path": "/usr/bin/other"}}', b"{}", b"[]", b"\xff"):
        path = f"{HOOKS}/99-gpuhook.json"
        assert configure_podman.without(path, content, wanted(route="hook")) == content


@pytest.mark.parametrize(
    "theirs",
    [
        "# mine\n",
        '[engine] # mine\nevents_logger = "file"\n\n[engine.runtimes]\n',
        '[engine]\nruntime = "crun" # mine\n\n[engine.runtimes]\nnvidia = ["/mine"]\n',
    ],
)
def test_existing_content_of_a_file_with_gpuhooks_name_is_kept(theirs: str) -> None:
    fields = {"is_default": True, "takes_over": True}
    done = configured("podman", {OURS: theirs.encode()}, **fields)[OURS].decode()
    kept = done.replace(toml_text.WAS, "").splitlines()
    assert [one for one in theirs.splitlines() if one not in kept] == []
    left = configure_podman.without(OURS, done.encode(), wanted(is_default=True), theirs.encode())
    assert left == theirs.encode()


def test_dotted_keys_are_restored() -> None:
    """A dotted key stays dotted: the new keys are dotted, too."""
    theirs = b'engine.events_logger = "file"\n'
    done = configured("podman", {OURS: theirs}, is_default=True)[OURS]
    left = configure_podman.without(OURS, done, wanted(is_default=True), theirs)
    assert left is not None
    assert left.strip() == theirs.strip()


def test_comment_in_gpuhooks_file_is_kept() -> None:
    after = configured("podman", {})[OURS]
    left = configure_podman.without(OURS, b"# mine\n" + after, wanted())
    assert left is not None
    assert left.strip() == b"# mine"


def test_gpuhooks_file_that_became_invalid_is_a_fault() -> None:
    with pytest.raises(GpuhookError) as caught:
        configure_podman.without(OURS, b"[engine\n", wanted())
    assert caught.value.code == "GH2003"


REFUSED: dict[str, tuple[Texts, dict[str, Any], str, str]] = {
    "another's": ({MAIN: THEIRS}, {}, "GH2000", f"{MAIN}:2: the nvidia runtime of podman is"),
    "no table": ({MAIN: "engine = 1\n"}, {}, "GH2003", f"{MAIN}:1 has engine that is not a table"),
    "no list": (
        {MAIN: '[engine.runtimes]\nkata = "/kata"\n'},
        {},
        "GH2003",
        f"{MAIN}:2 has a runtime kata that is not a list",
    ),
    "a number for a list": (
        {MAIN: "[engine]\nhooks_dir = 5\n"},
        {},
        "GH2003",
        f"{MAIN}:2 has engine.hooks_dir that is not a list of strings",
    ),
    "a byte order mark": ({MAIN: "\ufeff[engine]\n"}, {}, "GH2003", "byte order mark"),
    "no TOML": ({MAIN: "[engine\n"}, {}, "GH2003", f"{MAIN}:1 is not TOML"),
    "later than all": (
        {f"{MAIN}.d/zzz.conf": THEIRS},
        {"takes_over": True},
        "GH2052",
        "zzz.conf:2",
    ),
    "a user's file is later than root's": (
        {f"{USERS}.d/zzz.conf": THEIRS},
        {"takes_over": True, "home": HOME},
        "GH2052",
        "zzz.conf:2",
    ),
    "a place that is not read": ({}, {"drop_in": "/etc/a.conf"}, "GH2053", "/etc/a.conf"),
    "an ending that is not read": ({}, {"drop_in": f"{MAIN}.d/a"}, "GH2053", f"{MAIN}.d/a"),
    "another main file": ({}, {"config": "/etc/a.conf"}, "GH2053", "/etc/a.conf"),
    "CDI of an old podman": ({}, {"route": "cdi", "version": (3, 4, 4)}, "GH2045", "3.4.4"),
    "a default without a runtime": ({}, {"route": "hook", "is_default": True}, "GH2042", "hook"),
    "another's hook": (
        {f"{SHARED}/nvidia.json": '{"hook": {"path": "/usr/bin/nvidia-container-runtime-hook"}}'},
        {"route": "hook"},
        "GH2048",
        f"{SHARED}/nvidia.json",
    ),
}


@pytest.mark.parametrize(("before", "fields", "code", "said"), REFUSED.values(), ids=REFUSED)
def test_refused_configurations(
    before: Texts, fields: dict[str, Any], code: str, said: str
) -> None:
    with pytest.raises(GpuhookError) as caught:
        configured("podman", files(before), **fields)
    assert caught.value.code == code
    assert said in caught.value.message


def test_gpuhooks_file_moves_after_a_later_one() -> None:
    """Of two files of gpuhook, only the needed one remains."""
    later = {OURS: (HEAD + RUNTIMES).encode(), f"{MAIN}.d/99-nvidia.conf": THEIRS.encode()}
    done = configured("podman", later, takes_over=True)
    assert OURS not in done
    assert done[LAST].decode() == HEAD + RUNTIMES


def test_no_restart_is_needed() -> None:
    assert configure_podman.plan(node({}), wanted()).service.units == ()
