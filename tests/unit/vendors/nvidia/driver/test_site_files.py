# SPDX-License-Identifier: Apache-2.0
"""files.d: files that a site adds to the driver's, files that it drops, and errors in its rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi.hot import compiled_spec
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.discover import Roots
from gpuhook.vendors.nvidia.driver import driver_files, site_rules
from gpuhook.vendors.nvidia.hot import capability_filter, vocabulary
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import DriverFile
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from tests.simulated import elf_maker, elf_maker_32
from tests.simulated.node import make_node

V = "580.95.05"
LIB = "/usr/lib64"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a small driver."""
    made = tmp_path / "root"
    (made / LIB[1:]).mkdir(parents=True)
    for stem in ("libcuda", "libnvidia-ml", "libnvidia-gtk3"):
        elf_maker.write(made / f"{LIB[1:]}/{stem}.so.{V}", f"{stem}.so.1")
    (made / f"{LIB[1:]}/libnvidia-ml.so").symlink_to("libnvidia-ml.so.1")
    (made / f"{LIB[1:]}/libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{V}")
    return made


def rules(root: Path, text: str, name: str = "site.yaml") -> str:
    """Write a file of rules next to `root`, and return its directory."""
    directory = root.parent / "files.d"
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text, encoding="utf-8")
    return str(directory)


def files_with_rules(root: Path, text: str) -> driver_files.DriverFileFacts:
    """Return the driver's files according to these rules."""
    return driver_files.find(Roots(str(root), files_dir=rules(root, text)))


def by_path(all_of_them: driver_files.DriverFileFacts) -> dict[str, DriverFile]:
    """Return the files by their path in containers."""
    return {file.container_path: file for file in all_of_them.files}


def test_without_rules_nothing_changes(root: Path) -> None:
    """No directory, an empty one, and files of comments or of another kind add nothing."""
    plain = driver_files.find(Roots(str(root), files_dir=str(root / "none")))
    rules(root, "not: yaml: at all", "README")
    assert files_with_rules(root, "# nothing yet\n") == plain


