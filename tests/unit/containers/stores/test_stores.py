# SPDX-License-Identifier: Apache-2.0
"""The containers in the files of Docker, podman and containerd, and in broken and hostile files."""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers.stores import bolt, containerd_store, docker_store, libpod
from gpuhook.containers.stores.bolt import BrokenBoltError, Bucket
from gpuhook.containers.stores.stored_container import StoredContainer
from tests.unit.containers.stores.real_files import (
    CONTAINERD_DATABASE,
    DOCKER_CONFIG,
    DOCKER_ID,
    PODMAN_DATABASE,
    PODMAN_ID,
    MemoryFiles,
)

META = f"{containerd_store.ROOT}/io.containerd.metadata.v1.bolt/meta.db"


def docker(content: bytes) -> StoredContainer | None:
    files = MemoryFiles({f"/docker/containers/{DOCKER_ID}/config.v2.json": content})
    return next(docker_store.containers(files, "/docker"), None)


def test_container_of_docker() -> None:
    """Docker has the name, the image, and Compose's labels."""
    assert docker(DOCKER_CONFIG) == StoredContainer(
        "docker", DOCKER_ID, "c-web-1", "probe:1", "c", "web", is_running=True
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"Name": 7},
        {"Name": "/\x1b[31mred"},
        {"Name": "/a b"},
        {"Name": "/" + "a" * 300},
        {"Name": ["/a"]},
        {"Name": "/../../etc"},
    ],
    ids=["number", "escape", "space", "long", "list", "path"],
)
def test_name_that_docker_does_not_accept(wrong: dict[str, Any]) -> None:
    found = docker(json.dumps({**json.loads(DOCKER_CONFIG), **wrong}).encode())
    assert found is not None
    assert (found.name, found.image) == ("", "probe:1")


@pytest.mark.parametrize(
    "wrong",
    [[], {"Image": 7, "Labels": []}, {"Image": "a\nb"}, {"Image": "a" * 600, "Labels": {"a": 1}}],
    ids=["list", "types", "line", "long"],
)
def test_image_and_labels_of_wrong_types(wrong: Any) -> None:
    found = docker(json.dumps({**json.loads(DOCKER_CONFIG), "Config": wrong}).encode())
    assert found is not None
    assert (found.name, found.image, found.service) == ("c-web-1", "", "")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"[" * 100_000, b"\xff\xfe"])
def test_broken_config_of_docker(content: bytes) -> None:
    found = docker(content)
    assert found == StoredContainer("docker", DOCKER_ID, "")


def test_data_roots_of_docker() -> None:
    """daemon.json can name one; the usual ones are those of the packages and of the snap."""
    assert list(docker_store.data_roots(MemoryFiles({}))) == [
        docker_store.ROOT,
        docker_store.SNAP_ROOT,
    ]
    for text, root in (
        ('{"data-root": "/data"}', "/data"),
        ('{"data-root": 7}', None),
        ("{", None),
    ):
        found = docker_store.data_roots(MemoryFiles({docker_store.CONFIG: text.encode()}))
        assert next(found) == (root or docker_store.ROOT)


@pytest.mark.parametrize(
    ("sources", "root"),
    [
        ([f"/data/containers/{DOCKER_ID}/hostname"], "/data"),
        (["/proc", f"/data/containers/{DOCKER_ID}/hosts"], ""),
        (["relative/containers/a/hostname", 7], ""),
        ([f"/a/containers/b/containers/{DOCKER_ID}/hostname"], "/a/containers/b"),
    ],
)
def test_data_root_by_the_mounts_of_a_container(sources: list[Any], root: str) -> None:
    spec = {"mounts": [{"source": one} for one in sources]}
    assert docker_store.data_root_of(spec) == root


def test_data_root_without_mounts() -> None:
    for spec in ({}, {"mounts": 7}, {"mounts": [7]}):
        assert docker_store.data_root_of(spec) == ""


def podman(content: bytes) -> list[StoredContainer]:
    files = {"/s/db.sql": content, f"/s/overlay-containers/{PODMAN_ID}/userdata/config.json": b""}
    return list(libpod.containers(MemoryFiles(files), "/s"))


def test_container_of_podman() -> None:
    """The database of podman 5 has its JSON as bytes."""
    (found,) = podman(PODMAN_DATABASE)
    assert (found.engine, found.id, found.name) == ("podman", PODMAN_ID, "train")
    assert found.image == "localhost/probe:1"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs sqlite3's deserialize()")
def test_database_of_podman_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libpod, "TemporaryDirectory", None)
    assert podman(PODMAN_DATABASE)


ROWS = f"AS SELECT 1 AS number, '{json.dumps({'id': PODMAN_ID})}' AS JSON"
VIRTUAL = "CREATE VIRTUAL TABLE ContainerConfig USING "
VIRTUAL += "fts5(JSON, content='rows', content_rowid='number')"


