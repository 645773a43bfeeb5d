# SPDX-License-Identifier: Apache-2.0
"""`gpuhook compare`: the injector of each item, the original request, and known differences."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from gpuhook.apply.rootfs.hook_args import Jobs
from gpuhook.cli import main
from gpuhook.compare import compare_text, expected_injection, original_request
from gpuhook.compare.expected_injection import (
    ExpectedInjection,
    foreign,
    own_spec,
    read_specs,
)
from gpuhook.compare.items import (
    compare_item,
    env_items,
    injector,
    known_differences,
    surplus_items,
)
from gpuhook.compare.items.mount_items import ContainerMounts
from gpuhook.containers.warm import state_roots
from gpuhook.host.hot.settings import Settings
from gpuhook.kernel import mountinfo
from gpuhook.node.kept_log import KeptLog
from gpuhook.usage import node_usage
from gpuhook.vendors import driver_worker, known_difference
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.rootfs import driver_params, egl_profile
from gpuhook.vendors.nvidia.toolkit.toolkit_differences import CDI, LEGACY
from gpuhook.vendors.usage.usage_device import UsageDevice
from tests.plans import described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import ContainerEdits

COMPUTE = ExpectedInjection(capabilities=vocabulary.parse_capabilities(None))
GRAPHICS = ExpectedInjection(capabilities=vocabulary.parse_capabilities("graphics"))
LIBCUDA = "/usr/lib64/libcuda.so.580.95.05"
HOOKLESS = f"{hookless_mounts.DIRECTORY}/libcuda.so.1"


APPLY = {"createContainer": [{"path": "/usr/bin/gpuhook-hook", "args": ["gpuhook-hook", "apply"]}]}


def config(*env: str, **oci: Any) -> dict[str, Any]:
    return {"process": {"env": list(env)}, **oci}


def hooked(stage: str, name: str) -> dict[str, Any]:
    return {stage: [{"path": f"/usr/bin/{name}", "args": [name, "x"]}]}


@pytest.mark.parametrize(
    ("spec", "nodes", "mounts", "by"),
    [
        (
            config(hooks=hooked("createContainer", "nvidia-cdi-hook")),
            [],
            [],
            CDI,
        ),
        (
            config(hooks=hooked("createContainer", "nvidia-ctk")),
            [],
            [LIBCUDA],
            CDI,
        ),
        (
            config(hooks=hooked("prestart", "nvidia-container-runtime-hook")),
            ["/dev/nvidia0"],
            [LIBCUDA],
            LEGACY,
        ),
        (
            config(hooks=hooked("prestart", "nvidia-container-runtime-hook")),
            [],
            [],
            injector.NOBODY,
        ),
        (config(), ["/dev/nvidia0"], [LIBCUDA], LEGACY),
        (config(mounts=[{"destination": LIBCUDA}]), [], [LIBCUDA], injector.UNKNOWN),
        (config(), ["/dev/nvidia0"], [], injector.UNKNOWN),
        (config(), ["/dev/nvidiactl"], [], injector.NOBODY),
        ({}, [], [LIBCUDA], injector.UNKNOWN),
        (config(**{"io.gpuhook.record": {}}), [], [LIBCUDA], known_difference.OURS),
        (config(hooks=APPLY), [], [LIBCUDA], known_difference.ENGINE),
        (config(hooks=APPLY, **{"io.gpuhook.record": {}}), [], [LIBCUDA], known_difference.OURS),
        (
            config(hookless_mounts.ENV, mounts=[{"destination": HOOKLESS}]),
            [],
            [HOOKLESS],
            known_difference.ENGINE,
        ),
        # a CUDA image under NVIDIA's legacy hook
        (config(hookless_mounts.ENV), ["/dev/nvidia0"], [LIBCUDA], LEGACY),
        (config(hookless_mounts.ENV), [], [], injector.NOBODY),
        (
            config(annotations={"io.gpuhook.record": "{}"}),
            [],
            [LIBCUDA],
            LEGACY,
        ),
        (config(hooks={"createContainer": 7, "prestart": [3]}), [], [], injector.NOBODY),
    ],
)
def test_injector_is_recognized(
    spec: dict[str, Any], nodes: list[str], mounts: list[str], by: str
) -> None:
    assert injector.injector_of(spec, {}, nodes, mounts) == by


def test_ledger_entry_means_injected_by_gpuhook() -> None:
    assert (
        injector.injector_of(config(), {"nodes": ["/dev/nvidia0"]}, ["/dev/nvidia0"], [])
        == known_difference.OURS
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "kind: nvidia.com/gpu\n",
        "kind: nvidia.com/gpu\ncontainerEdits: 3\ndevices: {a: b}\n",
        "kind: nvidia.com/gpu\ncontainerEdits: {mounts: [x, {hostPath: [1]}], env: [1, [2]]}\n",
        "kind: [nvidia.com/gpu]\ncontainerEdits: {env: [A=1]}\n",
        "kind: other.com/gpu\ncontainerEdits: {env: [A=1]}\n",
        "kind: nvidia.com/gpu\ncontainerEdits: {env: [GPUHOOK_HOOKS=none, A=1]}\n",
    ],
)
def test_unrelated_specs_add_no_variables(text: str, tmp_path: Path) -> None:
    settings = Settings()
    settings.spec_dirs = [str(tmp_path)]
    (tmp_path / "x.yaml").write_text(
        text.replace("GPUHOOK_HOOKS=none", hookless_mounts.ENV), "utf-8"
    )
    assert "A=1" not in foreign(read_specs(settings)).variables
    assert all(
        path.startswith("/") for mount in foreign(read_specs(settings)).mounts for path in mount
    )


@pytest.mark.parametrize(
    ("args", "paths"),
    [
        (["x", "create-symlinks", "--link", "a::/b", "--link=c::/d"], ["/b", "/d"]),
        (["x", "--link"], []),
        (["x", "--link", "a", "--link=", "--link", "a::relative"], []),
        (["x", "--link", 7, "--link", "--link"], []),
        ("--link a::/b", []),
        (None, []),
    ],
)
def test_paths_of_links_in_hooks(args: object, paths: list[str]) -> None:
    spec = {"hooks": {"createContainer": [{"path": "/usr/bin/nvidia-cdi-hook", "args": args}]}}
    assert surplus_items.named(spec) == paths


def test_request_precedes_the_added_variables() -> None:
    spec = config("A=1", "NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_CTK_LIBCUDA_DIR=/x")
    spec["process"]["env"].append("NVIDIA_VISIBLE_DEVICES=void")
    before = original_request.before(spec)
    assert before.spec["process"]["env"] == ["A=1", "NVIDIA_VISIBLE_DEVICES=0"]
    assert before.added == ("NVIDIA_CTK_LIBCUDA_DIR=/x", "NVIDIA_VISIBLE_DEVICES=void")
    assert len(spec["process"]["env"]) == 4


def test_void_of_the_pod_itself_is_the_request() -> None:
    """A device plugin sets it in the middle of the variables if the devices come by CDI."""
    plain = config("NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_DRIVER_CAPABILITIES=all", "B=2")
    assert original_request.before(plain) == original_request.Before(plain)
    added = ["NVIDIA_CTK_LIBCUDA_DIR=/x", "NVIDIA_VISIBLE_DEVICES=void", "MINE=1"]
    before = original_request.before(config(*plain["process"]["env"], *added))
    assert before.spec == plain
    assert before.added == tuple(added[:2])


@pytest.mark.parametrize("is_accepted", [True, False])
def test_mount_that_names_no_gpu_is_not_a_refusal(is_accepted: bool) -> None:
    """A refusal would be the only item."""
    log, settings = KeptLog(), Settings()
    settings.accept_volume_mounts = is_accepted
    context = described("t4", settings, log, is_elsewhere=True)
    prefix = vocabulary.VOCABULARY.mount_prefix
    for name, is_refused in (("cdi/x", False), ("0", not is_accepted)):
        spec = {"mounts": [{"source": "/dev/null", "destination": f"{prefix}/{name}"}]}
        found = expected_injection.expected_injection(
            expected_injection.PlanNode(context, []), spec, [], is_given=False
        )
        assert (found.refusal is not None) == is_refused, name
    told = [warning.code for warning in log.warnings]
    assert told == (["GH1028"] if is_accepted else ["GH1007"])


def test_specs_of_older_toolkits_append_void_alone() -> None:
    void = "NVIDIA_VISIBLE_DEVICES=void"
    for own in (["A=1"], ["NVIDIA_VISIBLE_DEVICES=all", "A=1"]):
        before = original_request.before(config(*own, void))
        assert (before.spec["process"]["env"], before.added) == (own, (void,))


@pytest.mark.parametrize("spec", [{}, {"process": None}, {"process": {"env": 3}}, config()])
def test_config_without_variables_is_unchanged(spec: dict[str, Any]) -> None:
    assert original_request.before(spec) == original_request.Before(spec)


@pytest.mark.parametrize(
    ("path", "by", "expected", "is_known"),
    [
        (
            "/usr/lib64/libnvidia-sandboxutils.so.580.95.05",
            LEGACY,
            COMPUTE,
            True,
        ),
        ("/usr/lib64/libnvidia-sandboxutils.so.580.95.05", CDI, COMPUTE, False),
        (LIBCUDA, LEGACY, COMPUTE, False),
        ("/usr/bin/nvidia-smi", LEGACY, COMPUTE, False),
        ("/usr/bin/nvidia-imex", LEGACY, COMPUTE, True),
        ("/etc/OpenCL/vendors/nvidia.icd", LEGACY, COMPUTE, True),
        ("/etc/OpenCL/vendors/nvidia.icd", LEGACY, GRAPHICS, False),
        ("/run/nvidia-persistenced/socket", LEGACY, COMPUTE, False),
        ("/usr/lib64/libnvidia-egl-gbm.so.1.1.2", LEGACY, GRAPHICS, False),
    ],
)
def test_known_omissions_of_the_legacy_mode(
    path: str, by: str, expected: ExpectedInjection, is_known: bool
) -> None:
    assert bool(known_differences.missing(path, by, expected)) is is_known


@pytest.mark.parametrize(
    ("path", "by", "is_known"),
    [
        ("/proc/driver/nvidia", LEGACY, True),
        ("/proc/driver/nvidia/gpus/0000:1b:00.0", LEGACY, True),
        ("/proc/driver/nvidia", CDI, False),
        ("/usr/local/cuda/compat/libcuda.so.580.95.05", LEGACY, True),
        ("/dev/dri/renderD128", CDI, True),
        ("/dev/nvidia7", LEGACY, False),
    ],
)
def test_known_additions(path: str, by: str, is_known: bool) -> None:
    found = known_differences.extra_part(path, by, COMPUTE, is_whole=False, is_privileged=False)
    assert bool(found) is is_known


def test_display_nodes_are_unknown_additions_with_graphics() -> None:
    path = "/dev/dri/renderD128"
    assert not known_differences.extra_part(
        path, CDI, GRAPHICS, is_whole=False, is_privileged=False
    )


class _Root:
    """A container's root that contains these files, mounted or not."""

    def __init__(self, files: dict[str, bytes], mounted: tuple[str, ...] = ()) -> None:
        self._files = files
        self._mounted = mounted

    def read(self, path: str, limit: int) -> bytes | None:
        assert limit > 0
        return self._files.get(path)

    def status(self, path: str) -> object:
        return True if path in self._files else None

    def is_mounted(self, path: str) -> bool:
        return path in self._mounted


