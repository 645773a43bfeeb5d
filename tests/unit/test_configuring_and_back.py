# SPDX-License-Identifier: Apache-2.0
"""Every case of Docker, CRI-O and podman on real files: configured twice, undone byte for byte."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gpuhook.engines.configuring import carrying_out
from gpuhook.engines.configuring.carrying_out import Where
from gpuhook.engines.configuring.host import Host
from gpuhook.engines.configuring.host_programs import HostPrograms
from gpuhook.engines.configuring.wanted import Wanted
from tests.unit import test_configuring_crio as crio
from tests.unit import test_configuring_docker as docker
from tests.unit import test_configuring_podman as podman
from tests.unit.configuring import configured, wanted

OF_WANTED = {one.name for one in fields(Wanted)}
CASES: dict[str, tuple[str, dict[str, bytes], dict[str, Any]]] = {
    f"docker-{name}": ("docker", docker.files(before), {"version": docker.RECENT, **more})
    for name, (before, _, more) in docker.CASES.items()
}
for engine, module in (("crio", crio), ("podman", podman)):
    CASES |= {
        f"{engine}-{name}": (engine, module.files(before), more)
        for name, (before, _, more) in module.CASES.items()
    }


def _files(root: Path) -> dict[str, bytes | None]:
    return {
        f"/{path.relative_to(root)}": path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }


@pytest.mark.parametrize(("engine", "before", "more"), CASES.values(), ids=CASES)
def test_there_and_back(
    engine: str,
    before: dict[str, bytes],
    more: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HostPrograms, "version", lambda *_: more.get("version"))
    monkeypatch.setattr(HostPrograms, "run", lambda *_: None)
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "home/me/.local/state").mkdir(parents=True)
    for path, content in before.items():
        place = tmp_path / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    was = _files(tmp_path)
    chosen = {key: value for key, value in more.items() if key in {"config", "drop_in", "home"}}
    what = wanted(**{key: value for key, value in more.items() if key in OF_WANTED})
    host, where = Host(str(tmp_path)), Where(engine, **chosen)
    carrying_out.configure(host, where, what)
    for path, content in configured(engine, before, **more).items():
        assert host.read(path) == content
    assert not carrying_out.configure(host, where, what).writes
    carrying_out.undo(host, Where(engine, home=where.home))
    assert _files(tmp_path) == was
