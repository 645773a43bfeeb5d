# SPDX-License-Identifier: Apache-2.0
"""Options of generate-cdi that enable and disable parts of a spec, with the names in
NVIDIA's toolkit.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import yaml
from click.testing import CliRunner, Result

from gpuhook.apply.live import ldconfig
from gpuhook.apply.rootfs import hook_args
from gpuhook.cli import main
from gpuhook.cli.generate.generate_cdi import generate_cdi
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.inventory import dump, dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Gpu, Node
from gpuhook.vendors.nvidia.modes import management
from gpuhook.vendors.nvidia.nvml import coherence, nvml_inventory
from gpuhook.vendors.nvidia.spec import gpu_spec
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from gpuhook.vendors.nvidia.warm import hook_names
from tests.simulated.node import make_node

OPTIONS = {name: option for option in generate_cdi.params for name in option.opts}


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the machine's settings and variables."""
    for name in list(os.environ):
        if name.startswith(("GPUHOOK_", "NVIDIA_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "no-settings.yaml"))


def call(*args: str, env: dict[str, str] | None = None) -> Result:
    """Run `gpuhook generate-cdi` on the node of a T4."""
    words = ["generate-cdi", "--inventory", "t4", *args]
    return CliRunner().invoke(main, words, env=env, prog_name="gpuhook")


def generated(*args: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the spec that generate-cdi prints with these options."""
    done = call("--format", "json", *args, env=env)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def job_of(document: dict[str, Any]) -> hook_args.Jobs:
    """Return the jobs of the only hook in a spec."""
    (hook,) = document["containerEdits"]["hooks"]
    return hook_args.of_hook(hook)


@pytest.fixture(scope="module")
def t4() -> Node:
    """Return the node of a T4 whose driver would make device nodes."""
    return replace(dump_file.load("t4"), masks_params=True)


def described(node: Node, **choices: Any) -> hook_args.Jobs:
    """Return the jobs of a node's spec."""
    return job_of({**describe(node, Choices(**choices)).spec})


def test_each_hook_name_disables_its_job(t4: Node) -> None:
    """By default all jobs but chmod are enabled; each name disables its own job and no other."""
    whole = described(t4).arguments()
    parts = {
        hook_names.LINKS: ["--link", "--skip"],
        hook_names.LOADER: ["--skip"],
        hook_names.CUDA_COMPAT: ["--cuda-compat"],
        hook_names.PARAMS: ["--driver-params"],
        hook_names.PROFILE: ["--skip"],
    }
    assert "--skip" not in whole
    assert "--chmod" not in whole
    for name, options in parts.items():
        without = described(t4, disabled_hooks=frozenset({name})).arguments()
        changed = {word for word in {*whole, *without} if whole.count(word) != without.count(word)}
        assert {word for word in changed if word.startswith("--")} == set(options)
        assert "--fingerprint" in without
    assert described(t4, enabled_hooks=frozenset({"chmod"})).chmod == [(0o755, "/dev/dri")]


def test_enabling_wins_over_disabling_all_hooks() -> None:
    """`all` disables each hook but the enabled ones; without any there is no hook."""
    job = job_of(generated("--disable-hook", "all", "--enable-hook", "update-ldcache"))
    assert job.skipped == [hook_args.LINKS, hook_args.PROFILE]
    assert (job.links, job.cuda_compat, job.libraries != []) == ([], "", True)
    done = call("--disable-hook", "all", "--format", "json")
    assert "hooks" not in json.loads(done.stdout)["containerEdits"]
    assert "warning: every hook is disabled: " in done.stderr
    assert job_of(generated("--disable-hook", "all", "--enable-hook", "chmod")).chmod


@pytest.mark.parametrize("flag", ["disable-nvsandboxutils", "disable-nvsandbox-utils"])
def test_flags_without_effect_have_a_note(flag: str) -> None:
    """A flag for a thing that gpuhook never does is accepted with a note."""
    done = call("--feature-flag", flag)
    assert done.exit_code == 0
    assert "note: disable-nvsandboxutils: gpuhook never loads that library" in done.stderr


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--hooks", "none", "--disable-hook", "chmod"], "GH1520"),
        (["--hooks", "none", "--enable-hook", "chmod"], "GH1520"),
        (["--hooks", "none", "--ldconfig-path", "/sbin/ldconfig"], "GH1520"),
        (["--ldconfig-path", "/x", "--disable-hook", "update-ldcache"], "GH1520"),
        (["--ldconfig-path", "/x", "--disable-hook", "all"], "GH1520"),
        (["--ldconfig-path", "ldconfig"], "GH1515"),
        (["--feature-flag", "enable-coherent-annotations", "--format", "json"], "GH1520"),
    ],
)
def test_contradictory_options_are_refused(options: list[str], code: str) -> None:
    """The error has its code and the reason, and nothing is printed."""
    done = call(*options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"Error {code}: " in done.stderr


@pytest.mark.parametrize(
    "options",
    [["--enable-hook", "all"], ["--disable-hook", "x"], ["--feature-flag", "x"]],
)
def test_unknown_names_are_usage_errors(options: list[str]) -> None:
    """An unknown name is a usage error; so is enabling all hooks, as in the toolkit."""
    done = call(*options)
    assert done.exit_code == 2
    assert options[0] in done.stderr


def test_ldconfig_path_is_an_argument_of_the_hook() -> None:
    """The toolkit's mark of a host path (@) is accepted."""
    assert job_of(generated("--ldconfig-path", "/sbin/ldconfig")).ldconfig == "/sbin/ldconfig"
    assert job_of(generated("--ldconfig-path", "@/sbin/ldconfig")).ldconfig == "/sbin/ldconfig"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (["--device-id", "0"], ["--device", "0"]),
        (["--device-id", "0"], ["--devices=0"]),
        (["--device-id", "0"], ["--device-ids", "0"]),
        (["--vendor", "a.com"], ["--cdi-vendor", "a.com"]),
        (["--class", "b"], ["--cdi-class=b"]),
        (["--mode", "nvml"], ["--discovery-mode", "nvml"]),
        (["--device-name-strategy", "type-index"], ["--device-name-strategies", "type-index"]),
        (["--disable-hook", "chmod,create-symlinks"], ["--disable-hooks", "chmod,create-symlinks"]),
        (["--enable-hook", "chmod"], ["--enable-hooks", "chmod"]),
        (["--hook-path", "/a/gpuhook-hook"], ["--nvidia-cdi-hook-path", "/a/gpuhook-hook"]),
        (["--hook-path", "/a/gpuhook-hook"], ["--nvidia-ctk-path=/a/gpuhook-hook"]),
    ],
)
def test_toolkit_option_names_are_aliases(ours: list[str], theirs: list[str]) -> None:
    """An option with nvidia-ctk's name has the same effect, and is in no help text."""
    assert generated(*theirs) == generated(*ours) != generated("--no-all-device")
    shown = CliRunner().invoke(main, ["generate-cdi", "--help"]).stdout
    named = theirs[0].partition("=")[0]
    assert not any(line.lstrip().startswith(named + " ") for line in shown.splitlines())


