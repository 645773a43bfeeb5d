# SPDX-License-Identifier: Apache-2.0
"""The CSV files of a Tegra system: their lines, and what these mean below a root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.vendors.nvidia.discover import Roots
from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot
from gpuhook.vendors.nvidia.inventory.inventory import Link
from gpuhook.vendors.nvidia.modes.tegra import csv_files, link_patterns
from gpuhook.vendors.nvidia.modes.tegra.csv_files import KINDS, Line
from gpuhook.vendors.nvidia.modes.tegra.tegra_files import Search
from tests.simulated import elf_maker


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("dev, /dev/nvmap", Line("dev", "/dev/nvmap")),
        ("dev ,/dev/path", Line("dev", "/dev/path")),
        ("  lib\t,\t/a/path  ", Line("lib", "/a/path")),
        ("lib,/a/path,with,commas", Line("lib", "/a/path,with,commas")),
        ("sym, //usr//lib/./libx.so", Line("sym", "/usr/lib/libx.so")),
        ("dir, /a/../../etc", Line("dir", "/etc")),
        ("lib, libx.so.1", Line("lib", "libx.so.1")),
        ("dev, /dev/nvhost-*", Line("dev", "/dev/nvhost-*")),
    ],
)
def test_lines_of_a_file(text: str, line: Line) -> None:
    assert csv_files.parse(text.encode(), "x.csv") == ([line], [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\x00", "'\\x00' is not `kind, path`"),
        (b",", "'' is not one of dev, dir, lib, sym"),
        (b"dev,", "it has no path"),
        (b"dev", "'dev' is not `kind, path`"),
        (b"not-dev ,/a/path", "'not-dev' is not one of dev, dir, lib, sym"),
        (b"DEV, /a", "'DEV' is not one of dev, dir, lib, sym"),
        (b"dev, nvmap", "'nvmap' is not an absolute path"),
        (b"lib, ../../x", "'../../x' is not an absolute path"),
        (b"lib, /a\x07b", "its path is too long, or has unprintable characters"),
        (b"lib, /" + b"a" * 5000, "its path is too long, or has unprintable characters"),
        (b"lib, /\xff", "it is not UTF-8"),
        (b"dev, /etc/node", "'/etc/node' is not below /dev"),
        (b"dev, /dev/../proc/x", "'/proc/x' is not below /dev"),
        (b"dir, /", "'/' belongs to each container itself"),
        (b"dir, /usr/../proc/", "'/proc' belongs to each container itself"),
        (b"lib, /proc/1/environ", "'/proc/1/environ' belongs to each container itself"),
        (b"sym, /sys", "'/sys' belongs to each container itself"),
        (b"dir, /dev", "'/dev' belongs to each container itself"),
    ],
)
def test_malformed_line_is_left_out_with_a_warning(line: bytes, reason: str) -> None:
    content = b"dev, /dev/nvmap\n" + line + b"\nlib, /a\n"
    lines, wrong = csv_files.parse(content, "/etc/x.csv")
    assert lines == [Line("dev", "/dev/nvmap"), Line("lib", "/a")]
    assert wrong == [f"/etc/x.csv, line 2: {reason}; it is skipped"]


@pytest.mark.parametrize("text", [b"", b"\n\n \t\n", b"# dev, /dev/x\n", b"#\r\n\r\n"])
def test_empty_lines_and_comments_are_ignored(text: bytes) -> None:
    assert csv_files.parse(text, "x") == ([], [])


def test_many_malformed_lines_are_counted() -> None:
    _, wrong = csv_files.parse(b"nonsense\n" * 100, "x.csv")
    assert len(wrong) == 9
    assert wrong[-1] == "x.csv: 92 more lines are skipped"


def test_endless_file_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_MAX_SIZE", 1 << 20)
    content = b"dev, /dev/a\n" * 200_000
    lines, (wrong,) = csv_files.parse(content, "x.csv")
    assert lines == [Line("dev", "/dev/a")]
    assert wrong == "x.csv: only its first 1 MiB were read"


@given(st.binary(max_size=300))
def test_any_bytes_are_lines_or_warnings(content: bytes) -> None:
    lines, wrong = csv_files.parse(content, "x.csv")
    assert all(line.kind in KINDS and line.path.isprintable() for line in lines)
    assert all("x.csv" in sentence for sentence in wrong)


def tree(root: Path, *links_and_files: str) -> DriverRoot:
    """Make `path` or `path -> target` below `root`."""
    for entry in links_and_files:
        path, _, target = entry.partition(" -> ")
        place = Path(f"{root}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        if target:
            place.symlink_to(target)
        else:
            place.write_text("x")
    return DriverRoot(str(root))


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("/lib/libnv*.so", ["/lib/libnva.so", "/lib/libnvb.so"]),
        ("/lib/libnv?.so", ["/lib/libnva.so", "/lib/libnvb.so"]),
        ("/lib/libnv[a].so", ["/lib/libnva.so"]),
        ("/*/libnva.so", ["/lib/libnva.so"]),
        ("/lib/*/deep", ["/lib/below/deep"]),
        ("/lib/*", ["/lib/below", "/lib/libnva.so", "/lib/libnvb.so", "/lib/odd[1]"]),
        ("/lib/odd[1]", ["/lib/odd[1]"]),
        ("/lib/none*", []),
        ("/out/passwd", []),
        ("/out/*", []),
    ],
)
def test_patterns_match_in_one_directory(pattern: str, found: list[str], tmp_path: Path) -> None:
    """They match names in one directory; a link out of the root has no match."""
    root = tree(
        tmp_path,
        "/lib/libnva.so",
        "/lib/libnvb.so",
        "/lib/gone.so -> nowhere",
        "/lib/below/deep",
        "/lib/odd[1]",
        "/out -> ../../../../../../../../etc",
    )
    assert link_patterns.matches(root, pattern) == found


def test_chain_has_each_link_and_its_end(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        "/lib/liba.so -> sub/liba.so.1",
        "/lib/sub/liba.so.1 -> ../../opt/liba.so.1.2",
        "/opt/liba.so.1.2",
    )
    assert link_patterns.chain(root, "/lib/liba.so") == (
        [
            Link("/lib/liba.so", "sub/liba.so.1"),
            Link("/lib/sub/liba.so.1", "../../opt/liba.so.1.2"),
        ],
        "/opt/liba.so.1.2",
    )


def test_link_in_a_linked_directory(tmp_path: Path) -> None:
    """A container may have that directory at another path: the target is absolute."""
    root = tree(
        tmp_path, "/lib -> usr/lib", "/usr/lib/liba.so -> a/liba.so.1", "/usr/lib/a/liba.so.1"
    )
    found, end = link_patterns.chain(root, "/lib/liba.so")
    assert found == [Link("/lib/liba.so", "/usr/lib/a/liba.so.1")]
    assert end == "/usr/lib/a/liba.so.1"


@pytest.mark.parametrize("entry", ["/a -> a", "/a -> b", "/a -> /b/..", "/a -> gone/x"])
def test_circular_and_dangling_links_have_no_end(entry: str, tmp_path: Path) -> None:
    root = tree(tmp_path, entry, "/b -> a")
    found, end = link_patterns.chain(root, "/a")
    assert end is None
    assert len(found) <= 40


def test_absolute_link_stays_inside_the_root(tmp_path: Path) -> None:
    root = tree(tmp_path, "/lib/x -> /etc/passwd", "/etc/passwd")
    assert link_patterns.chain(root, "/lib/x") == ([Link("/lib/x", "/etc/passwd")], "/etc/passwd")
    os.unlink(tmp_path / "etc/passwd")
    assert link_patterns.chain(root, "/lib/x")[1] is None


@pytest.mark.parametrize(
    ("pattern", "is_ignored"),
    [
        ("**/*.so", True),
        ("**/liba.*", True),
        ("**/lib", False),
        ("/usr/lib/liba.so", True),
        ("/usr/*/liba.so", True),
        ("/usr/*", False),
        ("*.so", False),
        ("*", False),
    ],
)
def test_patterns_of_ignored_links(pattern: str, is_ignored: bool) -> None:
    assert link_patterns.is_ignored("/usr/lib/liba.so", ("/other", pattern)) == is_ignored


def search(
    root: Path, *texts: str, ignored: tuple[str, ...] = (), paths: tuple[str, ...] = ()
) -> tuple[Search, list[Line]]:
    lines, wrong = csv_files.parse("\n".join(texts).encode(), "x")
    assert not wrong
    return Search(Roots(str(root), str(root), library_search_paths=paths), ignored), lines


def test_lines_become_mounts_and_links(tmp_path: Path) -> None:
    """A library is mounted at its real path; a link is created, and its target is mounted."""
    elf_maker.write(_below(tmp_path, "/lib/libx.so.1.2"), "libx.so.1")
    tree(
        tmp_path,
        "/lib/libx.so.1 -> libx.so.1.2",
        "/lib/libx.so -> libx.so.1.2",
        "/opt/y -> /lib/libx.so",
        "/etc/conf",
        "/srv/samples/one",
        "/srv/samples/two -> one",
        "/dev/file",
    )
    where, lines = search(
        tmp_path,
        "lib, /lib/libx.so.1",
        "lib, /etc/conf",
        "lib, /srv/samples",
        "sym, /opt/y",
        "sym, /srv/samples/two",
        "sym, /opt/gone",
        "dev, /dev/file",
        "dev, /dev/none*",
        "dir, /etc/conf",
    )
    found = where.of(lines)
    kinds = {path: (file.kind, file.soname) for path, file in found.files.items()}
    assert kinds == {
        "/lib/libx.so.1.2": ("library", "libx.so.1"),
        "/etc/conf": ("config", None),
        "/srv/samples": ("directory", None),
        "/srv/samples/one": ("config", None),
    }
    # A file in a mounted directory needs no link.
    assert {link.path: link.target for link in found.links.values()} == {
        "/lib/libx.so": "libx.so.1",
        "/opt/y": "/lib/libx.so",
    }
    assert found.nodes == {}
    assert found.missing == ["/opt/gone", "/dev/file", "/dev/none*", "/etc/conf"]
    assert found.warnings == ["missing on this system: /opt/gone, /dev/file, /dev/none*, /etc/conf"]


def test_library_names_are_searched(tmp_path: Path) -> None:
    """A name without a directory is searched in the search paths, then at the root's top."""
    elf_maker.write(_below(tmp_path, "/a/libx.so"), "libx.so")
    elf_maker.write(_below(tmp_path, "/b/libx.so"), "libx.so")
    where, lines = search(tmp_path, "lib, libx.so", paths=("/c", "/b", "/a"))
    assert list(where.of(lines).files) == ["/b/libx.so"]
    where, lines = search(tmp_path, "lib, a/libx.so")
    assert list(where.of(lines).files) == ["/a/libx.so"]


