# SPDX-License-Identifier: Apache-2.0
"""CRI-O's drop-in: its content, its path, and refused configurations."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook.engines.configure.drop_in import configure_crio
from gpuhook.engines.read import crio_config as reading
from gpuhook.errors import GpuhookError
from tests.unit.configuring import HOOK, RUNTIME, configured, node, undone, wanted

MAIN = reading.PATH
D = reading.DROP_INS
OURS = f"{D}/99-gpuhook.conf"
LAST = f"{D}/zz-gpuhook.conf"
HEAD = "# gpuhook: `gpuhook configure undo crio` removes it\n"
HANDLER = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{RUNTIME}"\nruntime_type = "oci"\n'
CRUN = """[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = ["io.containers.trace-syscall"]
[crio.runtime.runtimes.crun.default_annotations]
"a.b/c" = "d"
"""
OPTIONS = """runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = ["io.containers.trace-syscall"]

[crio.runtime.runtimes.nvidia.default_annotations]
"a.b/c" = "d"
"""
THEIRS = (
    '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/nvidia-container-runtime"\n'
    'runtime_type = "oci"\n'
)
KATA = """[crio.runtime]
default_runtime = "kata"
[crio.runtime.runtimes.kata]
runtime_type = "vm"
runtime_root = "/run/kata"
[crio.runtime.runtimes.runc]
monitor_cgroup = "pod"
"""

Texts = dict[str, str]
CASES: dict[str, tuple[Texts, Texts, dict[str, Any]]] = {
    "no file": ({}, {OURS: HEAD + HANDLER}, {}),
    "empty file": ({MAIN: ""}, {OURS: HEAD + HANDLER}, {}),
    "a file of comments": ({MAIN: "# [crio]\n"}, {OURS: HEAD + HANDLER}, {}),
    "options of the default": ({MAIN: CRUN}, {OURS: HEAD + HANDLER + OPTIONS}, {}),
    "options of a drop-in's": ({f"{D}/10-crio.conf": CRUN}, {OURS: HEAD + HANDLER + OPTIONS}, {}),
    "default of virtual machines": (
        {MAIN: KATA},
        {OURS: f'{HEAD}{HANDLER}monitor_cgroup = "pod"\n'},
        {},
    ),
    "programs of platforms": (
        {
            MAIN: "[crio.runtime.runtimes.crun]\ninherit_default_runtime = true\n"
            'platform_runtime_paths = {"linux/arm64" = "/arm"}\nno_sync_log = true\n'
        },
        {OURS: f"{HEAD}{HANDLER}no_sync_log = true\n"},
        {},
    ),
    "default": (
        {},
        {OURS: f'{HEAD}[crio.runtime]\ndefault_runtime = "nvidia"\n\n{HANDLER}'},
        {"is_default": True},
    ),
    "another name": (
        {},
        {OURS: HEAD + HANDLER.replace("nvidia]", "gpu-hook]")},
        {"name": "gpu-hook"},
    ),
    "a name with a dot": (
        {},
        {OURS: HEAD + HANDLER.replace("nvidia]", '"nvidia.x"]')},
        {"name": "nvidia.x"},
    ),
    "beside NVIDIA's": (
        {f"{D}/99-nvidia.conf": THEIRS},
        {OURS: HEAD + HANDLER.replace("nvidia]", "gpuhook]")},
        {"name": "gpuhook"},
    ),
    "taken over from the main file": (
        {MAIN: THEIRS},
        {OURS: HEAD + HANDLER},
        {"takes_over": True},
    ),
    "taken over from a later file": (
        {f"{D}/99-nvidia.toml": THEIRS},
        {LAST: HEAD + HANDLER},
        {"takes_over": True},
    ),
    "a later default": (
        {f"{D}/99-x.conf": '[crio.runtime]\ndefault_runtime = "runc"\n'},
        {LAST: f'{HEAD}[crio.runtime]\ndefault_runtime = "nvidia"\n\n{HANDLER}'},
        {"is_default": True},
    ),
    "an own name": (
        {},
        {f"{D}/50-a.conf": HEAD + HANDLER},
        {"drop_in": f"{D}/50-a.conf"},
    ),
    "configured by hand": ({f"{D}/10-a.conf": HANDLER}, {}, {}),
    "CDI": (
        {MAIN: CRUN},
        {OURS: HEAD + HANDLER.replace(RUNTIME, "/usr/libexec/crio/crun") + OPTIONS},
        {"route": "cdi"},
    ),
    "CDI with what is there": (
        {"/usr/bin/crun": "", "/usr/bin/runc": ""},
        {OURS: HEAD + HANDLER.replace(RUNTIME, "/usr/bin/crun")},
        {"route": "cdi"},
    ),
    "hook": (
        {},
        {"/usr/share/containers/oci/hooks.d/99-gpuhook.json": ""},
        {"route": "hook"},
    ),
    "hook in the last directory": (
        {MAIN: '[crio.runtime]\nhooks_dir = ["/a", "/b"]\n'},
        {"/b/99-gpuhook.json": ""},
        {"route": "hook"},
    ),
}


def files(texts: Texts) -> dict[str, bytes]:
    return {path: text.encode() for path, text in texts.items()}


@pytest.mark.parametrize(("before", "new", "fields"), CASES.values(), ids=CASES)
def test_written_files(before: Texts, new: Texts, fields: dict[str, Any]) -> None:
    """It writes one file, a second run writes nothing, and CRI-O's reader finds the handler."""
    done = configured("crio", files(before), **fields)
    assert {path: done[path] for path in before} == files(before)
    assert set(done) == {*before, *new}
    for path, text in new.items():
        if not path.endswith(".json"):
            assert done[path].decode() == text


@pytest.mark.parametrize(("before", "new", "fields"), CASES.values(), ids=CASES)
def test_undo_restores_the_files(before: Texts, new: Texts, fields: dict[str, Any]) -> None:
    assert new.keys().isdisjoint(before)
    assert undone("crio", files(before), **fields) == files(before)


def test_hooks_file_names_the_installed_hook() -> None:
    done = configured("crio", {}, route="hook")
    (content,) = done.values()
    assert f'"path": "{HOOK}"'.encode() in content
    found = configure_crio.plan(node({}), wanted(route="hook"))
    assert found.expected.hooks == ("/usr/share/containers/oci/hooks.d/99-gpuhook.json",)


THEIR_HOOK = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
HOOKED = b'{"version": "1.0.0", "hook": {"path": "/usr/bin/nvidia-container-toolkit"}}'


def test_hook_of_another_program_is_refused() -> None:
    """Another GPU hook is refused, or taken over: two would inject twice."""
    with pytest.raises(GpuhookError) as caught:
        configured("crio", {THEIR_HOOK: HOOKED}, route="hook")
    assert caught.value.code == "GH2048"
    done = configured("crio", {THEIR_HOOK: HOOKED}, route="hook", takes_over=True)
    assert THEIR_HOOK not in done
    assert len(done) == 1


def test_gpuhooks_hook_under_another_name_is_enough() -> None:
    there = {THEIR_HOOK: HOOKED.replace(b"/usr/bin/nvidia-container-toolkit", HOOK.encode())}
    assert configured("crio", there, route="hook") == there


def test_addition_to_gpuhooks_file_is_kept() -> None:
    after = configured("crio", {}, is_default=True)[OURS]
    edited = after.replace(b"[crio.runtime]\n", b"[crio.runtime]\nselinux = true # mine\n")
    left = configure_crio.without(OURS, edited, wanted(is_default=True))
    assert left is not None
    assert b"selinux = true # mine\n" in left
    assert b"nvidia" not in left


REFUSED: dict[str, tuple[Texts, dict[str, Any], str, str]] = {
    "another's": ({MAIN: THEIRS}, {}, "GH2000", f"{MAIN}:1: the nvidia runtime of crio is"),
    "no table": (
        {MAIN: "[crio.runtime]\nruntimes = 1\n"},
        {},
        "GH2003",
        f"{MAIN}:2 has crio.runtime.runtimes that is not a table",
    ),
    "past a bound": ({MAIN: f"{'a.' * 150}a = 1\n"}, {}, "GH2027", "is not read by gpuhook"),
    "no TOML": ({MAIN: "\n[crio\n"}, {}, "GH2003", f"{MAIN}:2 is not TOML"),
    "a drop-in that is not TOML": ({f"{D}/a": "x\n"}, {}, "GH2003", f"{D}/a:1 is not TOML"),
    "no text": ({MAIN: "a = '\udcff'"}, {}, "GH2003", "is not UTF-8"),
    "later than all": (
        {f"{D}/zzz": THEIRS},
        {"takes_over": True},
        "GH2052",
        f"{D}/zzz:1: it also sets runtimes.nvidia",
    ),
    "a default later than all": (
        {f"{D}/zzz": '[crio.runtime]\ndefault_runtime = "crun"\n'},
        {"is_default": True},
        "GH2052",
        f"{D}/zzz:2: it also sets default_runtime",
    ),
    "a place that is not read": ({}, {"drop_in": "/etc/crio/a.conf"}, "GH2053", "/etc/crio/a.conf"),
    "another main file": ({}, {"config": "/etc/a.conf"}, "GH2053", "/etc/a.conf"),
    "CDI without a program": ({}, {"route": "cdi"}, "GH2051", "crun"),
    "a default without a runtime": ({}, {"route": "cdi", "is_default": True}, "GH2042", "cdi"),
    "no name": ({}, {"name": "a b"}, "GH2041", "a b"),
}


@pytest.mark.parametrize(("before", "fields", "code", "said"), REFUSED.values(), ids=REFUSED)
def test_refused_configurations(
    before: Texts, fields: dict[str, Any], code: str, said: str
) -> None:
    there = {path: text.encode("utf-8", "surrogateescape") for path, text in before.items()}
    with pytest.raises(GpuhookError) as caught:
        configured("crio", there, **fields)
    assert caught.value.code == code
    assert said in caught.value.message


def test_runtime_outside_gpuhooks_list_has_a_note() -> None:
    found = configure_crio.plan(node(files({MAIN: CRUN})), wanted())
    assert any("lowLevelRuntimes: [/usr/libexec/crio/crun]" in note for note in found.notes)
    assert not found.service.reloads
