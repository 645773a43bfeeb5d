# SPDX-License-Identifier: Apache-2.0
"""The root file system of the container: the C library of the host, and nothing of the driver."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.setup.minimal_root import minimal_root
from gpuhook.vendors.nvidia.gpu.nvidia_summary import SMI


def compiled(place: Path, text: str, *options: str) -> Path:
    """Compile a C program or library."""
    words = ["gcc", "-xc", "-", "-xnone", *options, "-o", str(place)]
    subprocess.run(words, input=text.encode(), check=True)
    return place


def test_libraries_of_a_program(tmp_path: Path) -> None:
    """A program finds its libraries in the root; a library of the driver is left out."""
    name = "libnvidia-x.so.1"
    library = compiled(tmp_path / name, "int x;", "-shared", "-fPIC", f"-Wl,-soname,{name}")
    options = ("-Wl,--no-as-needed", str(library), f"-Wl,-rpath,{tmp_path}")
    program = compiled(tmp_path / "program", "int main(void) { return 0; }", *options)
    places = [str(program), "/nowhere"]
    with minimal_root(HostPrograms(Host()), places, driver=SMI.libraries) as root:
        files = {path.name for path in Path(root.path).rglob("*") if path.is_file()}
        assert "libc.so.6" in files
        assert any(name.startswith("ld-") for name in files)
        assert library.name not in files
        root.pack()
        with tarfile.open(root.archive) as archive:
            members = {one.name: one for one in archive}
        assert {"dev", "proc", "usr/bin"} < members.keys()
        assert {(one.uid, one.gid) for one in members.values()} == {(0, 0)}
        assert any(name.endswith("/libc.so.6") for name in members)
    assert not os.path.exists(root.place)


NOEXEC = """
mount -t tmpfs -o noexec tmpfs "$1" && TMPDIR=$1 exec "$0" -c '
import os
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.setup.minimal_root import minimal_root
with minimal_root(HostPrograms(Host()), ["/bin/sh"]) as root:
    print(os.statvfs(root.path).f_flag & os.ST_NOEXEC, root.place)
'
"""


def test_temporary_files_that_do_not_run(tmp_path: Path) -> None:
    """The libraries of a bundle are where the kernel maps them as code."""
    words = ["unshare", "--mount", "sh", "-c", NOEXEC, sys.executable, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    flag, place = done.stdout.split()
    assert flag == "0"
    assert not os.path.exists(place)


def test_static_program(tmp_path: Path) -> None:
    program = compiled(tmp_path / "program", "int main(void) { return 0; }", "-static")
    with minimal_root(HostPrograms(Host()), [str(program)]) as root:
        assert not [path for path in Path(root.path).rglob("*") if path.is_file()]
