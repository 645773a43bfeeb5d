# SPDX-License-Identifier: Apache-2.0
"""What the prestart hook cannot work with: one sentence, no container, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.contract import roots
from tests.contract.bundles import Bundle
from tests.contract.live import BOTH, PAIRS, Live, prestart, sleeping, started
from tests.contract.product import CONTROL, LIBRARIES, Product, asks
from tests.contract.runtimes import CGROUPS, SECONDS, Result, run
from tests.contract.test_doors import assert_nodes


def told(product: Product, state: object, *words: str) -> Result:
    """Call the prestart hook with this on its standard input."""
    text = state if isinstance(state, str) else json.dumps(state)
    done = subprocess.run(
        [str(product.bindir / "gpuhook-hook"), "prestart", *words],
        input=text,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **product.env},
        timeout=SECONDS,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def assert_refused(done: Result, code: str) -> None:
    """Assert that the hook says what is wrong in a sentence, with a hint."""
    assert done.rc == 1, done
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"gpuhook-hook: error {code}: "), done
    assert lines[1].startswith("gpuhook-hook: hint: "), done
    assert len(lines) == 2, done


@pytest.fixture
def waiting(tmp_path: Path) -> Bundle:
    """Give the bundle of a container that asks for a GPU, waits, and has no hook."""
    return sleeping(tmp_path, env=asks("2"))


@BOTH
def test_dialects(engine: str, cgroup: str, node8: Product, waiting: Bundle) -> None:
    """Every runtime's way to write a state will do."""
    with started(waiting, node8, "runc" if cgroup == "v2" else engine, "host") as live:
        before = live.seen()
        base = {"ociVersion": "1.0.2", "id": live.id, "pid": live.pid}
        for state in (
            {**base, "bundle": str(waiting.path), "status": "created"},
            {**base, "bundlePath": str(waiting.path), "pid": str(live.pid)},
        ):
            done = told(node8, state, "--dry-run")
            assert done.rc == 0, done
            assert f"device node {node8.device(2)} (c {node8.number(2)}, mode 0666)" in done.stdout
        assert live.seen() == before
        done = told(node8, {**base, "bundle": str(waiting.path)})
        assert done.rc == 0, done
        assert_nodes(live.view(), node8, CONTROL, 2)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("", "GH1642"),
        ("{", "GH1642"),
        ("[]", "GH1642"),
        ('{"id": "x", "pid": 5}', "GH1642"),
        ('{"id": "x", "pid": 5, "bundle": 7}', "GH1642"),
        ('{"id": "x", "pid": 5, "bundle": "/nonexistent"}', "GH1300"),
        ("\xff" * 10, "GH1642"),
        ('{"id": "x", "pid": ' + "[" * 5000 + "]" * 5000 + ', "bundle": "/"}', "GH1642"),
    ],
)
def test_no_state(state: str, code: str, node8: Product) -> None:
    """What is no state, or of no bundle."""
    assert_refused(told(node8, state), code)


@pytest.mark.parametrize(
    ("pid", "code"),
    [
        (0, "GH1643"),
        (1, "GH1643"),
        (None, "GH1643"),
        (-5, "GH1643"),
        (True, "GH1643"),
        ("all", "GH1643"),
        (4194305, "GH1730"),
        (10**30, "GH1730"),
        ("own", "GH1643"),
    ],
)
def test_no_process(pid: object, code: str, node8: Product, waiting: Bundle) -> None:
    """A stage that tells no pid, a process that is gone, one of the host's."""
    number = os.getpid() if pid == "own" else pid
    before = roots.listing(waiting.root)
    state = {"id": "gpuhook-test-x", "pid": number, "bundle": str(waiting.path)}
    assert_refused(told(node8, state), code)
    assert roots.listing(waiting.root) == before


def broken(name: str, product: Product, made: Bundle) -> tuple[str, dict[str, Any]]:
    """Break one thing on the node or in the bundle; return the code, and the hook's stage."""
    config = made.config()
    if name == "unknown device":
        config["process"]["env"] = asks("17")
        made.write(config)
        return "GH1102", {}
    if name == "unknown capability":
        config["process"]["env"] = asks("2", "nonsense")
        made.write(config)
        return "GH1020", {}
    if name == "settings":
        product.config.write_text("cdi: [", encoding="utf-8")
        return "GH1530", {}
    if name == "no spec":
        product.spec.unlink()
        return "GH1104", {}
    if name == "no node":
        text = product.spec.read_text(encoding="utf-8")
        host = f"{product.node.dev_root}{product.device(2)}"
        product.spec.write_text(text.replace(f"hostPath: {host}\n", "hostPath: /gone\n"), "utf-8")
        return "GH1302", {}
    if name == "no library":
        text = product.spec.read_text(encoding="utf-8")
        library = f"hostPath: {product.node.driver_root}{LIBRARIES}/libnvidia-ml.so."
        assert library in text
        product.spec.write_text(text.replace(library, f"{library}9."), encoding="utf-8")
        return "GH1752", {}
    assert name == "createContainer"
    return "GH1643", {"stage": "createContainer"}


BROKEN = ["unknown device", "unknown capability", "settings", "no spec", "no node", "no library"]
BROKEN += ["createContainer"]


@pytest.mark.parametrize(
    ("name", "engine", "cgroup"),
    [(name, *PAIRS[index % len(PAIRS)]) for index, name in enumerate(BROKEN)],
)
def test_container_does_not_start(
    name: str, engine: str, cgroup: str, apart: Product, waiting: Bundle
) -> None:
    """The runtime says why, its container is gone, and the image is as it was."""
    code, stage = broken(name, apart, waiting)
    said = waiting.path / "said"
    config = waiting.config()
    hooks = prestart(apart, **stage)
    (hook,) = next(iter(hooks.values()))
    hook["args"] = ["sh", "-c", f'exec "$0" "$@" 2>{said}', hook["path"], "prestart"]
    hook["path"] = "/bin/sh"
    waiting.write({**config, "hooks": hooks})
    before = {p for p in roots.listing(waiting.root) if "nvidia" in p or "gpuhook" in p}
    done = run(waiting, [engine], engine, cgroup)
    assert done.rc != 0, done
    assert_refused(Result(1, "", said.read_text(encoding="utf-8")), code)
    after = {p for p in roots.listing(waiting.root) if "nvidia" in p or "gpuhook" in p}
    assert after == before
    assert apart.entries() == []
    group = config["linux"]["cgroupsPath"]
    assert not [kind for kind in CGROUPS.iterdir() if Path(f"{kind}{group}").exists()]


def test_after_it_was_done(node8: Product, waiting: Bundle) -> None:
    """Called twice for one container, the hook changes nothing the second time."""
    with started(waiting, node8) as live:
        state = {"id": live.id, "pid": live.pid, "bundle": str(waiting.path)}
        assert told(node8, state).rc == 0
        before = live.seen()
        assert told(node8, state).rc == 0
        after = live.seen()
        assert (after.files, after.nodes, after.mounts) == (
            before.files,
            before.nodes,
            before.mounts,
        )
        assert_detached(live, node8)


def assert_detached(live: Live, product: Product) -> None:
    """Assert that what the hook gave can be taken away."""
    live.detach("2")
    assert product.device(2) not in live.view().gpus()
