# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: all links are good, and no page loads anything from elsewhere."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(https?://[^\s\">]+)")
STYLES = re.compile(
    r"<link\b[^>]*\brel=\"?(?:stylesheet|preconnect|preload)[^>]*(https?://[^\s\">]+)"
)
IMPORTED = re.compile(r"(?:@import|url\()\s*[\"']?(https?://[^\"')]+)")


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), "")
REQUESTED = re.compile(r'"url":"https?://([^/:"]+)')
OF_CHROMIUM = ("google.com", "googleapis.com", "gvt1.com")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    command += ["--config-file", str(ROOT / "packaging/site/mkdocs.yml"), "--site-dir", str(place)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_files_are_local(site: Path) -> None:
    """No script, style, picture or font of a page has an address of another host."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert LOADED.findall(text) + STYLES.findall(text) == [], page
    for style in site.rglob("*.css"):
        assert IMPORTED.findall(style.read_text(encoding="utf-8")) == [], style


def test_navigation_has_every_page(site: Path) -> None:
    """The sections of docs/README.md are the navigation: the first page links each other one."""
    text = (site / "index.html").read_text(encoding="utf-8")
    navigation = text.partition('class="md-nav md-nav--primary')[2].partition("md-content")[0]
    links = set(re.findall(r'href="?([\w/-]+/)"?[ >]', navigation))
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert links >= {f"{page.with_suffix('')}/" for page in pages if page.name != "README.md"}


@pytest.mark.skipif(not BROWSER, reason="no chromium on this machine")
def test_browser_requests_only_the_site(site: Path, tmp_path: Path) -> None:
    """A script of the theme could request other hosts. The index of the search is requested."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(site))
    log = tmp_path / "net.json"
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/concepts/sharing/"
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}"]
        command += ["--virtual-time-budget=8000", "--disable-background-networking"]
        command += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", address]
        subprocess.run(command, capture_output=True, check=True, timeout=120)
        server.shutdown()
    text = log.read_text(encoding="utf-8", errors="replace")
    assert "/search/search_index.json" in text
    hosts = {host for host in REQUESTED.findall(text) if not host.endswith(OF_CHROMIUM)}
    assert hosts == {"127.0.0.1"}
