# SPDX-License-Identifier: Apache-2.0
"""Every module that parses foreign bytes is run by a target of the fuzzer."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FrameType

import pytest

from tests.fuzz import input_files
from tests.fuzz.fuzz_target import scratch, targets
from tests.imports.marks import PACKAGE

# Calls that turn bytes or text of a file, a socket or a program into values.
DECODERS = {
    "FromString", "b64decode", "deserialize", "iter_unpack", "loads",
    "parse_json", "parse_json_object", "parse_yaml", "unpack", "unpack_from",
}  # fmt: skip
MODULES = {"bounded_yaml", "tarfile", "tomllib", "yaml"}
PARAMETERS = {"cgroup_file", "content", "raw"}  # of bytes
# Modules with such calls that meet no foreign bytes, or give them to the parser of another module.
OWN = {
    "apply/rootfs/loader_replay.py": "reads its own record, which has a checksum",
    "cli/cdi/cdi_transform.py": "catches the faults of the parser",
    "cli/diagnosis/support_bundle.py": "reads its own document",
    "cli/engines/setup_commands.py": "reads the output of gpuhook",
    "cli/node/device_plugin.py": "writes YAML",
    "compare/original_request.py": "copies a value",
    "doctor/checks/cdi/graphics.py": "needs the readings of a node: tests/doctor",
    "dra/kubelet/status_service.py": "parse_json_object",
    "engines/configure/changeset.py": "compares contents",
    "engines/configure/containerd/containerd_locations.py": "toml_document",
    "engines/configure/host_files.py": "writes contents",
    "explain/trace/resolution_trace.py": "bounded_yaml",
    "host/installed_roots.py": "parse_json_object",
    "host/output_file.py": "writes contents",
    "host/worker.py": "reads its own child",
    "install/runtime_tree.py": "parse_json_object",
    "install/version_references.py": "searches for a pattern",
    "kernel/bpf/bpf_syscall.py": "reads answers of the kernel",
    "memory_limits/warm/cgroup_limits.py": "reads its own child",
    "setup/engine_program.py": "parses what the engine prints",
    "setup/minimal_root.py": "writes an archive",
    "vendors/amd/labels/asic_family.py": "a table of the package",
    "vendors/nvidia/gpu/fabric.py": "reads a structure of NVML",
    "vendors/nvidia/nvml/gpu_usage.py": "reads a structure of NVML",
    "vendors/nvidia/usage/nvidia_devices.py": "parse_json and dump",
    "vendors/nvidia/warm/nvml_limits.py": "reads a structure of NVML",
}


def parses(path: Path) -> bool:
    """Return whether a module decodes bytes, or has a public function of bytes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if node.func.attr in DECODERS:
                return True
            if isinstance(owner, ast.Name) and owner.id in MODULES:
                return True
        if isinstance(node, ast.FunctionDef) and any(
            one.arg in PARAMETERS and "bytes" in ast.unparse(one.annotation or ast.Constant(""))
            for one in node.args.args
        ):
            return True
    return False


@pytest.fixture(scope="module")
def called() -> set[str]:
    """Return the files of the package whose functions the targets call for their seeds."""
    found: set[str] = set()
    prefix = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUHOOK_STATE_DIR", str(scratch() / "state"))
        every = targets().values()
        sys.setprofile(note)
        try:
            for target in every:
                for data in target.seeds():
                    target.fault(data)
        finally:
            sys.setprofile(None)
    return {one.removeprefix(prefix) for one in found if one.startswith(prefix)}


def test_every_parser_is_a_target(called: set[str]) -> None:
    parsers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if not path.stem.endswith("_pb2") and parses(path)
    }
    assert sorted(parsers - called - OWN.keys()) == []
    assert sorted(OWN.keys() - (parsers - called)) == []


def test_corpora_and_findings_are_of_targets() -> None:
    known = {
        path
        for name in targets()
        for path in (input_files.corpus(name), input_files.findings(name))
    }
    kept = {*input_files.HERE.glob("corpus/*/*"), *input_files.HERE.glob("findings/*/*")}
    assert kept <= known