def test_added_files_have_their_kinds(root: Path) -> None:
    """Libraries, programs, directories and plain files, with their paths."""
    elf_maker.write(root / "usr/lib64/libsite.so.3", "libsite.so.3")
    for path, mode in (("usr/bin/site-tool", 0o755), ("etc/site.conf", 0o644)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("#")
        (root / path).chmod(mode)
    (root / "opt/site").mkdir(parents=True)
    (root / "opt/link.conf").symlink_to("/etc/site.conf")
    text = """
add:
- path: /usr/lib64/libsite.so.3
  capabilities: [video, compute]
- {path: /usr/bin/site-tool, containerPath: /usr/local/bin/tool}
- path: /opt/link.conf
- path: /opt/site
"""
    seen = by_path(files_with_rules(root, text))
    assert seen[f"{LIB}/libsite.so.3"] == DriverFile(
        "library", f"{root}{LIB}/libsite.so.3", f"{LIB}/libsite.so.3", "libsite.so.3",
        ("compute", "video"),
    )  # fmt: skip
    assert seen["/usr/local/bin/tool"].kind == "binary"
    assert seen["/opt/link.conf"] == DriverFile("config", f"{root}/etc/site.conf", "/opt/link.conf")
    assert seen["/opt/site"].kind == "directory"


def test_dropped_files_take_their_links_along(root: Path) -> None:
    """A glob of host or container paths drops files; no link to a dropped file remains."""
    seen = files_with_rules(
        root, f'drop: ["{LIB}/libnvidia-gtk3.so.*", "{root}/*/libnvidia-ml.so.{V}"]'
    )
    assert set(by_path(seen)) == {f"{LIB}/libcuda.so.{V}"}
    assert {link.path for link in seen.links} == {f"{LIB}/libcuda.so"}
    assert {link.path for link in files_with_rules(root, 'drop: ["*/libcuda.so"]').links} == {
        f"{LIB}/libnvidia-ml.so"
    }


def test_added_file_replaces_the_drivers(root: Path) -> None:
    """The site's capabilities of the path apply."""
    elf_maker.write(root / "opt.so", "libnvidia-gtk3.so.1")
    place = f"{LIB}/libnvidia-gtk3.so.{V}"
    seen = files_with_rules(root, f"add: [{{path: /opt.so, containerPath: {place}}}]")
    assert [f.host_path for f in seen.files if f.container_path == place] == [f"{root}/opt.so"]


def test_invalid_file_is_a_warning(root: Path) -> None:
    """A file that is missing, or of another kind, has a warning with its line."""
    (root / "plain").write_text("#")
    elf_maker_32.write(root / "narrow.so", "libnarrow.so.1")
    (root / "out").symlink_to("../../../etc/passwd")
    text = """
add:
- path: /gone
- {path: /plain, kind: library}
- {path: /narrow.so, containerPath: /usr/lib64/libnarrow.so.1}
- path: /out
"""
    seen = files_with_rules(root, text)
    file = root.parent / "files.d/site.yaml"
    narrow = "which containers find only in /usr/lib32 or an i386-linux-gnu directory; skipped"
    assert seen.warnings == (
        f"{file}, line 3: {root}/gone does not exist; skipped",
        f"{file}, line 4: {root}/plain is not a shared library; skipped",
        f"{file}, line 5: {root}/narrow.so is a 32-bit library, {narrow}",
        f"{file}, line 6: {root}/out does not exist; skipped",
    )
    assert len(seen.files) == 3


def test_added_32_bit_library_has_the_32_bit_directory(root: Path) -> None:
    """Unless the site sets a path."""
    elf_maker_32.write(root / "narrow.so", "libnarrow.so.1")
    assert "/usr/lib32/narrow.so" in by_path(files_with_rules(root, "add: [{path: /narrow.so}]"))


@pytest.mark.parametrize(
    ("text", "code", "line", "says"),
    [
        ("add: [", "GH1243", 1, "expected the node content"),
        ("drop:\n- a\n -b: c\n: :", "GH1243", 3, ""),
        ("- path: /x", "GH1244", 1, "is not of type 'object'"),
        ("\nadds: []", "GH1244", 2, "adds"),
        ("add:\n- path: x", "GH1244", 2, "'x' does not match"),
        ("add:\n- path: /x\n- kind: config", "GH1244", 3, "'path' is a required property"),
        ("add:\n- path: /x\n  kind: device", "GH1244", 3, "'device' is not one of"),
        ("add:\n- path: /x\n  capabilities: [cuda]", "GH1244", 3, "'cuda' is not one of"),
        ("add:\n- path: /x\n  capabilities: []", "GH1244", 3, "capabilities"),
        ("drop:\n- nvidia", "GH1244", 2, "'nvidia' does not match"),
        ("add:\n- path: /x\n- path: /dev/x", "GH1245", 3, "/dev/x"),
        ("add:\n- {path: /x, containerPath: /a/../proc/y}", "GH1245", 2, "/a/../proc/y"),
    ],
)
def test_malformed_rules_are_faults_with_file_and_line(
    text: str, code: str, line: int, says: str, root: Path
) -> None:
    """No spec is written."""
    with pytest.raises(GpuhookError) as caught:
        files_with_rules(root, text)
    assert caught.value.code == code
    assert f"files.d/site.yaml, line {line}" in caught.value.message
    assert says in caught.value.message


@given(text=st.text(max_size=200) | st.binary(max_size=200).map(repr))
def test_any_text_is_valid_or_a_fault(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No content of such a file causes a traceback."""
    directory = tmp_path_factory.mktemp("any")
    (directory / "a.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        site_rules.read(str(directory))
        code = "none"
    except GpuhookError as error:
        code = error.code
    assert code in ("none", "GH1243", "GH1244", "GH1245")


def test_capabilities_of_an_added_file_apply_at_create(tmp_path: Path) -> None:
    """The wrapper filters by the site's capabilities, which the file's name does not show."""
    made = make_node(tmp_path / "node", dump_file.load("t4"))
    place = "/usr/lib64/libsite.so"
    (Path(made.driver_root) / "usr/lib64").mkdir(parents=True, exist_ok=True)
    elf_maker.write(made.driver_root + place, "libsite.so.1")
    text = f"add:\n- path: {place}\n  capabilities: [video]\n"
    directory = rules(Path(made.driver_root), text)
    where = discover.Roots(made.driver_root, made.dev_root, made.host_root, files_dir=directory)
    node = discover.node(where)
    assert dump_file.parse(dump_file.text(node, "yaml").encode(), "node").files == node.files
    spec = describe(node, Choices()).spec
    compiled = compiled_spec.of_spec("nvidia.yaml", spec)
    for asked, gets in (("video,utility", True), ("compute,utility", False)):
        capabilities = vocabulary.parse_capabilities(asked)
        kept = capability_filter.filter_edits(compiled, spec["containerEdits"], capabilities)
        assert (place in {m["containerPath"] for m in kept["mounts"]}) is gets
        job = hook_args.of_hook(kept["hooks"][0])
        job.keep(capability_filter.chooser(job.needs, capabilities))
        assert ((place, "libsite.so.1") in job.libraries) is gets
        limited = describe(node, Choices(capabilities=capabilities)).spec["containerEdits"]
        assert (place in {m["containerPath"] for m in limited["mounts"]}) is gets
