# SPDX-License-Identifier: Apache-2.0
"""Programs that write state, or an installation on a host; a full disk is not tried with them.

The plugin and the DRA driver write their state between turns. Here, one write of each file is a
program.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from gpuhook.install import runtime_tree
from tests.contract import roots
from tests.contract.build_cache import CHECKOUT
from tests.contract.installation import Installation
from tests.system_calls.writers import Maker, Writer

_POLICIES = """\
from gpuhook.device_plugin.gpu_policies import saved_policies
def write(*uuids, file=saved_policies.FILE):
    saved = saved_policies.SavedPolicy("default", "long")
    saved_policies.write({(uuid, "time slice"): saved for uuid in uuids}, "boot", file)
"""
_MPS = """\
import os
from gpuhook.device_plugin.mps import mps_plan
def plan(*uuids):
    root = os.environ["GPUHOOK_STATE_DIR"]
    return mps_plan.MpsPlan("nvidia.com/gpu", root, uuids, 50, ())
"""
_GUARD = """\
from gpuhook.memory_limits import guard_state
def write(*ids):
    watched = [{"id": one, "device": "GPU-1", "limit": 1, "certain": True} for one in ids]
    guard_state.write({"pid": 1, "started": 1, "watched": watched, "over": []} if ids else None)
"""
_MARKS = """\
from gpuhook.device_plugin.health import health_marks
def write(*gpus, service="health"):
    marks = [health_marks.HealthMark(one, "xid 79", "XID 79") for one in gpus]
    health_marks.write(marks, service)
"""
_CONFIG = """\
import os
from gpuhook.device_plugin.config_manager import config_choice, manager_options
place = os.environ["GPUHOOK_STATE_DIR"]
given = {"ONESHOT": "true", "NODE_NAME": "n", "NODE_LABEL": "l", "SEND_SIGNAL": "false",
    "SIGNAL": "SIGHUP", "CONFIG_FILE_SRCDIR": place,
    "CONFIG_FILE_DST": f"{place}/config/config.yaml"}
options = manager_options.options([], given)
def link(name):
    config_choice.link(options, name)
"""


def _program(code: str, before: str, after: str) -> Maker:
    """Return a program of `code` that calls `after`; the files are those of the call `before`."""

    def make(apart: Installation, place: Path) -> Writer:
        state = place / "state"
        saved = place / "saved"
        for directory in (state, saved):
            directory.mkdir()
        env = {**os.environ, "GPUHOOK_STATE_DIR": str(state), "PYTHONPATH": str(CHECKOUT)}
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        first, second = (
            Writer([sys.executable, "-c", code + call], (state,), env, saved)
            for call in (before, after)
        )
        done = first.run()
        assert done.rc == 0, done
        return second

    return make


def _tree(place: Path, version: str) -> Path:
    """Return a runtime tree whose programs do nothing."""
    path = place / f"tree-{version}"
    for name in ("launchers/bin", "lib/gpuhook"):
        (path / name).mkdir(parents=True)
    for name in ("gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart"):
        (path / "launchers/bin" / name).write_text("#!/bin/sh\n", "utf-8")
    described = {"schema": runtime_tree.SCHEMA, "version": version, "digest": version[0] * 64}
    (path / "tree.json").write_text(json.dumps(described), "utf-8")
    return path


def _node(*last: str) -> Maker:
    """Return `gpuhook node install` of a second version, or the command `last` after it."""

    def make(apart: Installation, place: Path) -> Writer:
        host = roots.copy("musl", place / "host")  # its shell runs the programs
        (host / "etc/docker").mkdir(parents=True)
        (host / "etc/docker/daemon.json").write_text("{}\n", "utf-8")
        (host / "run/gpuhook/containers").mkdir(parents=True)
        env = {**os.environ, **apart.env, "HOME": str(place)}
        (place / "saved").mkdir()
        trees = [["install", "--engine", "docker", "--tree", _tree(place, v)] for v in ("1", "2")]
        writers = [
            Writer(
                [apart.bindir / "gpuhook", "node", *words, "--host-root", host],
                (host / "etc", host / "opt", host / "var", host / "run"),
                env,
                place / "saved",
            )
            for words in (*trees, *([last] if last else []))
        ]
        for directory in writers[0].places:
            directory.mkdir(exist_ok=True)
        for writer in writers[:-1]:
            done = writer.run()
            assert done.rc == 0, done
        return writers[-1]

    return make


STATE_WRITERS: dict[str, Maker] = {
    "policies": _program(_POLICIES, "write('GPU-1')", "write('GPU-1', 'GPU-2')"),
    "policies removed": _program(_POLICIES, "write('GPU-1')", "write()"),
    "policies of claims": _program(
        _POLICIES,
        "write('GPU-1', file=saved_policies.CLAIMS_FILE)",
        "write('GPU-2', file=saved_policies.CLAIMS_FILE)",
    ),
    "MPS record": _program(
        _MPS, "mps_plan.record(plan('GPU-1'))", "mps_plan.record(plan('GPU-1', 'GPU-2'))"
    ),
    "MPS record removed": _program(
        _MPS, "mps_plan.record(plan('GPU-1'))", "mps_plan.forget(plan('GPU-1'))"
    ),
    "guard": _program(_GUARD, "write('a')", "write('a', 'b')"),
    "guard removed": _program(_GUARD, "write('a')", "write()"),
    "health marks": _program(_MARKS, "write('GPU-1')", "write('GPU-1', 'GPU-2')"),
    "health clear": _program(
        _MARKS, "write('GPU-1'); write(service='health-dra')", "health_marks.request_clear('all')"
    ),
    "first configuration": _program(_CONFIG, "", "link('a')"),
    "another configuration": _program(_CONFIG, "link('a')", "link('b')"),
    "no configuration": _program(_CONFIG, "link('a')", "link('')"),
    "configuration again": _program(_CONFIG, "link('')", "link('b')"),
    "node install": _node(),
    "node uninstall": _node("uninstall"),
}
