# SPDX-License-Identifier: Apache-2.0
"""The NVML library that is used if there are several, or if its file was replaced."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pynvml
import pytest

from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.nvml import nvml_inventory, nvml_sessions
from tests.simulated import build, nvml_profile


def put(directory: Path, profile: str, *, old: bool = False) -> str:
    """Write a stub with `profile` to `directory` as a separate file; return its path."""
    directory.mkdir(exist_ok=True)
    library = directory / "libnvidia-ml.so.1"
    new = directory / "new"
    shutil.copy(build.nvml_stub(old=old), new)
    new.rename(library)
    (directory / "nvml-stub.profile").write_text(profile, encoding="utf-8")
    return str(library)


def test_file_is_loaded_once(tmp_path: Path) -> None:
    path = put(tmp_path, "driver 1.2\n")
    assert nvml_sessions.load(path) is nvml_sessions.load(path)


def test_upgrade_in_place_is_detected(tmp_path: Path) -> None:
    """Another file under the same path is another library, each time it is replaced."""
    path = put(tmp_path, "driver 1.2\ncuda 12000\n", old=True)
    found = []
    for old in (True, False, True, False):
        put(tmp_path, "driver 1.2\ncuda 12000\n", old=old)
        with nvml_inventory.opened(path) as answering:
            found.append(answering.cuda_version())  # the old stub lacks the call
    assert found == [None, "12.0", None, "12.0"]


def test_earlier_library_is_used_by_code_that_opened_it(tmp_path: Path) -> None:
    """Code that opened the library before an upgrade still uses it."""
    path = put(tmp_path, "driver 1.2\ncuda 12000\n")
    with nvml_inventory.opened(path) as before:
        put(tmp_path, "driver 1.2\ncuda 12000\n", old=True)
        with nvml_inventory.opened(path) as after:
            assert after.cuda_version() is None
        assert before.cuda_version() == "12.0"


def test_nested_sessions_stay_open(tmp_path: Path) -> None:
    """The end of the inner one does not shut down the outer one."""
    path = put(tmp_path, nvml_profile.text(dump_file.load("t4")))
    with nvml_inventory.opened(path) as outer:
        with nvml_inventory.opened(path) as inner:
            assert len(inner.gpus()) == 1
        assert len(outer.gpus()) == 1
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlDeviceGetCount()
    assert caught.value.value == pynvml.NVML_ERROR_UNINITIALIZED


def test_thread_without_a_library_uses_the_last_opened(tmp_path: Path) -> None:
    """Code that opened none can call NVML while other code has it open."""
    t4 = put(tmp_path / "t4", nvml_profile.text(dump_file.load("t4")))
    h100 = put(tmp_path / "h100", nvml_profile.text(dump_file.load("h100x8")))
    counts: list[int] = []

    def count() -> None:
        thread = threading.Thread(target=lambda: counts.append(pynvml.nvmlDeviceGetCount()))
        thread.start()
        thread.join()

    with nvml_inventory.opened(t4):
        count()
        with nvml_inventory.opened(h100):
            count()
        count()
    assert counts == [1, 8, 1]


def test_gpus_plugged_in_later_need_a_new_start(tmp_path: Path) -> None:
    """NVML counts the GPUs once, at its start; other values change."""
    gpu = "gpu\nuuid GPU-1\nname A\n"
    path = put(tmp_path, "driver 1.2\n" + gpu)
    with nvml_inventory.opened(path) as outer:
        (tmp_path / "nvml-stub.profile").write_text("driver 1.2\n" + gpu.replace("A", "BB") * 2)
        with nvml_inventory.opened(path) as inner:
            assert [gpu.name for gpu in inner.gpus()] == ["BB"]
        assert [gpu.name for gpu in outer.gpus()] == ["BB"]
    with nvml_inventory.opened(path) as fresh:
        assert [gpu.name for gpu in fresh.gpus()] == ["BB", "BB"]
