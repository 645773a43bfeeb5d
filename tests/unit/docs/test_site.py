# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: all links are good, and no page loads anything from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(https?://[^\s\">]+)")
STYLES = re.compile(
    r"<link\b[^>]*\brel=\"?(?:stylesheet|preconnect|preload)[^>]*(https?://[^\s\">]+)"
)
IMPORTED = re.compile(r"(?:@import|url\()\s*[\"']?(https?://[^\"')]+)")


def test_site(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    command += [
        "--config-file",
        str(ROOT / "packaging/site/mkdocs.yml"),
        "--site-dir",
        str(tmp_path),
    ]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert LOADED.findall(text) + STYLES.findall(text) == [], page
    for style in tmp_path.rglob("*.css"):
        assert IMPORTED.findall(style.read_text(encoding="utf-8")) == [], style
    assert (tmp_path / "search/search_index.json").exists()
