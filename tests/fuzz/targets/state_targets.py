# SPDX-License-Identifier: Apache-2.0
"""gpuhook's own files below /run and /etc, which a crash, a full disk or a person may damage."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from typing import Any

from gpuhook.containers.hot import first_process, ledger, ledger_warnings
from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.guard import guard_marks, ledger_limits
from gpuhook.device_plugin.health import health_marks
from gpuhook.device_plugin.kubelet import claimed_gpus
from gpuhook.device_plugin.metrics import ledger_entries
from gpuhook.dra.claims import prepared_claim
from gpuhook.dra.claims.checkpoint import checkpoint_file
from gpuhook.dra.claims.checkpoint.checkpoint_file import ClaimCheckpoint, DamagedError
from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import fastjson, procfs, settings, state
from gpuhook.install import container_directories
from gpuhook.memory_limits import guard_state
from gpuhook.memory_limits.warm import limit_records
from gpuhook.node import settings_file
from gpuhook.node_facts import container_facts
from gpuhook.target import node_changes
from gpuhook.usage import container_sharing, plugin_containers
from gpuhook.vendors.nvidia.driver import site_rules
from gpuhook.vendors.nvidia.hot import node_json
from gpuhook.vendors.nvidia.spec import spec_records
from tests.fuzz.fuzz_target import fuzz_target, scratch, scratch_file

ENTRY: dict[str, Any] = {
    "schema": ledger.SCHEMA, "id": "c", "root": "/run/runc", "since": 1.5, "route": "wrapper",
    "bundle": "/b", "devices": ["nvidia.com/gpu=0"], "nodes": ["/dev/nvidia0"],
    "replicas": ["GPU-1::1"], "identities": {"/dev/nvidia0": "GPU-1"}, "requested": ["0"],
    "pod": "p", "namespace": "n", "container": "c", "pid": 1, "started": 5, "init": [1, 5],
    "memory": [{"device": "GPU-1", "hard": 4096, "soft": 0, "state": "set", "by": "driver"}],
    "warnings": [{"code": "GH1007", "message": "a", "hint": "b"}], "withdrawn": [],
    "claims": [{"namespace": "n", "name": "c", "request": "r", "device": "GPU-1", "share": "s"}],
    "live": {"nodes": ["/dev/nvidia0"], "files": []}, "expected": 9e9,
}  # fmt: skip


@fuzz_target([json.dumps(ENTRY), '{"schema":"x"}'], size=8192, everyday=100)
def ledger_entry(data: bytes) -> None:
    """An entry of any content has no effect on the others."""
    directory = ledger.directory()
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "x.json")
    with open(path, "wb") as file:
        file.write(data)
    ledger.living()
    entry = ledger.entry_at(path)
    if entry is None:
        return
    ledger.is_holder(entry)
    ledger.is_over(entry)
    ledger_warnings.read(entry)
    ledger_entries.holder_entry(entry)
    ledger_limits._entry_limits(entry)
    for record in limit_records.records_of(entry).values():
        record.document()
    node_changes.node_changes("c", entry)
    plugin_containers.is_recorded_plugin(entry, "/var/lib/kubelet")
    container_sharing.config(entry)
    container_facts._entry(data)


NODE = json.dumps(
    {
        "driver": {"cuda": "12.4", "version": "550.1", "module_version": "550.1", "nvml": "/x"},
        "gpus": [{"minor": 0, "uuid": "GPU-1", "memory_bytes": 1, "brand": "tesla",
                  "compute_capability": "9.0", "time_slice": "default", "compute_mode": "default",
                  "instances": [{"compute_instance_minor": 3, "uuid": "MIG-1"}]}],
        "names": {"/dev/nvidia0": ["GPU-1"]},
    }
)  # fmt: skip


@fuzz_target([NODE, "[]", '{"gpus":7}'], everyday=100)
def node_file(data: bytes) -> None:
    os.makedirs(state.directory(), exist_ok=True)
    scratch_file(data, "state/node.json")
    for reader in (node_json.versions_and_kinds, node_json.turns, node_json.nvml):
        reader()
    node_json.alias("GPU-1")
    node_json.other_names()
    node_json.uuids()
    node_json.memory()


RECORD = {"schema": spec_records.SCHEMA, "path": "/x.yaml", "words": ["a"], "has_node": True}


@fuzz_target([json.dumps(RECORD), "{}"])
def spec_record(data: bytes) -> None:
    """A record with a right checksum may have any values."""
    try:
        found = fastjson.loads(data)
    except ValueError:
        return
    if isinstance(found, dict):
        found.pop("checksum", None)
        found["checksum"] = spec_records._checksum(found)
        data = fastjson.dumps(found)
    made = spec_records._read(scratch_file(data, "state/generated/x.json"))
    assert made is None or isinstance(made.path, str)
    spec_records.all_of_node()


MARKS = json.dumps(
    {"format": health_marks.FORMAT,
     "marks": [{"gpu": "GPU-1", "source": "xid", "reason": "r", "instance": [1, None], "since": 1}]}
)  # fmt: skip
GUARD = json.dumps(
    {"format": guard_state.FORMAT, "action": "kill",
     "watched": [{"id": "c", "device": "GPU-1", "limit": 1, "certain": True}],
     "over": [{"id": "c", "device": "GPU-1", "below": None, "used": 1, "since": 1.5,
               "sent": [{"signal": "TERM", "pid": 1, "at": 1.5}]}]}
)  # fmt: skip
POLICIES = json.dumps(
    {"format": saved_policies.FORMAT, "boot": "b",
     "gpus": {"GPU-1": {"timeSlice": {"before": "default", "ours": "short"}}}}
)  # fmt: skip


@fuzz_target([MARKS, GUARD, POLICIES], everyday=100)
def plugin_state(data: bytes) -> None:
    """What the device plugin keeps: marks of GPUs, overruns, policies."""
    os.makedirs(state.directory(), exist_ok=True)
    scratch_file(data, f"state/{saved_policies.FILE}")
    scratch_file(data, f"state/{health_marks.PLUGIN}/marks.json")
    saved_policies.read("b")
    for mark in health_marks.read():
        assert mark.label
    try:
        content = documents.parse_json_object(data)
    except ValueError:
        content = {}
    pid = os.getpid()
    running = json.dumps({**content, "pid": pid, "started": procfs.start_time(pid)})
    scratch_file(running.encode(), f"state/{guard_state.FILE}")
    guard_state.watched()
    guard_marks.from_document(content)
    over = content.get("over")
    for one in over if isinstance(over, list) else ():
        guard_marks.from_document(one)


CLAIM = {
    "claim": {"name": {"namespace": "n", "name": "c", "uid": "u"},
              "devices": [{"request": "r", "driver": "d", "pool": "p", "device": "gpu-0",
                           "share_id": "", "consumed": {"memory": 1}, "is_admin": False,
                           "subrequest": "", "requests_memory": False}], "configs": []},
    "held": [{"name": "gpu-0", "uuid": "GPU-1", "gpu": "GPU-1", "part": "", "is_admin": False}],
    "token": "t", "is_complete": True, "shares": [],
}  # fmt: skip


@fuzz_target(
    [json.dumps(CLAIM), json.dumps({"u": CLAIM})],
    allowed=(GpuhookError, ValueError, KeyError, TypeError, AttributeError, RecursionError),
)
def prepared_claims(data: bytes) -> None:
    """The exceptions are those that the readers catch."""
    found = documents.parse_json_object(data)
    list(claimed_gpus._devices(found))
    prepared = prepared_claim.from_document(found)
    assert prepared_claim.from_document(prepared.document()) == prepared


@fuzz_target([json.dumps({"u": CLAIM})], allowed=(DamagedError,))
def claim_checkpoint(data: bytes) -> None:
    """The claims with the right checksum, and a file without a head."""
    head = {"format": checkpoint_file._FORMAT, "version": checkpoint_file.VERSION, "boot": "b"}
    head["sha256"] = hashlib.sha256(data).hexdigest()
    place = str(scratch() / "claims")
    with suppress(DamagedError):
        ClaimCheckpoint(place, "b").load(scratch_file(data, "claims/checkpoint"))
    path = scratch_file(json.dumps(head).encode() + b"\n" + data, "claims/checkpoint")
    ClaimCheckpoint(place, "b").load(path)


SETTINGS = """\
request:
  acceptEnvWhenUnprivileged: true
  specDirs: [/etc/cdi, /var/run/cdi]
