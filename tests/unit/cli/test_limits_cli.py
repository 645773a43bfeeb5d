# SPDX-License-Identifier: Apache-2.0
"""`gpuhook limits` without containers: arguments, refusals, and the contents of the ledger."""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner, Result

import gpuhook
from gpuhook.cli import main
from gpuhook.cli.containers import limit_options
from gpuhook.containers.hot import ledger
from gpuhook.containers.warm.driver_limit import MISC
from gpuhook.device_plugin.config.gpuhook_section import KILL, REPORT
from gpuhook.device_plugin.config.grammar.memory_values import CONTEXT_MEMORY
from gpuhook.device_plugin.guard import guard_marks
from gpuhook.device_plugin.guard.guard_policy import GuardMark
from gpuhook.device_plugin.guard.guard_shares import GuardShare
from gpuhook.kernel import cgroup
from gpuhook.memory_limits import limit_state
from gpuhook.memory_limits.warm import limit_records
from gpuhook.memory_limits.warm.limit_records import LimitRecord
from gpuhook.request.memory_request import NO_LIMIT, MemoryLimit
from gpuhook.vendors.nvidia.driver import driver_support
from gpuhook.vendors.nvidia.warm import driver_backend
from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver
from tests.simulated import stub_limits
from tests.simulated.node import SimulatedNode, make_node
from tests.unit.other_user import AS_ROOT, NOBODY, make_readable, other_user
from tests.unit.table_rows import printed_rows

