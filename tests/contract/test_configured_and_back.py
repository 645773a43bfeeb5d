# SPDX-License-Identifier: Apache-2.0
"""Every configuration of the matrix through the real thing: configured twice, edited, undone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gpuhook.engines.configuring import carrying_out
from gpuhook.engines.configuring.carrying_out import Where
from gpuhook.engines.configuring.host import Host
from gpuhook.engines.configuring.host_programs import HostPrograms, Ran
from gpuhook.engines.configuring.table import ENGINES
from gpuhook.errors import GpuhookError
from tests.contract.configurations import Case, cases

pytestmark = pytest.mark.contract
CASES = {f"{one}-{name}": (one, case) for one in ENGINES for name, case in cases(one).items()}


def _files(root: Path) -> dict[str, tuple[int, bytes | None]]:
    found: dict[str, tuple[int, bytes | None]] = {}
    for path in root.rglob("*"):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        found[str(path.relative_to(root))] = (status.st_mode, content)
    return found


@pytest.mark.parametrize(("engine", "case"), CASES.values(), ids=CASES)
def test_a_configuration_is_configured_and_comes_back(
    engine: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = case.write(tmp_path)
    spec = Ran("ctr oci spec", 0, node.base_spec.decode(), "") if node.base_spec else None
    monkeypatch.setattr(HostPrograms, "version", lambda *_: node.version)
    monkeypatch.setattr(HostPrograms, "run", lambda _, words: spec if words[0] == "ctr" else None)
    (tmp_path / "var/lib").mkdir(parents=True, exist_ok=True)
    before = _files(tmp_path)
    host = Host(str(tmp_path))
    where = Where(engine, node.config, node.drop_in, node.home)
    if case.fault:
        with pytest.raises(GpuhookError) as caught:
            carrying_out.configure(host, where, case.asked())
        assert caught.value.code == case.fault
        assert _files(tmp_path) == before
        return
    carrying_out.configure(host, where, case.asked())
    becomes = {path: text.encode("utf-8", "surrogateescape") for path, text in case.becomes.items()}
    assert {path: host.read(path) for path in becomes} == becomes
    assert not carrying_out.configure(host, where, case.asked()).writes
    carrying_out.undo(host, Where(engine, home=node.home))
    assert _files(tmp_path) == before
