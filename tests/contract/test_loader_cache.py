# SPDX-License-Identifier: Apache-2.0
"""The real dynamic loader reads the merged cache in a separate root file system."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuhook.loader import ld_cache

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(os.getuid() != 0, reason="chroot needs root"),
]

PROBE = """
#include <dlfcn.h>
#include <stdio.h>
int main(int n, char **names) {
    for (int i = 1; i < n; i++) {
        void *library = dlopen(names[i], RTLD_NOW);
        const char *(*where)(void) = library ? dlsym(library, "where") : 0;
        puts(where ? where() : "none");
    }
}
"""


def library(path: Path, soname: str) -> None:
    """Build a library with a function that returns its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(f'const char *where(void) {{ return "{path.parent.name}"; }}')
    command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-o", str(path)]
    subprocess.run([*command, str(source)], check=True)
    source.unlink()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the machine's libc, a dlopen probe and an image's libraries."""
    made = tmp_path_factory.mktemp("root")
    (made / "probe.c").write_text(PROBE)
    subprocess.run(["gcc", "-o", str(made / "probe"), str(made / "probe.c")], check=True)
    for line in subprocess.check_output(["ldd", str(made / "probe")], text=True).splitlines():
        path = next((word for word in line.split() if word.startswith("/")), None)
        if path:
            (made / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, made / path[1:])
    library(made / "image/libcuda.so.1", "libcuda.so.1")
    library(made / "image/libmine.so.3", "libmine.so.3")
    library(made / "driver/libcuda.so.1", "libcuda.so.1")
    library(made / "driver/libnvidia-ml.so.1", "libnvidia-ml.so.1")
    for level in ("x86-64-v2", "x86-64-v3"):
        library(made / f"image/glibc-hwcaps/{level}/libmine.so.3", "libmine.so.3")
        library(made / f"image/glibc-hwcaps/{level}/libcuda.so.1", "libcuda.so.1")
    (made / "etc").mkdir()
    (made / "etc/ld.so.conf").write_text("/image\n")
    return made


def opened(root: Path, *names: str) -> list[str]:
    """Return the directory that each of `names` was loaded from."""
    command = ["chroot", str(root), "/probe", *names]
    return subprocess.check_output(
        command, text=True, env={"PATH": "/usr/sbin:/usr/bin:/sbin"}
    ).splitlines()


def ldconfig(root: Path, form: str) -> bytes:
    subprocess.run(["ldconfig", "-r", str(root), "-c", form], check=True)
    return (root / "etc/ld.so.cache").read_bytes()


@pytest.mark.parametrize("form", ["new", "compat", "old"])
def test_merged_cache_prefers_the_driver(form: str, root: Path) -> None:
    """The loader opens the driver's copy before the image's, and the image's other libraries.

    This includes copies in a glibc-hwcaps directory of the image.
    """
    image = ldconfig(root, form)
    # In the new format glibc selects the best level that this processor supports.
    own = opened(root, "libmine.so.3") if form == "new" else None
    flags = ld_cache.flags_for(os.uname().machine)
    add = [(b"libcuda.so.1", b"/driver/libcuda.so.1")]
    add.append((b"libnvidia-ml.so.1", b"/driver/libnvidia-ml.so.1"))
    (root / "etc/ld.so.cache").write_bytes(ld_cache.merged(image, add, flags=flags))
    assert opened(root, "libcuda.so.1", "libnvidia-ml.so.1") == ["driver", "driver"]
    if own:
        assert opened(root, "libmine.so.3") == own
    assert opened(root, "libmine.so.3", "libnone.so")[1] == "none"


def test_new_cache_contains_the_driver(root: Path) -> None:
    """In an image without a cache, the loader opens the driver by a new one."""
    add = [(b"libcuda.so.1", b"/driver/libcuda.so.1")]
    flags = ld_cache.flags_for(os.uname().machine)
    (root / "etc/ld.so.cache").write_bytes(ld_cache.merged(None, add, flags=flags))
    assert opened(root, "libcuda.so.1", "libmine.so.3") == ["driver", "none"]
