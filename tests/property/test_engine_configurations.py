# SPDX-License-Identifier: Apache-2.0
"""Any content of an engine's configuration file is read without an exception."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.engines.read import (
    containerd_config,
    crio_config,
    docker_config,
    oci_hooks,
    podman_config,
)

WORDS = st.sampled_from(
    [
        "version",
        "imports",
        "plugins",
        "cri",
        '"io.containerd.grpc.v1.cri"',
        "containerd",
        "runtimes",
        "nvidia",
        "options",
        "engine",
        "crio",
        "runtime",
        "features",
        "path",
    ]
)
VALUES = st.sampled_from(
    [
        "2",
        '"2"',
        "3",
        "true",
        "[]",
        '["/etc/*"]',
        '["a.toml"]',
        "{}",
        '"x"',
        "-1",
        "1.5",
        "null",
        '["\\u0000"]',
        '[""]',
        '["/"]',
    ]
)
LINES = st.one_of(
    st.builds("{} = {}".format, WORDS, VALUES),
    st.lists(WORDS, min_size=1, max_size=5).map(lambda words: f"[{'.'.join(words)}]"),
    st.builds('{{"{}": {}}}'.format, WORDS.map(lambda word: word.strip('"')), VALUES),
    st.text(max_size=12),
)
CONTENTS = st.one_of(
    st.lists(LINES, max_size=8).map(lambda lines: "\n".join(lines).encode("utf-8", "replace")),
    st.binary(max_size=64),
)


class SameContent:
    """A node on which every file has the same content, and every directory the same files."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, path: str) -> bytes | None:
        return self.content if path.count("/") < 6 else None

    def names(self, path: str) -> list[str]:
        return ["a.toml", "b.json", "c.conf"]


@given(content=CONTENTS, daemon=st.sampled_from([None, (1, 6), (1, 7), (2, 0), (2, 1), (2, 3)]))
def test_any_content_is_read(content: bytes, daemon: tuple[int, ...] | None) -> None:
    files = SameContent(content)
    found = containerd_config.read(files, daemon=daemon)
    assert found.configuration.runtimes
    assert isinstance(found.has_cdi, bool)
    assert docker_config.read(files).configuration.runtimes
    assert crio_config.read(files).configuration.default
    assert podman_config.read(files, "/home/a").configuration.default
    assert len(oci_hooks.read(files, ["/x", "/y"])) == 1
