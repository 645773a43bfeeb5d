# SPDX-License-Identifier: Apache-2.0
"""`gpuhook map`: its outputs, and the page in a real browser."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.cli.diagnosis import screen
from gpuhook.containers.warm import state_roots
from gpuhook.device_plugin.kubelet import device_checkpoint
from gpuhook.map import map_terminal
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode, make_node
from tests.simulated.running import Running

MIB = 1 << 20
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), "")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="makes mount namespaces: needs root")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the command its own state directory, and nothing else of this machine."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("NODE_NAME", "node-7")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(state_roots, "PLACES", (str(tmp_path / "runc"),))
    monkeypatch.setattr(device_checkpoint, "ROOTS", ())
    return tmp_path


def drawn(*words: str) -> Result:
    shown = CliRunner().invoke(main, ["map", *words], prog_name="gpuhook")
    assert shown.exit_code in (0, 2), shown.output
    return shown


def busy(place: Path, monkeypatch: pytest.MonkeyPatch, running: Running) -> SimulatedNode:
    """Return a node with MIG instances, some of them in use by containers."""
    node = make_node(place / "node", "a100-mig", real_nodes=False)
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", node.host_root)
    gpu, instance = node.node.gpus[2], node.node.gpus[1].instances[0]
    whole = running.start("whole", [f"/dev/nvidia{gpu.minor}"], pod=("train-0", "ml", "<b>&"))
    cap = f"/dev/nvidia-caps/nvidia-cap{instance.compute_instance_minor}"
    running.start("part", [cap])
    stub_events.say(node, str(gpu.uuid), f"process compute {whole} {700 * MIB}", "busy 12")
    return node


def test_inventory_is_drawn_without_containers(place: Path) -> None:
    shown = drawn("--inventory", "a100-mig", "--width", "120").stdout
    assert shown.splitlines()[0] == "a100-mig"
    assert "1g.5gb" in shown
    assert "0 of" in shown
    wide = drawn("--inventory", "t4", "--width", "99999999").stdout
    assert max(map(len, wide.splitlines())) == map_terminal.WIDEST
    plain = drawn("--inventory", "a100-mig", "--ascii").stdout
    assert plain.isascii()
    picture, page = place / "a.svg", place / "a.html"
    told = drawn("--inventory", "t4", "--svg", str(picture), "--html", str(page))
    assert told.stdout == ""
    assert told.stderr == f"wrote {picture}\nwrote {page}\n"
    assert "GPUs of t4" in picture.read_text()
    assert picture.read_text() == drawn("--inventory", "t4", "--svg", "-").stdout
    assert page.read_text() == drawn("--inventory", "t4", "--html", "-").stdout
    assert page.stat().st_mode & 0o777 == 0o644


def test_watch_requires_a_terminal_and_a_running_node(place: Path) -> None:
    assert drawn("--watch", "--svg", str(place / "a.svg")).exit_code == 2
    assert drawn("--watch", "--inventory", "t4").exit_code == 2


@pytest.mark.parametrize("option", ["--svg", "--html"])
def test_files_are_not_drawn_in_ascii(option: str) -> None:
    done = drawn("--inventory", "t4", "--ascii", option, "-")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--ascii cannot be used with --svg and --html" in done.stderr


def test_watch_prints_warnings_above_the_picture(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture would overwrite standard error."""
    looks: list[str] = []
    monkeypatch.setattr(screen, "run", lambda look, _: looks.append(look()))
    library = place / "libnvidia-ml.so.1"
    library.write_text("no library")
    drawn("--watch", "--width", "80", "--nvml-library", str(library))
    assert looks[0].startswith("warning: GH12")
    assert "\nnode-7 " in looks[0]


@AS_ROOT
def test_running_containers_are_drawn(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Running(place) as running:
        node = busy(place, monkeypatch, running)
        shown = drawn("--width", "100", "--nvml-library", node.nvml_library).stdout
        without = drawn("--no-nvml").stdout
    assert shown.splitlines()[0].startswith("node-7 ")
    assert "ml/train-0" in shown
    assert "700 MiB of 40 GiB 0%" in shown
    assert "part" in shown
    assert "train-0" in without  # found by its device node alone


@AS_ROOT
@pytest.mark.skipif(not BROWSER, reason="no chromium on this machine to draw the page with")
def test_browser_shows_all_texts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page and picture: every GPU, instance and holder is text in the browser's document."""
    page, picture = place / "map.html", place / "map.svg"
    with Running(place) as running:
        node = busy(place, monkeypatch, running)
        files = ["--html", str(page), "--svg", str(picture)]
        drawn(*files, "--nvml-library", node.nvml_library)
    for file in (page, picture):
        built = browsed(place, "--dump-dom", file)
        assert "GPUs of node-7" in built
        assert "ml/train-0/&lt;b&gt;&amp;" in built
        assert "700 MiB of 40 GiB" in built
        for gpu in node.node.gpus:
            assert f"GPU {gpu.index}<" in built
            assert str(gpu.uuid) in built
            assert all(f">{one.profile}" in built for one in gpu.instances)
        assert "<b>" not in built
        assert built.count('class="card"') == len(node.node.gpus)
        image = place / f"{file.suffix[1:]}.png"
        browsed(place, f"--screenshot={image}", file)
        assert image.read_bytes().startswith(b"\x89PNG")
    browsed(place, f"--print-to-pdf={place / 'map.pdf'}", page)
    assert (place / "map.pdf").read_bytes().startswith(b"%PDF")


def browsed(place: Path, what: str, file: Path) -> str:
    """Return what a browser without a window and without a network prints."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += [f"--user-data-dir={place / 'browser'}", "--window-size=1240,900", what]
    command = [BROWSER, *options, f"file://{file}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=150)
    return done.stdout