def test_option_values_are_not_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word after an option is its value, even if it has an option's name."""
    done = call("--device-id", "--device")
    assert "GH1511: --device-id --device: " in done.stderr
    assert call("--", "--device").exit_code == 2


@pytest.mark.parametrize(
    ("variable", "value", "options"),
    [
        ("NVIDIA_CTK_CDI_GENERATE_VENDOR", "a.com", ["--vendor", "a.com"]),
        ("NVIDIA_CTK_CDI_GENERATE_CLASS", "b", ["--class", "b"]),
        ("NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE", "true", ["--no-all-device"]),
        ("NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS", "none", ["--device-id", "none"]),
        (
            "NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES",
            "type-index,uuid",
            ["--device-name-strategy", "type-index,uuid"],
        ),
        (
            "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS",
            "create-symlinks,chmod",
            ["--disable-hook", "create-symlinks"],
        ),
        ("NVIDIA_CTK_CDI_GENERATE_ENABLED_HOOKS", "chmod", ["--enable-hook", "chmod"]),
        ("NVIDIA_CTK_CDI_GENERATE_LDCONFIG_PATH", "/x", ["--ldconfig-path", "/x"]),
        ("NVIDIA_CTK_CDI_HOOK_PATH", "/a/gpuhook-hook", ["--hook-path", "/a/gpuhook-hook"]),
    ],
)
def test_toolkit_variables_are_read(variable: str, value: str, options: list[str]) -> None:
    """A variable of the toolkit has the effect of the option; the option and gpuhook's
    variable take precedence.
    """
    assert generated(env={variable: value}) == generated(*options) != generated()
    ours = str(OPTIONS[options[0]].envvar or "GPUHOOK_GENERATE_CDI_" + _upper(options[0]))
    own = options[1] if len(options) > 1 else "1"
    assert generated(env={variable: "wrong", ours: own}) == generated(*options)


