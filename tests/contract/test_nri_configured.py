# SPDX-License-Identifier: Apache-2.0
"""`gpuhook configure containerd --route nri` on real containerds: the plugin then connects."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.engines.configure import configure_engine
from gpuhook.engines.configure.configure_engine import Where
from gpuhook.engines.configure.engine_plan import EngineOptions
from gpuhook.engines.configure.host_files import Host
from tests.contract.cri import cri
from tests.contract.debs import unpacked
from tests.contract.installation import Installation
from tests.contract.nri_node import NRI, SUITES
from tests.nri.nri_plugin import nri_plugin

OPTIONS = EngineOptions("nri", "nvidia", "/usr/bin/gpuhook-runtime", "/usr/bin/gpuhook-prestart")


@pytest.mark.parametrize("suite", SUITES)
def test_plugin_connects(
    suite: str, node8: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NRI was disabled, as by default in 1.7. The running containerd decides how gpuhook reads."""
    monkeypatch.setattr(configure_engine, "directory", lambda *_: str(tmp_path / "record"))
    node, at = node8.apart(tmp_path / "gpuhook"), tmp_path / "containerd"
    unpacked(suite, ["containerd"], tmp_path / suite, "--exclude=./usr/share")
    programs, handlers = tmp_path / suite / "usr/bin", {"runc": "/usr/sbin/runc"}
    host, file = Host("/"), at / "config.toml"
    where = Where("containerd", config=str(file))

    def disable(config: Path) -> None:
        disabled = NRI.format(place=at, more="").replace("= false", "= true")
        config.write_text(config.read_text(encoding="utf-8") + disabled, encoding="utf-8")

    with cri(at, handlers, disable, programs):
        before = file.read_bytes()
        assert not (at / "nri/nri.sock").exists()
        for _ in range(2):
            configure_engine.undo(host, where)
            assert file.read_bytes() == before
            configure_engine.configure(host, where, OPTIONS)
    configured = file.read_bytes()
    with (
        cri(at, handlers, lambda config: write(config, configured), programs),
        nri_plugin(node, at / "nri/nri.sock") as plugin,
    ):
        assert plugin.wait_for("configured")["runtime"].startswith("containerd")
        plugin.wait_for("ready")


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