runtime: {lowLevelRuntimes: [runc, crun]}
limits:
  onFailure: refuse
generate: {mode: nvml}
"""


@fuzz_target([SETTINGS, "a: &a [*a]\n", "<<: {request: {}}\n"], everyday=30)
def settings_yaml(data: bytes) -> None:
    """A settings file has settings, or a sentence about each error."""
    path = scratch_file(data, "config.yaml")
    problem = settings_file.problem(path)
    if not problem:
        settings.from_document(settings_file.load(path))
        settings_file.lines(path)
        settings_file.unknown_keys(path)


@fuzz_target(['{"request":{"acceptEnvWhenUnprivileged":true}}', '{"error":"x"}', "7"])
def settings_compiled(data: bytes) -> None:
    """Damaged compiled settings are compiled again."""
    source = scratch_file(SETTINGS.encode(), "config.yaml")
    found = os.stat(source)
    settings.store(source, found, {"request": {}})
    kept = settings.compiled_path(source)
    with open(kept, "rb") as file:
        head = file.readline()
    with open(kept, "wb") as file:
        file.write(head + data)
    document = settings.compiled(source, found)
    assert document is None or isinstance(document, dict)


@fuzz_target(['{"engines":{"docker":"/x"},"undone":[],"directories":[]}', "[]"])
def container_list(data: bytes) -> None:
    """The list of state directories that an installation keeps."""
    with suppress(ValueError):
        container_directories._listed(documents.parse_json(data))


RULES = "add:\n- path: /usr/lib/x.so\n  capabilities: [compute]\n"


@fuzz_target([RULES, "add: []\n"], everyday=30)
def site_rule_file(data: bytes) -> None:
    site_rules.read(str(scratch_file(data, "rules/x.yaml")).rpartition("/")[0])


@fuzz_target(['{"init_process_pid":7,"init_process_start":5}', '{"pid":7,"process-start-time":5}'])
def first_process_state(data: bytes) -> None:
    scratch_file(data, "runc/c/state.json")
    scratch_file(data, "runc/c/status")
    assert first_process.has_exited(str(scratch() / "runc"), "c") in (True, False)