def _container(files: dict[str, bytes], status: str = "", mounted: tuple[str, ...] = ()) -> Any:
    process = SimpleNamespace(read=lambda name: status.encode() if name == "status" else b"")
    return cast("Any", SimpleNamespace(root=_Root(files, mounted), process=process))


def test_missing_groups_are_reported() -> None:
    edits: ContainerEdits = {"additionalGids": [44, 45, 0]}
    held = _container({}, "Name:\tx\nGid:\t1000\t1000\t1000\t1000\nGroups:\t44 1000 \n")
    found = list(env_items.groups(held, "unknown", ExpectedInjection(edits=edits)))
    assert [(one.name, one.verdict) for one in found] == [
        ("44", compare_item.SAME),
        ("45", compare_item.GPUHOOK),
    ]


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(b"1", compare_item.DIFFERS), (b"0", compare_item.SAME)],
    ids=["open", "masked"],
)
def test_masked_driver_parameters(
    value: bytes, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_params, "masked", lambda _: b"ModifyDeviceFiles: 0\n")
    job = Jobs("/usr/bin/gpuhook-hook")
    job.driver_params = True
    expected = ExpectedInjection(edits={"env": ["A=1"]}, todo=[job])
    held = _container(
        {driver_params.PATH: b"DeviceFileUID: 0\nModifyDeviceFiles: " + value + b"\n"}
    )
    (found,) = env_items.effects(held, CDI, expected)
    assert (found.kind, found.verdict) == (compare_item.MASK, verdict)


