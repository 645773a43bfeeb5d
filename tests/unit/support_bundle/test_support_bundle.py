# SPDX-License-Identifier: Apache-2.0
"""Support bundles: recorded answers equal those of the node; hostile archives are refused."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
from pathlib import Path

import pytest

from gpuhook import support_bundle
from gpuhook.errors import GpuhookError
from gpuhook.node_facts.check import ExaminedNode
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from gpuhook.support_bundle import bundle_archive, bundle_contents, bundle_records
from gpuhook.support_bundle.recorded_tree import RecordedTree, RecordingTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TOP = "gpuhook-bundle/"


def opened(path: str) -> tuple[RecordedTree, Readings]:
    """Return the tree and the readings of a bundle."""
    node = support_bundle.bundle_node(path)
    assert isinstance(node.tree, RecordedTree)
    return node.tree, node.readings


def _tree(root: Path) -> DirectoryTree:
    (root / "etc/cdi").mkdir(parents=True)
    (root / "etc/cdi/a.yaml").write_text("cdiVersion: 0.6.0\n", encoding="utf-8")
    (root / "var").mkdir()
    (root / "var/run").symlink_to("/etc")
    (root / "dangling").symlink_to("/nowhere")
    return DirectoryTree(str(root))


def _read_all(tree: RecordingTree | RecordedTree) -> list[object]:
    return [
        tree.read("/etc/cdi/a.yaml"),
        tree.read("/var/run/cdi/a.yaml", 4),
        tree.read("/etc/cdi/none"),
        tree.names("/etc/cdi/"),
        tree.names("/opt"),
        tree.status("/var/run"),
        tree.status("/var/run", follow=False),
        tree.status("/dangling"),
        tree.status("/dangling", follow=False),
        tree.real("/var/run/cdi"),
        tree.real("/dangling"),
    ]


def _replayed(recording: RecordingTree) -> RecordedTree:
    known = recording.records
    written = json.loads(json.dumps(bundle_records.document(known)))
    kept = {path: content for path, content in known.contents.items() if content is not None}
    return RecordedTree(bundle_records.parsed(written, kept))


def test_recorded_answers_are_replayed(tmp_path: Path) -> None:
    recording = RecordingTree(_tree(tmp_path))
    answers = _read_all(recording)
    assert _read_all(_replayed(recording)) == answers


def test_recorded_errors_are_replayed(tmp_path: Path) -> None:
    class Refusing(DirectoryTree):
        def read(self, path: str, limit: int = 1, *, owner: int | None = None) -> bytes | None:
            raise PermissionError(13, "Permission denied", path)

    _tree(tmp_path)
    recording = RecordingTree(Refusing(str(tmp_path)))
    with pytest.raises(PermissionError):
        recording.read("/etc/shadow")
    with pytest.raises(PermissionError) as told:
        _replayed(recording).read("/etc/shadow")
    assert told.value.filename == "/etc/shadow"


def test_unrecorded_path_is_absent_only_if_a_record_shows_it(tmp_path: Path) -> None:
    recording = RecordingTree(_tree(tmp_path))
    recording.names("/etc")
    recording.status("/opt")
    tree = _replayed(recording)
    assert tree.status("/etc/docker/daemon.json") is None
    assert tree.names("/opt/bin") == []
    with pytest.raises(OSError, match="not recorded"):
        tree.read("/etc/cdi/a.yaml")
    with pytest.raises(OSError, match="not recorded"):
        tree.names("/usr")


def test_contents_are_in_a_directory_that_is_removed_with_the_tree(tmp_path: Path) -> None:
    recording = RecordingTree(_tree(tmp_path))
    _read_all(recording)
    tree = _replayed(recording)
    root = Path(tree.root)
    assert (root / "etc/cdi/a.yaml").read_text(encoding="utf-8") == "cdiVersion: 0.6.0\n"
    assert not any(path.is_symlink() for path in root.rglob("*"))
    del tree
    assert not root.exists()


def _bundle_of_node(tmp_path: Path) -> tuple[Path, bundle_contents.Bundle]:
    (tmp_path / "node").mkdir()
    tree = _tree(tmp_path / "node")
    (tmp_path / "node/etc/os-release").write_text("ID=debian\nPASSWORD=x y\n", encoding="utf-8")
    node = bundle_contents.recording_node(
        ExaminedNode(tree, Readings({"units": lambda: {"a.service": {}}}))
    )
    _read_all(node.tree)  # type: ignore[arg-type] # contents.recorded makes it one
    made = bundle_contents.collect(node, {"doctor.json": {"token": "t"}}, {"logs/a.txt": "{}\n"})
    path = tmp_path / "bundle.tar.gz"
    bundle_archive.write(str(path), made.members, made.made)
    return path, made


def test_bundle_has_the_files_of_the_node_without_secrets(tmp_path: Path) -> None:
    path, made = _bundle_of_node(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    tree, readings = opened(str(path))
    assert tree.read("/etc/cdi/a.yaml") == b"cdiVersion: 0.6.0\n"
    assert tree.read("/etc/os-release") == b"ID=debian\n\n"
    assert readings.document("units") == {"a.service": {}}
    assert "only the files" in readings.of("containers").trouble
    manifest = json.loads(bundle_archive.read(str(path))["manifest.json"])
    assert manifest["removed"] == made.removed
    assert [(one["where"], one["what"]) for one in made.removed] == [
        ("doctor.json", "token"),
        ("files/etc/os-release", "PASSWORD"),
    ]
    assert {"what": "reading inventory", "why": readings.of("inventory").trouble} in made.left_out


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    _, made = _bundle_of_node(tmp_path)
    with pytest.raises(FileNotFoundError):
        bundle_archive.write(str(tmp_path / "none/bundle.tar.gz"), made.members, made.made)


def _packed(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
    return str(path)


def _member(name: str, content: bytes = b"{}", **facts: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    for key, value in facts.items():
        setattr(member, key, value)
    return member, content


@pytest.mark.parametrize(
    "member",
    [
        _member(TOP + "../../etc/passwd"),
        _member(TOP + "files/../x"),
        _member(TOP + "files//x"),
        _member(TOP + "link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        _member(TOP + "hard", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        _member(TOP + "device", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        _member(TOP + "directory", type=tarfile.DIRTYPE),
        _member(TOP + "fifo", type=tarfile.FIFOTYPE),
    ],
    ids=lambda member: str(member[0].name),
)
def test_members_outside_the_bundle_are_refused(
    tmp_path: Path, member: tuple[tarfile.TarInfo, bytes]
) -> None:
    with pytest.raises(GpuhookError) as told:
        opened(_packed(tmp_path / "b", member))
    assert told.value.code == "GH1907"


def test_duplicate_members_are_refused(tmp_path: Path) -> None:
    path = _packed(tmp_path / "b", _member(TOP + "a"), _member(TOP + "a"))
    with pytest.raises(GpuhookError, match="twice"):
        opened(path)


@pytest.mark.thorough
def test_many_large_members_are_refused(tmp_path: Path) -> None:
    """8 files with 31 MB each, which are in memory until the last one is read."""
    members = [_member(f"{TOP}files/{n}", bytes(31 << 20)) for n in range(8)]
    path = _packed(tmp_path / "b", *members)
    with pytest.raises(GpuhookError, match="larger than 160 MiB"):
        opened(path)


def test_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_archive, "MOST_BYTES", 1 << 20)
    path = _packed(
        tmp_path / "b", _member(TOP + "a", bytes(600_000)), _member(TOP + "b", bytes(600_000))
    )
    with pytest.raises(GpuhookError, match="larger than 1 MiB"):
        opened(path)
    monkeypatch.setattr(bundle_archive, "LARGEST", 1000)
    with pytest.raises(GpuhookError, match="600000 bytes"):
        opened(path)
    monkeypatch.setattr(bundle_archive, "LARGEST", 1 << 20)
    monkeypatch.setattr(bundle_archive, "MOST_MEMBERS", 1)
    path = _packed(tmp_path / "b", _member(TOP + "a"), _member(TOP + "b"))
    with pytest.raises(GpuhookError, match="more than 1 files"):
        opened(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", gzip.compress(b"no tar" * 100), gzip.compress(bytes(2000))[:-9]],
    ids=["empty", "text", "no-tar", "cut"],
)
def test_file_that_is_not_an_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "b"
    path.write_bytes(content)
    with pytest.raises(GpuhookError) as told:
        opened(str(path))
    assert told.value.code == "GH1906"


MANIFEST = {"schema": "gpuhook/support-bundle/v1", "driver_root": "/", "dev_root": "/"}
TREE = {
    "schema": bundle_records.SCHEMA,
    "absent": [],
    "names": {},
    "status": {},
    "lstat": {},
    "real": {},
    "errors": [],
}

STATUS = {
    **dict.fromkeys(("mode", "uid", "gid", "major", "minor", "size", "mtime"), 0),
    "target": "",
}


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("manifest.json", lambda found: {**found, "schema": "other"}),
        ("manifest.json", lambda found: {**found, "driver_root": "../.."}),
        ("manifest.json", lambda found: {"schema": found["schema"]}),
        ("manifest.json", lambda _: []),
        ("tree.json", lambda _: None),
        ("tree.json", lambda found: {**found, "names": {"/a/../b": []}}),
        ("tree.json", lambda found: {**found, "names": {"/a": "bc", "/b": [1]}}),
        ("tree.json", lambda found: {**found, "status": {"/a": {"mode": "x"}}}),
        ("tree.json", lambda found: {**found, "errors": [["look", "/a", 1]]}),
        ("tree.json", lambda found: {**found, "errors": [["read", "/a", 1 << 70]]}),
        ("tree.json", lambda found: {**found, "lstat": {"/a": {**STATUS, "mode": 1 << 70}}}),
        ("tree.json", lambda found: {**found, "lstat": {"/a": {**STATUS, "size": float("inf")}}}),
        ("tree.json", lambda found: {**found, "real": {"//a": "/"}}),
        ("readings.json", lambda _: {"units": {"document": 1}}),
        ("readings.json", lambda _: {"units": 3}),
    ],
)
def test_documents_of_another_form_are_refused(
    tmp_path: Path, name: str, spoil: Callable[[object], object]
) -> None:
    documents: dict[str, object] = {
        "manifest.json": MANIFEST,
        "tree.json": TREE,
        "readings.json": {},
    }
    whole = [_member(TOP + key, json.dumps(one).encode()) for key, one in documents.items()]
    tree, _ = opened(_packed(tmp_path / "whole", *whole))
    with pytest.raises(OSError, match="not recorded"):
        tree.read("/etc/cdi/a.yaml")
    documents[name] = spoil(documents[name])
    spoilt = [_member(TOP + key, json.dumps(one).encode()) for key, one in documents.items()]
    with pytest.raises(GpuhookError) as told:
        opened(_packed(tmp_path / "spoilt", *spoilt))
    assert told.value.code == "GH1906"


def test_deeply_nested_document_is_a_fault(tmp_path: Path) -> None:
    path = _packed(tmp_path / "b", _member(TOP + "manifest.json", b"[" * 100_000))
    with pytest.raises(GpuhookError) as told:
        opened(path)
    assert told.value.code == "GH1906"


def test_environment_of_a_process_is_not_in_a_bundle(tmp_path: Path) -> None:
    place = tmp_path / "proc/7"
    place.mkdir(parents=True)
    (place / "environ").write_text("SECRET=x", encoding="utf-8")
    node = bundle_contents.recording_node(ExaminedNode(DirectoryTree(str(tmp_path)), Readings({})))
    assert node.tree.read("/proc/7/environ") == b"SECRET=x"
    made = bundle_contents.collect(node, {}, {})
    assert "files/proc/7/environ" not in made.members
    assert os.path.basename("/proc/7/environ") in json.dumps(made.left_out)


def test_names_of_any_bytes_are_kept(tmp_path: Path) -> None:
    node = tmp_path / "node"
    name = os.fsdecode(b"a\xff\xc3\xa9 \n" + b"x" * 200)
    (node / "etc/cdi").mkdir(parents=True)
    (node / "etc/cdi" / name).write_text("kind: a", encoding="utf-8")
    seen = bundle_contents.recording_node(ExaminedNode(DirectoryTree(str(node)), Readings({})))
    made = bundle_contents.collect(seen, {}, {})
    path = str(tmp_path / "b.tar.gz")
    bundle_archive.write(path, made.members, made.made)
    tree, _ = opened(path)
    assert tree.names("/etc/cdi") == [name]
    assert tree.read(f"/etc/cdi/{name}") == b"kind: a"


def test_link_at_the_output_path_is_replaced(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine", encoding="utf-8")
    path = tmp_path / "b.tar.gz"
    path.symlink_to(kept)
    bundle_archive.write(str(path), {"a": b"b"}, 1.0)
    assert kept.read_text(encoding="utf-8") == "mine"
    assert not path.is_symlink()
    assert [one.name for one in tmp_path.iterdir() if one not in (kept, path)] == []


def test_contradictory_records_are_handled(tmp_path: Path) -> None:
    known = bundle_records.Records(
        contents={"/a": b"1", "/a/b": b"2", f"/{'n' * 300}": b"3", "/d": b"4"},
        names={"/d": [], "/a/b/c": []},
    )
    root = Path(RecordedTree(known).root)
    assert root.parent.is_dir()


def test_secrets_in_readings_are_left_out(tmp_path: Path) -> None:
    """Planted in arguments, environments, annotations, labels and messages of processes."""
    secret = "hunter2-4711"
    planted: dict[str, object] = {
        "processes": [{"pid": 1, "argv": ["dockerd", "--token", secret, f"--x={secret}"],
                       "name": "dockerd", "started": 1.0, "exe": "/x", "env": {"A": secret}}],
        "kubernetes": {"node": {"name": "n", "labels": {"team": secret, secret: "x"},
                                "annotations": {"a": secret}}, "env": [f"A={secret}"]},
        "containers": {"containers": [{"id": "a", "env": [f"A={secret}"], "args": [secret]}]},
        "containerd": {"command": "containerd config dump",
                       "config": f'version = 2\n[a]\npassword = "{secret}"\n# {secret}\n'},
        "stored": [{"id": "a", "annotations": {secret: secret}}],
    }  # fmt: skip
    collectors = {name: (lambda one=one: one) for name, one in planted.items()}
    node = bundle_contents.recording_node(
        ExaminedNode(DirectoryTree(str(tmp_path)), Readings(collectors))
    )
    made = bundle_contents.collect(node, {"ps.json": planted}, {})
    assert b"dockerd" in made.members["readings.json"]
    assert [name for name, content in made.members.items() if secret.encode() in content] == []