def _upper(option: str) -> str:
    return option.strip("-").replace("-", "_").upper()


def test_toolkit_hook_path_is_ignored_with_a_note() -> None:
    """A unit file may name nvidia-cdi-hook, which cannot do the jobs of gpuhook's hook."""
    for given in (
        call("--nvidia-cdi-hook-path", "/usr/bin/nvidia-cdi-hook"),
        call("--nvidia-ctk-path=/usr/bin/nvidia-ctk"),
        call(env={"NVIDIA_CTK_CDI_HOOK_PATH": "/usr/bin/nvidia-cdi-hook"}),
    ):
        assert given.exit_code == 0
        assert "is ignored: the hook of this spec is /usr/bin/gpuhook-hook" in given.stderr
        assert "nvidia-ctk" not in given.stdout
        assert "nvidia-cdi-hook" not in given.stdout


def test_device_id_none_leaves_out_the_device_all() -> None:
    """--device-id none: every GPU, and no device `all`."""
    assert generated("--device-id", "none") == generated("--no-all-device")
    assert generated("--device-id", "none,0") == generated("--device-id", "0", "--no-all-device")


def test_common_edits_are_not_repeated_in_devices() -> None:
    """A device leaves out edits of the whole spec, unless nothing would be left of it."""
    node = {"path": "/dev/a"}
    common: Any = {"env": ["A=1"], "deviceNodes": [node], "additionalGids": [7]}
    own: Any = {"env": ["A=1", "B=2"], "deviceNodes": [node], "additionalGids": [7]}
    found = gpu_spec.without_common({"name": "x", "containerEdits": own}, common)
    assert found == {"name": "x", "containerEdits": {"env": ["B=2"], "additionalGids": [7]}}
    same: Any = {"name": "x", "containerEdits": {"deviceNodes": [node]}}
    assert gpu_spec.without_common(same, common) == same


def coherent(*facts: bool | None) -> Node:
    """Return a node with eight GPUs, each coherent, not coherent or unknown."""
    node = dump_file.load("h100x8")
    known = dict(enumerate(facts))
    gpus = tuple(replace(gpu, coherent=known.get(gpu.index)) for gpu in node.gpus)
    return replace(node, gpus=gpus)