GIB = 1 << 30
SCHEMA = json.loads(
    Path(gpuhook.__file__).with_name("schemas").joinpath("limits.json").read_text("utf-8")
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the command its own state directory."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    """Give a node with one GPU that accepts directories below tmp_path/cg as cgroups."""
    made = make_node(tmp_path / "node", "t4", real_nodes=False)
    stub_limits.take_for_cgroups(made, gpu(made), tmp_path / "cg")
    return made


def gpu(node: SimulatedNode) -> str:
    return str(node.node.gpus[0].uuid)


def limits(*words: str) -> Result:
    return CliRunner().invoke(main, ["limits", *words], prog_name="gpuhook")


def entered(place: Path, identity: str, record: dict[str, Any], **more: Any) -> None:
    """Record a container with its memory limits in the ledger."""
    (place / "runc" / identity).mkdir(parents=True)
    entry = {"pid": 0, "started": None, "memory": [record], **more}
    ledger.record(str(place / "runc"), identity, entry)


def record(device: str, cgroup: Path | None, **more: Any) -> dict[str, Any]:
    cgroups = [str(cgroup)] if cgroup else []
    told = {"device": device, "hard": 4 * GIB, "soft": GIB, "asked": True, "by": "driver"}
    return {**told, "trouble": "", "cgroups": cgroups, **more}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--limit", "4096"], "4096 has no unit: write 4096Mi"),
        (["--limit", "4"], "4 has no unit: write 4Gi"),
        (["--limit", "4GBit"], "write it like 512Mi or 2Gi"),
        (["--limit", "9" * 5000], "write it like 512Mi or 2Gi"),
        (["--limit", "0"], "0 is less than 1Mi"),
        (["--limit", "100Ki"], "is less than 1Mi"),
        (["--limit", "2Gi", "--request", "4Gi"], "the guarantee cannot be above --limit"),
        (["--limit", "2Gi", "--gpu", " , "], "it names no GPU"),
        ([], "Missing option '--limit'"),
    ],
)
def test_invalid_amounts_are_usage_errors(words: list[str], said: str) -> None:
    """The message has a valid form."""
    shown = limits("set", "trainer", *words)
    assert shown.exit_code == 2
    assert said in " ".join(shown.stderr.split())


@AS_ROOT
@pytest.mark.parametrize("words", [("set", "trainer", "--limit", "4Gi"), ("clear", "trainer")])
def test_another_user_is_refused(words: tuple[str, ...]) -> None:
    """Only the host's root sets limits; for other users this is the first error."""
    with other_user(lambda: limits("show")):
        shown = limits(*words)
    assert shown.exit_code == 1
    assert (
        "Error GH1784: only root on the host can set and clear memory limits; this is user "
        f"{NOBODY}" in shown.stderr
    )


def test_show_has_the_state_of_the_guard(place: Path) -> None:
    """Its marks show who enforces a limit, use above a limit, and containers without a record."""
    trouble = {"by": "", "trouble": "GH1250: too old"}
    for name in ("above", "kept"):
        entered(place, name, record("GPU-1", None, **trouble))
    (place / "runc" / "unnoted").mkdir()
    ledger.record(str(place / "runc"), "unnoted", {"pid": 0, "started": None})
    names = ("above", "kept", "unnoted")
    above, kept, unnoted = (GuardShare(name, ("", "", name), "GPU-1", 4 * GIB) for name in names)
    mark = GuardMark(above, 5 * GIB, time.time())
    missing = ["--nvml-library", str(place / "none.so.1")]
    for action, by in ((KILL, "guard"), (REPORT, "nobody")):
        guard_marks.write([mark], action, (above, kept, unnoted))
        shown = limits("show", *missing)
        rows = printed_rows(shown.stdout)
        keys = ("CONTAINER", "DRIVER", "USED", "BY")
        assert sorted(tuple(row[key] for key in keys) for row in rows) == [
            ("above", "unknown", "5Gi", f"{by} (over)"),
            ("kept", "unknown", "-", by),
            ("unnoted", "unknown", "-", by),
        ]
        warning = r"warning: above: GPU-1: uses 5Gi, above its limit of 4Gi since \d+s"
        assert re.search(warning, shown.stderr)
        document = json.loads(limits("show", "-o", "json", *missing).stdout)
        jsonschema.validate(document, SCHEMA)
        found = {one["container"]: one["gpus"][0] for one in document["containers"]}
        assert found["unnoted"]["guard"] == {"limit": 4 * GIB, "action": action, "over": None}
        over = {"used": 5 * GIB, "since": mark.since, "done": []}
        assert (found["above"]["guard"]["over"], found["above"]["used"]) == (over, 5 * GIB)


def test_show_without_limits() -> None:
    """The table is empty, and a line on standard error says so."""
    shown = limits("show")
    assert shown.exit_code == 0
    assert "no container has a memory limit" in shown.stderr
    assert "GH" not in shown.stderr, "no driver is asked about nothing"


def test_show_all(place: Path, node: SimulatedNode) -> None:
    """Limits in the driver and in the ledger, who enforces them, and differences."""
    held, lost = place / "cg/held", place / "cg/lost"
    for path in (held, lost):
        path.mkdir(parents=True)
    with NvmlDriver(node.nvml_library) as driver:
        driver.set(gpu(node), str(held), 4 * GIB, GIB)
    entered(place, "good", record(gpu(node), held), pod="train-0", namespace="ml")
    entered(place, "bad", record(gpu(node), lost))
    trouble = {"by": "", "trouble": "GH1312: this node has cgroup v1"}
    entered(place, "never", record(gpu(node), None, **trouble))
    option = f"--nvml-library={node.nvml_library}"
    document = json.loads(limits("show", "-o", "json", option).stdout)
    jsonschema.validate(document, SCHEMA)
    told = {one["container"]: one["gpus"][0] for one in document["containers"]}
    assert [told[name]["agrees"] for name in ("good", "bad", "never")] == [True, False, None]
    assert [told[name]["by"] for name in ("good", "bad", "never")] == ["driver", "nobody", "nobody"]
    assert told["good"]["driver"] == {"limit": 4 * GIB, "request": GIB}
    assert told["good"]["used"] == 0
    assert told["never"]["driver"] is None
    wrong = {one["container"]: one["code"] for one in document["findings"]}
    assert wrong == {"bad": "GH1785", "never": "GH1786"}
    shown = limits("show", option)
    assert shown.exit_code == 0
    rows = {row.pop("CONTAINER"): list(row.values()) for row in printed_rows(shown.stdout)}
    names = ["train-0", "-", "0 (Tesla T4)"]
    assert rows["good"] == [*names, "4Gi", "4Gi", "1Gi", "4Gi", "0Mi", "driver"]
    assert rows["bad"][-3:] == ["none", "-", "nobody"]
    assert rows["never"][-3:] == ["unknown", "-", "nobody"]
    assert "hint: run `gpuhook repair bad`" in shown.stderr
    wide = limits("show", "-o", "wide", "--no-headers", option).stdout.splitlines()
    assert str(held) in wide[0]
    assert gpu(node) in wide[0]


def test_gpus_with_alike_uuids_have_different_names(place: Path) -> None:
    """Without a driver and a record of it, the names are UUIDs."""
    alike = [f"GPU-0aaaaaaa-1111-0000-0000-00000000000{n}" for n in range(2)]
    for name, uuid in zip(("one", "two"), alike, strict=True):
        entered(place, name, record(uuid, None))
    for words in ((), ("-o", "wide")):
        shown = limits("show", f"--driver-root={place}", *words)
        assert [row["GPU"] for row in printed_rows(shown.stdout)] == alike


def test_show_without_a_driver(place: Path) -> None:
    """The ledger's limits are shown, with the reason why the driver's are not."""
    entered(place, "one", record("GPU-1", place))
    shown = limits("show", f"--driver-root={place}")
    assert shown.exit_code == 0
    assert "warning: GH1200" in shown.stderr
    assert shown.stdout.splitlines()[1].split()[-3:] == ["unknown", "-", "driver"]


@AS_ROOT
def test_show_for_a_user_warns_of_unchecked_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who cannot read the state of a runtime does not see an empty list."""
    with tempfile.TemporaryDirectory() as name:
        public = Path(name)
        public.chmod(0o755)
        monkeypatch.setenv("GPUHOOK_STATE_DIR", str(public / "state"))
        entered(public, "one", record("GPU-1", None))
        (public / "runc").chmod(0o700)
        make_readable(public / "state")
        with other_user(lambda: limits("show")):
            shown = limits("show", f"--driver-root={public}")
    assert shown.exit_code == 0
    assert "one" in shown.stdout
    assert "run as root: 1 entry could not be checked" in shown.stderr
    assert "no container" not in shown.stderr


def test_ledger_text_is_escaped(place: Path) -> None:
    """A malformed record is ignored; control characters are escaped."""
    told = record("GPU-\x1b[31m", None, by="", trouble="a\nb")
    entered(place, "one", told, pod="\x07")
    entered(place, "two", {"device": 7, "hard": "much"})
    shown = limits("show", "-o", "wide", f"--driver-root={place}")
    assert len(shown.stdout.splitlines()) == 2
    assert all(line.isprintable() for line in shown.output.splitlines())


@pytest.mark.parametrize("hard", [4 * GIB, NO_LIMIT])
@pytest.mark.parametrize("granted", [None, MemoryLimit("GPU-1", GIB, GIB, is_asked=True)])
def test_records_without_a_grant(hard: int, granted: MemoryLimit | None) -> None:
    """A record without its own grant is the grant."""
    made = LimitRecord(MemoryLimit("GPU-1", hard), granted)
    made.cgroups = ["/sys/fs/cgroup/a"]
    entry: dict[str, Any] = {"memory": [record("GPU-2", None), "no record"]}
    limit_records.enter(entry, {"GPU-1": made})
    found = limit_records.records_of(json.loads(json.dumps(entry)))
    assert found["GPU-1"].document() == made.document()
    assert found["GPU-1"].granted == granted
    assert found["GPU-2"].granted == found["GPU-2"].limit
    assert found["GPU-1"].is_limited == (hard != NO_LIMIT)
    limit_records.enter(entry, {"GPU-1": None, "GPU-2": None})
    assert "memory" not in entry


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (None, "no limit"),
        (MemoryLimit("g", NO_LIMIT), "no limit"),
        (MemoryLimit("g", NO_LIMIT, GIB), "no limit (1Gi guaranteed)"),
        (MemoryLimit("g", 3776 << 20), "3776Mi"),
        (MemoryLimit("g", 4 * GIB, 2 * GIB), "4Gi (2Gi of it guaranteed)"),
    ],
)
def test_limits_are_printed_as_kubernetes_quantities(limit: MemoryLimit | None, words: str) -> None:
    assert limit_state.amounts(limit) == words


@pytest.mark.parametrize(
    ("hierarchy", "is_old", "told"),
    [
        ("v2", False, "this node can enforce memory limits: by the driver's own accounting"),
        ("v2", True, "warning: this node cannot enforce memory limits: driver 580 is older"),
        ("v1", False, "warning: this node cannot enforce memory limits: this node has cgroup v1"),
    ],
)
def test_show_reports_whether_the_node_enforces_limits(
    hierarchy: str,
    is_old: bool,  # a parameter of the test
    told: str,
    node: SimulatedNode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also without any container, as text and in JSON."""
    monkeypatch.setattr(cgroup, "hierarchy", lambda: hierarchy)
    monkeypatch.setattr(driver_backend, "backend_of", lambda cgroups: MISC)
    monkeypatch.setattr(driver_backend, "is_not_passed_on", lambda cgroups: False)
    if is_old:
        monkeypatch.setattr(driver_support, "supported", lambda library: False)
    words = ("show", "--nvml-library", node.nvml_library)
    shown = limits(*words)
    assert shown.exit_code == 0, shown.output
    assert told in shown.stderr
    holds = hierarchy == "v2" and not is_old
    assert ("hint: " in shown.stderr) is not holds
    document = json.loads(limits(*words, "-o", "json").stdout)
    jsonschema.validate(document, SCHEMA)
    assert document["node"]["holds"] is holds
    assert document["node"]["backend"] == ("misc" if holds else None)
    assert bool(document["node"]["reason"]) is not holds


def test_limit_too_small_for_a_context_has_a_warning() -> None:
    """The bound is that of the plugin's configuration."""
    assert limit_options.warnings(CONTEXT_MEMORY) == []
    (told,) = limit_options.warnings(CONTEXT_MEMORY - 1)
    assert "need about 256Mi" in told


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4g", 4 << 30), ("4gb", 4 << 30), ("4GB", 4 << 30), ("4GiB", 4 << 30), ("512m", 512 << 20),
        ("0.5g", 512 << 20), ("1t", 1 << 40), ("4Gi", 4 << 30), ("4G", 3814 << 20),
        ("2097152k", 2000 << 20), ("2097152kb", 2 << 30),
    ],
)  # fmt: skip
def test_units_of_docker_and_kubernetes(text: str, number: int) -> None:
    """Docker's are powers of 1024; what is a quantity of Kubernetes keeps its meaning there."""
    assert limit_options.Amount(1).convert(text, None, None) == number


@pytest.mark.parametrize("text", ["4x", "g", "-4g", "4 g", "4g4", "1e3g", "٤g", "4gg", "4ib"])
def test_other_units_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="must be an amount of memory"):
        limit_options.Amount(1).convert(text, None, None)