def test_superfluous_mask_of_the_legacy_mode_is_known() -> None:
    held = _container(
        {driver_params.PATH: b"ModifyDeviceFiles: 0\n"}, mounted=(driver_params.PATH,)
    )
    (found,) = env_items.effects(held, LEGACY, ExpectedInjection(edits={"env": ["A=1"]}))
    assert found.is_known


EGL = [("/usr/lib/libEGL_nvidia.so.580.95.05", "libEGL_nvidia.so.0")]


@pytest.mark.parametrize(
    ("files", "libraries", "by", "verdict", "is_known"),
    [
        ([egl_profile.PATH], EGL, CDI, compare_item.SAME, False),
        ([egl_profile.PATH], EGL, known_difference.OURS, compare_item.SAME, False),
        ([egl_profile.PATH], [], CDI, compare_item.THERE, True),
        ([], EGL, CDI, compare_item.GPUHOOK, True),
        ([], EGL, known_difference.OURS, compare_item.GPUHOOK, False),
    ],
)
def test_application_profile_requires_egl(
    files: list[str], libraries: list[tuple[str, str]], by: str, verdict: str, *, is_known: bool
) -> None:
    job = Jobs("/usr/bin/gpuhook-hook")
    job.libraries = libraries
    expected = ExpectedInjection(edits={"env": ["A=1"]}, todo=[job])
    (found,) = env_items.effects(_container(dict.fromkeys(files, b"{}")), by, expected)
    assert (found.kind, found.verdict, found.is_known) == (compare_item.PROFILE, verdict, is_known)
    no_jobs = ExpectedInjection(edits={"env": ["A=1"]})
    assert list(env_items.effects(_container({}), by, no_jobs)) == []


