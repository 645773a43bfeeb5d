# SPDX-License-Identifier: Apache-2.0
"""The archive from which the tests take Debian packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.debs import DEBIAN, mirror

ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb http://security.example/debian-security bookworm-security main
deb [signed-by=/k.gpg] http://one.example/debian/ bookworm main
"""
DEB822 = """\
Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security

Types: deb
URIs: http://two.example/debian
Suites: bookworm
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("sources.list", ONE_LINE, "http://one.example/debian"),
        ("sources.list.d/debian.sources", DEB822, "http://two.example/debian"),
        ("sources.list.d/other.list", "deb http://other.example/apt stable main\n", DEBIAN),
    ],
)
def test_mirror_comes_from_the_apt_sources(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    """The machine's mirror of the main archive is used, in either format; else Debian's own."""
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert mirror(tmp_path) == expected
