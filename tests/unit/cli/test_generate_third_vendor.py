# SPDX-License-Identifier: Apache-2.0
"""generate-cdi and refresh make the specs of any vendor."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.cli.generate import refresh, refresh_plan, vendor_choice, vendor_spec
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.spec_call import DescribedSpecs, SpecCall, SpecOptions, WrongOptionsError
from gpuhook.vendors.spec_case import FORGOTTEN, NO_SPEC, STALE, SpecCase, SpecLook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from gpuhook.cdi.hot.container_edits import Spec

GONE = "/etc/cdi/gone.yaml"


def spec(kind: str) -> Spec:
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/third0"}]}}],
        "containerEdits": {},
    }


@dataclass
class ThirdVendor(AmdVendor):
    """A vendor with the version of CDI as its option, two specs, and a record of their files."""

    name = "third"
    title = "Third"
    domain = "third.com"
    written: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def absence(self, host_root: str, inventory: str | None = None) -> str:
        del host_root, inventory
        return ""

    def spec_call(self, options: SpecOptions) -> SpecCall:
        if options.device_ids:
            raise WrongOptionsError("third devices have no ids")
        self.words = options.words
        version = options.own["cdi_version"]
        several = "--cdi-version 0.7.0" if version == "0.7.0" else ""
        return SpecCall(self._described, (f"version {version}",), several)

    def _described(self) -> DescribedSpecs:
        further = (("-more", spec("third.com/more")),)
        return DescribedSpecs(spec("third.com/gpu"), ("old",), further, record=self._record)

    def _record(self, path: str) -> tuple[str, ...]:
        self.written.append(path)
        return ("the record was not written",)

    def spec_cases(self, look: SpecLook) -> list[SpecCase]:
        path = f"{look.settings.spec_dirs[-1]}/third.yaml"
        words = ("--vendor", "third", "--cdi-version", "0.5.0", "--output-file", path)
        return [
            SpecCase(path, STALE, NO_SPEC, words, is_new=True),
            SpecCase(GONE, FORGOTTEN, "it was removed"),
        ]

    def forget_spec(self, path: str) -> None:
        self.forgotten.append(path)


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ThirdVendor:
    """Add the vendor to the catalogue of the commands, on a node without other GPUs."""
    found = ThirdVendor()
    for module in (refresh, refresh_plan, vendor_choice, vendor_spec):
        monkeypatch.setattr(module, "vendors", lambda: (*vendors(), found))
    (tmp_path / "host").mkdir()
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"cdi": {"specDirs": [str(tmp_path / "cdi")]}}))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(config))
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", str(tmp_path / "host"))
    return found


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="gpuhook")


def test_files_and_messages(third: ThirdVendor, tmp_path: Path) -> None:
    """`auto` finds the only vendor with GPUs; each spec has a file, the options a record."""
    path = tmp_path / "node.json"
    done = call("generate-cdi", "--no-all-device", "--output-file", str(path))
    assert done.exit_code == 0, done.stderr
    assert done.stderr.splitlines() == [
        "note: version 0.6.0",
        "warning: old",
        f"wrote {tmp_path}/node-more.json: third.com/more 0",
        "warning: the record was not written",
        f"wrote {path}: third.com/gpu 0",
    ]
    assert json.loads(path.read_text())["kind"] == "third.com/gpu"
    assert third.written == [str(path)]
    assert "--no-all-device" in third.words
    assert str(path) not in third.words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device-id", "7"], "Error: third devices have no ids"),
        (["--cdi-version", "0.7.0", "-o", "json"], "Error GH1520: --cdi-version 0.7.0 and -o json"),
        (["--mode", "nvml"], "--mode does not apply to Third GPUs"),
    ],
)
def test_wrong_options(third: ThirdVendor, words: list[str], message: str) -> None:
    """They are wrong usage of the command."""
    done = call("generate-cdi", "--vendor", "third", *words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not third.written


def test_refresh(third: ThirdVendor, tmp_path: Path) -> None:
    """It writes the missing spec, and forgets the removed one."""
    path = tmp_path / "cdi" / "third.yaml"
    done = call("refresh", "-o", "json")
    states = {one["path"]: one["state"] for one in json.loads(done.stdout)["specs"]}
    assert states == {str(path): "written", GONE: "forgotten"}
    assert path.exists()
    assert third.forgotten == [GONE]