@pytest.fixture
def empty_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a machine on which no container runs."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(state_roots, "PLACES", (str(tmp_path / "runc"),))
    return tmp_path


def test_node_without_a_driver_is_a_fault(empty_node: Path) -> None:
    done = CliRunner().invoke(main, ["compare", "--all", f"--driver-root={empty_node}"])
    assert (done.exit_code, done.stdout) == (1, "")
    message, hint = done.stderr.splitlines()
    assert message.startswith(f"Error GH1942: no NVIDIA driver in {empty_node}")
    assert "--driver-root /host" in hint


def test_unknown_container_is_reported_without_a_driver_too(tmp_path: Path) -> None:
    words = ["compare", "nobody-is-called-so", "--driver-root", str(tmp_path)]
    failed = CliRunner().invoke(main, words)
    assert failed.exit_code == 1
    assert failed.stderr.startswith("Error GH1735: nobody-is-called-so: no such container")


def test_hanging_driver_is_a_fault(empty_node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_worker, "SECONDS", 0.2)
    monkeypatch.setattr(discover, "node", lambda *_, **__: time.sleep(600))
    for words_ in (["compare", "--all"], ["inventory"]):
        done = CliRunner().invoke(main, [*words_, f"--driver-root={empty_node}"])
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("Error GH1256: the driver did not answer within 0.2 seconds")


def test_all_without_containers(empty_node: Path) -> None:
    """A text says so; documents remain documents."""
    words_ = ["compare", "--all", "--inventory", "t4"]
    done = CliRunner().invoke(main, words_)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "no running container has a GPU or requests one\n"
    told = json.loads(CliRunner().invoke(main, [*words_, "-o", "json"]).stdout)
    assert told["containers"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["x", "--all"],
        ["--all", "--watch"],
    ],
)
def test_contradictory_options_are_usage_errors(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["compare", *arguments]).exit_code == 2