def test_coherent_gpus_are_annotated_and_have_their_own_spec() -> None:
    """Each sort has a spec with its own class; `all` is of that sort."""
    node = coherent(True, False, True)
    found = describe(node, Choices(coherent=True, strategies=("index",)))
    notes = {d["name"]: d.get("annotations", {}) for d in found.spec["devices"]}
    assert notes["0"] == {coherence.ANNOTATION: "true"}
    assert notes["1"] == {coherence.ANNOTATION: "false"}
    assert notes["3"] == notes["all"] == {}
    assert found.spec["cdiVersion"] == "0.6.0"
    (first, of_first), (second, of_second) = found.further
    assert (first, of_first["kind"]) == (".coherent", "nvidia.com/gpu.coherent")
    assert (second, of_second["kind"]) == (".noncoherent", "nvidia.com/gpu.noncoherent")
    assert [d["name"] for d in of_first["devices"]] == ["0", "2", "all"]
    assert [d["name"] for d in of_second["devices"]] == ["1", "all"]
    paths = [n["path"] for n in of_first["devices"][-1]["containerEdits"]["deviceNodes"]]
    assert paths == [f"/dev/nvidia{node.gpus[index].minor}" for index in (0, 2)]
    assert sum("addressing mode is unknown" in warning for warning in found.warnings) == 5
    assert describe(node, Choices()).further == ()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (pynvml.NVML_DEVICE_ADDRESSING_MODE_ATS, True),
        (pynvml.NVML_DEVICE_ADDRESSING_MODE_HMM, False),
        (pynvml.NVML_DEVICE_ADDRESSING_MODE_NONE, False),
        (pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED), False),
        (pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND), False),
        (pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN), None),
    ],
)
def test_coherence_as_nvml_reports_it(
    answer: Any, expected: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ATS is coherent; a GPU or library without the mode is not; an error leaves it unknown."""

    def mode(_handle: object) -> object:
        if isinstance(answer, pynvml.NVMLError):
            raise answer
        return SimpleNamespace(value=answer)

    monkeypatch.setattr(nvml_inventory, "opened", lambda _path: nullcontext())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda _index: object())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetAddressingMode", mode)
    lost = Gpu(index=1, lost="it fell off the bus")
    found = coherence.with_coherence((Gpu(index=0), lost), "/x")
    assert [gpu.coherent for gpu in found] == [expected, None]


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
def test_old_library_has_no_coherent_gpu(tmp_path: Path) -> None:
    """On a node whose NVML lacks the call, every GPU is not coherent."""
    node = make_node(tmp_path / "node", "t4")
    words = ["generate-cdi", *node.options, "--feature-flag", "enable-coherent-annotations"]
    done = CliRunner().invoke(main, [*words, "--output-file", str(tmp_path / "cdi/nvidia.json")])
    assert done.exit_code == 0, done.output
    assert sorted(os.listdir(tmp_path / "cdi")) == ["nvidia.json", "nvidia.noncoherent.json"]


def test_coherent_specs_are_separate_files(tmp_path: Path) -> None:
    """NAME.coherent and NAME.noncoherent are in the output's directory; standard output has all."""
    file = tmp_path / "node.yaml"
    file.write_text(yaml.safe_dump(dump.as_dict(coherent(*[True] * 4, *[False] * 4))))
    words = ["generate-cdi", "--inventory", str(file)]
    words += ["--feature-flag", "enable-coherent-annotations"]
    done = CliRunner().invoke(main, [*words, "--output-file", str(tmp_path / "cdi/nvidia.yaml")])
    assert done.exit_code == 0, done.output
    names = ["nvidia.coherent.yaml", "nvidia.noncoherent.yaml", "nvidia.yaml"]
    assert sorted(os.listdir(tmp_path / "cdi")) == names
    printed = CliRunner().invoke(main, words)
    kinds = [document["kind"] for document in yaml.safe_load_all(printed.stdout)]
    assert kinds == [f"nvidia.com/gpu{end}" for end in ("", ".coherent", ".noncoherent")]


@pytest.mark.parametrize(
    "options",
    [
        ["--device-id", "0"],
        ["--no-all-device"],
        ["--device-id", "none"],
        ["--create-device-nodes"],
        ["--feature-flag", "enable-coherent-annotations"],
    ],
)
def test_management_refuses_device_options(options: list[str], tmp_path: Path) -> None:
    """Options that select devices are refused in mode management, before the node is read."""
    words = ["generate-cdi", "--mode", "management", "--driver-root", str(tmp_path), *options]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "Error GH1520: " in done.stderr


def test_management_without_nodes_is_a_fault(tmp_path: Path) -> None:
    """The fault names the directories that were searched."""
    words = ["generate-cdi", "--mode", "management", "--driver-root", str(tmp_path)]
    done = CliRunner().invoke(main, [*words, "--dev-root", str(tmp_path)])
    assert f"GH1519: mode management found no driver device node in {tmp_path}" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
def test_management_applies_the_rules_of_the_site(tmp_path: Path) -> None:
    """Dropped files are skipped, and vendor-neutral libraries are added on request."""
    node = make_node(tmp_path / "node", "t4")
    library = next(Path(f.host_path) for f in node.node.files if f.soname == "libcuda.so.1")
    shutil.copy(library, library.with_name("libOpenCL.so.1"))
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "site.yaml").write_text('drop: ["*/libnvidia-opencl.so.*"]\n')
    words = ["generate-cdi", *node.options, "--mode", "management"]

    def given(*options: str) -> set[str]:
        spec = yaml.safe_load(CliRunner().invoke(main, [*words, *options]).stdout)
        paths = (mount["containerPath"] for mount in spec["containerEdits"]["mounts"])
        return {path.rpartition("/")[2].partition(".so")[0] for path in paths}

    assert "libnvidia-opencl" in given()
    assert given() - given("--files-dir", str(rules)) == {"libnvidia-opencl"}
    flag = ("--feature-flag", "enable-explicit-driver-libraries")
    assert given(*flag) - given() == {"libOpenCL"}


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
def test_nodes_in_management_mode(tmp_path: Path) -> None:
    """GPUs, control and capability nodes and IMEX channels; no fabric, no storage, no files."""
    names = ["nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-fs0", "nvidia-nvswitch0"]
    names += ["nvidia-nvswitchctl", "nvidia-nvlink", "nvidia-caps/nvidia-cap1", "other"]
    names += ["nvidia-caps-imex-channels/channel0"]
    for name in names:
        path = tmp_path / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    (tmp_path / "dev/nvidia1").write_text("no device")
    (tmp_path / "dev/nvidia2").symlink_to("nvidia0")
    assert [node.path for node in management.device_nodes(str(tmp_path))] == [
        "/dev/nvidia-uvm",
        "/dev/nvidia0",
        "/dev/nvidia10",
        "/dev/nvidiactl",
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-caps-imex-channels/channel0",
    ]