def test_expected_links_are_added(tmp_path: Path) -> None:
    for name, soname in (
        ("libcuda.so.1.1", "libcuda.so.1"),
        ("libGLX_nvidia.so.540.4.0", "libGLX_nvidia.so.0"),
        ("libnvidia-opticalflow.so.540.4.0", "libnvidia-opticalflow.so.1"),
    ):
        elf_maker.write(_below(tmp_path, f"/lib/{name}"), soname)
    where, lines = search(tmp_path, "lib, /lib/*")
    assert {link.path: link.target for link in where.of(lines).links.values()} == {
        "/lib/libcuda.so": "libcuda.so.1",
        "/lib/libGLX_indirect.so.0": "libGLX_nvidia.so.540.4.0",
        "/lib/libnvidia-opticalflow.so": "libnvidia-opticalflow.so.1",
    }


def test_ignored_links_are_not_reported_as_missing(tmp_path: Path) -> None:
    tree(tmp_path, "/lib/a.so -> b", "/lib/b")
    where, lines = search(tmp_path, "sym, /lib/a.so", "sym, /gone.so", ignored=("**/*.so",))
    found = where.of(lines)
    assert (found.links, found.files, found.missing) == ({}, {}, [])


def _below(root: Path, path: str) -> Path:
    place = Path(f"{root}{path}")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def test_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    """A tree that is not the host's own may contain any kind of file."""
    os.mkfifo(tmp_path / "l4t.csv")
    with pytest.raises(OSError, match="not a regular file"):
        csv_files.read(str(tmp_path / "l4t.csv"))


def test_directories_of_the_container_are_not_mounted(tmp_path: Path) -> None:
    for name in ("proc/1", "sys", "dev", "opt"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/1/environ").write_text("SECRET=1")
    (tmp_path / "opt/all").symlink_to("/proc")
    (tmp_path / "opt/lib.so").symlink_to("/proc/1/environ")
    (tmp_path / "opt/file").write_text("x")
    search = Search(Roots(str(tmp_path), str(tmp_path)))
    lines = [("dir", "/*"), ("lib", "/opt/*"), ("sym", "/opt/*"), ("lib", "/p*/*/*")]
    found = search.of(Line(kind, path) for kind, path in lines)
    assert sorted(file.host_path for file in found.files.values()) == [
        str(tmp_path / "opt"),
        str(tmp_path / "opt/file"),
    ]