def test_owner_of_a_spec(tmp_path: Path) -> None:
    """By its hook, or the variable that replaces it; NVIDIA's specs have neither."""
    settings = Settings()
    settings.spec_dirs = [str(tmp_path), str(tmp_path / "missing")]
    spec: dict[str, Any] = {"kind": "nvidia.com/gpu", "containerEdits": {}}
    for edits, is_ours in (
        ({"hooks": [{"path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook"]}]}, False),
        ({"hooks": [Jobs("/usr/bin/gpuhook-hook").hook()]}, True),
        ({"env": [hookless_mounts.ENV]}, True),
        ({"env": 3}, False),
    ):
        spec["containerEdits"] = edits
        (tmp_path / "nvidia.json").write_text(json.dumps(spec), encoding="utf-8")
        assert bool(own_spec(read_specs(settings), "nvidia.com/gpu")) is is_ours
    (tmp_path / "nvidia.json").write_text("{", encoding="utf-8")
    assert own_spec(read_specs(settings), "nvidia.com/gpu") == ""


def test_mounted_file_systems_are_not_read(tmp_path: Path) -> None:
    """A container's FUSE or NFS server may never answer: a mount of its data is not read."""
    file = tmp_path / "libcuda.so.1"
    file.touch()
    about = file.stat()
    device = f"{os.major(about.st_dev)}:{os.minor(about.st_dev)}"
    lines = (
        "11 10 0:90 / /data rw - fuse.gcsfuse bucket rw",
        "12 10 8:1 /x /data/below rw - ext4 /dev/sda1 rw",
        "13 10 0:91 / /home rw - nfs4 server:/home rw",
        f"14 10 {device} /x /driver/libcuda.so.1 ro - nfs4 server:/driver rw",
    )
    asked_of: list[str] = []

    def found(path: str) -> os.stat_result:
        asked_of.append(path)
        return about

    mounts = mountinfo.parse("\n".join(lines).encode())
    root = SimpleNamespace(mounts=lambda: mounts, status=found, real=lambda path: path)
    there = ContainerMounts(cast("Any", SimpleNamespace(root=root)), {}, [], CDI)
    wanted: Any = {"mounts": [{"hostPath": str(file), "containerPath": LIBCUDA}]}
    named = [one.name for one in there.items(ExpectedInjection(whole=wanted))]
    assert named == ["/driver/libcuda.so.1"]
    assert asked_of == ["/driver/libcuda.so.1"]


def test_title_has_name_image_and_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    """GPUs by index and model; wide has the request and the image as they are."""
    uuids = [f"GPU-0aaaaaaa-1111-0000-0000-00000000000{n}" for n in range(2)]
    devices = [UsageDevice(uuid, uuid, str(n), "NVIDIA A10") for n, uuid in enumerate(uuids)]
    image = "nvcr.io/nvidia/pytorch:24.05-py3"
    one = {"container": "4" * 64, "namespace": None, "pod": None, "name": "trainer"}
    counts = {"same": 7, "known": 0, "differences": 0}
    compared: dict[str, Any] = {**one, "image": image, "givenBy": "nvidia-cdi", "counts": counts}
    compared |= {"request": {"names": uuids, "where": "a variable"}, "notes": [], "items": []}
    names = node_usage.names_of(devices, uuids)
    for is_wide in (False, True):
        compare_text.container(compared, names, is_wide=is_wide, no_headers=False)
    compared |= {"namespace": "ml", "pod": "train-0", "name": "main", "image": None}
    compare_text.container(compared, names, is_wide=False, no_headers=False)
    narrow, wide, pod = capsys.readouterr().out.splitlines()
    start = "444444444444 (trainer, nvidia/pytorch:24.05-py3), GPUs added by nvidia-cdi, 0,1 (A10)"
    assert narrow == f"{start} requested by a variable: 7 alike, 0 differences"
    assert wide.startswith(f"{'4' * 64} (trainer, {image}), GPUs added by nvidia-cdi, ")
    assert all(uuid in wide for uuid in uuids)
    assert pod.startswith("444444444444 (ml/train-0/main), GPUs added by")