def test_unusable_ldconfig_is_refused(tmp_path: Path) -> None:
    """A program that is missing, a directory, not executable, dynamic or not a program is
    refused.
    """
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    for path, reason in (
        (tmp_path / "missing", "No such file"),
        (tmp_path, "it is not a regular file"),
        (script, "it is not executable"),
        (Path("/bin/true"), "it is not a statically linked program"),
    ):
        with pytest.raises(GpuhookError, match=reason) as caught:
            ldconfig.require_usable(str(path))
        assert caught.value.code == "GH1517"
    script.chmod(0o755)
    with pytest.raises(GpuhookError, match="not a statically linked program"):
        ldconfig.require_usable(str(script))
    (tmp_path / "script.real").write_text("")
    assert ldconfig.real_program(str(script)) == f"{script}.real"


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are made by root")
def test_hanging_ldconfig_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault reports the timeout, and no process or file is left."""
    monkeypatch.setattr(ldconfig, "SECONDS", 0)
    (tmp_path / "proc").mkdir()
    root = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    with pytest.raises(GpuhookError, match="it did not finish within 0 seconds") as caught:
        ldconfig.cache_of(namespace, root, "/sbin/ldconfig", [], [])
    os.close(root)
    os.close(namespace)
    assert caught.value.code == "GH1518"
    assert os.listdir(tmp_path / "proc") == []