@pytest.mark.parametrize(
    "schema", [[f"CREATE VIEW ContainerConfig {ROWS}"], [f"CREATE VIEW rows {ROWS}", VIRTUAL]]
)
def test_computed_rows_of_podman_are_not_read(schema: list[str], tmp_path: Path) -> None:
    """The rows of a view, and of a virtual table above it, may be endless."""
    with closing(sqlite3.connect(tmp_path / "db.sql")) as database, database:
        for statement in schema:
            database.execute(statement)
        assert database.execute("SELECT JSON FROM ContainerConfig").fetchall()
    assert podman((tmp_path / "db.sql").read_bytes()) == []


@pytest.mark.parametrize("size", [0, 1, 99, 4096, 20000])
def test_truncated_database_of_podman(size: int) -> None:
    assert podman(PODMAN_DATABASE[:size]) == []


def containerd(content: bytes) -> list[tuple[str, StoredContainer]]:
    return list(containerd_store.containers(MemoryFiles({META: content}), containerd_store.ROOT))


def test_container_of_ctr() -> None:
    """It has an image and no name; those of Docker have their names elsewhere."""
    image = "docker.io/library/probe:1"
    assert containerd(CONTAINERD_DATABASE) == [
        ("default", StoredContainer("containerd", "myctr", "", image))
    ]
    whole = bolt.root(CONTAINERD_DATABASE).bucket(b"v1", b"moby", b"containers")
    assert whole is not None
    assert DOCKER_ID.encode() in dict(whole.entries())


@pytest.mark.parametrize("size", [0, 1, 40, 4096, 8192, 65536, 200_000])
def test_truncated_database_of_containerd(size: int) -> None:
    """It has the container or not; there is no error."""
    assert containerd(CONTAINERD_DATABASE[:size]) in ([], containerd(CONTAINERD_DATABASE))


def test_database_that_containerd_writes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with another number was written while the file was read: it is read again."""
    whole = containerd(CONTAINERD_DATABASE)
    contents = [CONTAINERD_DATABASE[:8192] + bytes(len(CONTAINERD_DATABASE) - 8192)]
    contents.append(CONTAINERD_DATABASE)
    monkeypatch.setattr(MemoryFiles, "read", lambda *_: contents.pop(0))
    assert containerd(b"") == whole
    assert not contents


def test_corrupt_database_of_containerd() -> None:
    """Pages with any numbers end, and raise no other error."""
    chance = random.Random(1)
    for _ in range(200):
        content = bytearray(CONTAINERD_DATABASE)
        for _ in range(chance.randrange(1, 40)):
            page = chance.randrange(len(content) // 4096) * 4096
            content[page + chance.randrange(64)] = chance.randrange(256)
        try:
            walk(bolt.root(bytes(content)))
        except BrokenBoltError:
            continue


def walk(bucket: Bucket, depth: int = 0) -> None:
    for _, value in bucket.entries():
        if isinstance(value, Bucket) and depth < 20:
            walk(value, depth + 1)


def test_labels_of_nerdctl() -> None:
    """nerdctl's name and Compose's labels are labels of containerd, of any length."""
    labels = {
        b"nerdctl/name": b"trainer",
        b"com.docker.compose.project": b"shop",
        b"com.docker.compose.service": b"web",
    }
    container = {b"image": b"cuda:13", b"labels": labels}
    namespace = {b"containers": {b"c" * 64: container}}
    found = containerd(database({b"v1": {b"default": namespace}}))
    assert found == [
        ("default", StoredContainer("containerd", "c" * 64, "trainer", "cuda:13", "shop", "web"))
    ]


def database(tree: dict[bytes, Any]) -> bytes:
    """Return a BoltDB: two meta pages, and the root on page 2 with buckets in their elements."""
    meta = (0xED0CDAED).to_bytes(4, "little") + (2).to_bytes(4, "little")
    meta += (4096).to_bytes(4, "little") + bytes(4) + (2).to_bytes(8, "little") + bytes(24)
    pages = [bytes(16) + meta + number.to_bytes(8, "little") for number in (1, 2)]
    return b"".join(one.ljust(4096, b"\0") for one in (*pages, leaf(tree, 2)))


def leaf(tree: dict[bytes, Any], page: int = 0) -> bytes:
    """Return a page of keys, whose buckets are pages within their values."""
    head = page.to_bytes(8, "little") + (2).to_bytes(2, "little")
    head += len(tree).to_bytes(2, "little") + bytes(4)
    elements, data = b"", b""
    for number, (key, value) in enumerate(sorted(tree.items())):
        is_bucket = isinstance(value, dict)
        text = bytes(16) + leaf(value) if is_bucket else value
        position = (len(tree) - number) * 16 + len(data)
        numbers = (int(is_bucket), position, len(key), len(text))
        elements += b"".join(one.to_bytes(4, "little") for one in numbers)
        data += key + text
    return head + elements + data


def test_circle_of_pages() -> None:
    """A branch page that leads to itself ends."""
    content = bytearray(database({}))
    content[8192:] = (
        (2).to_bytes(8, "little") + (1).to_bytes(2, "little") + (1).to_bytes(2, "little")
        + bytes(4) + bytes(8) + (2).to_bytes(8, "little")
    )  # fmt: skip
    with pytest.raises(BrokenBoltError):
        list(bolt.root(bytes(content)).entries())
