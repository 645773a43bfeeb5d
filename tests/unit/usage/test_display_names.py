# SPDX-License-Identifier: Apache-2.0
"""The names of GPUs, containers and images in tables, and the width of these tables."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook.host.text_table import table
from gpuhook.usage import display_names, node_usage, ps_text
from gpuhook.usage.display_names import GpuNames
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.usage import nvidia_devices

ALIKE = [f"GPU-0aaaaaaa-1111-0000-0000-00000000000{n}" for n in range(2)]
HOSTILE = "\x1b[31m</td>\n\u202e"
T4 = "Tesla T4"


def gpu(uuid: str | None, index: str, name: str | None = T4, **facts: Any) -> dict[str, Any]:
    return {"gpu": uuid, "index": index, "name": name, "profile": None, "lost": None, **facts}


def profile_names(profile: str) -> GpuNames:
    return node_usage.names_of(nvidia_devices.of_node(dump_file.load(profile)))


def test_gpus_with_alike_uuids_are_different() -> None:
    """Known ones differ by their index, unknown ones by the whole UUID if they must."""
    known = GpuNames([gpu(ALIKE[0], "0"), gpu(ALIKE[1], "1")])
    assert [known.listed([uuid]) for uuid in ALIKE] == ["0 (Tesla T4)", "1 (Tesla T4)"]
    assert known.listed(ALIKE) == "0,1 (Tesla T4)"
    third = ALIKE[0].replace("1111", "2222")
    unknown = GpuNames((), [*ALIKE, third])
    assert unknown.listed([*ALIKE, third]) == f"{ALIKE[0]}, {ALIKE[1]}, GPU-0aaaaaaa-2222"
    assert GpuNames((), ALIKE[:1]).listed(ALIKE[:1]) == "GPU-0aaaaaaa"
    assert GpuNames([gpu(ALIKE[0], "0")], ALIKE).listed(ALIKE) == f"0 (Tesla T4), {ALIKE[1]}"


def test_replicas_have_the_name_of_their_device() -> None:
    replicas = [f"{ALIKE[0]}::0", f"{ALIKE[0]}::1", "nvidia.com/gpu=1::2"]
    known = GpuNames([gpu(ALIKE[0], "0"), gpu(ALIKE[1], "1")], replicas)
    assert known.listed(replicas) == "0,1 (Tesla T4)"
    assert GpuNames((), replicas[:2]).listed(replicas[:2]) == "GPU-0aaaaaaa"


@pytest.mark.parametrize(
    ("indices", "cell"),
    [
        ("", "-"),
        ("1 0", "0,1"),
        ("0 1 2 3 4 5 6 7", "0-7"),
        ("9 10 11 2 0", "0,2,9-11"),
        ("0:0 0:1 0:2 1:0 1:2", "0:0-2,1:0,1:2"),
        ("0 0:1 0", "0,0:1"),
    ],
)
def test_indices_of_one_model_are_one_list(indices: str, cell: str) -> None:
    names = GpuNames([gpu(f"GPU-{index}", index) for index in indices.split()])
    wanted = cell if cell == "-" else f"{cell} (Tesla T4)"
    assert names.listed([f"GPU-{index}" for index in indices.split()]) == wanted
    assert (
        GpuNames([gpu(None, one, None) for one in indices.split()]).listed(indices.split()) == cell
    )


def test_models_and_profiles() -> None:
    """MIG instances have their profile; devices are known by UUID, index and CDI name."""
    names = profile_names("a100-mig")
    node = dump_file.load("a100-mig")
    instance = node.gpus[0].instances[0]
    cell = f"0:{instance.index} ({instance.profile})"
    for name in (instance.uuid, f"0:{instance.index}", f"nvidia.com/gpu={instance.uuid}"):
        assert names.listed([name]) == cell
    whole = next(one for one in node.gpus if not one.instances)
    model = str(whole.name).removeprefix("NVIDIA ")
    both = names.listed([str(whole.uuid), instance.uuid])
    assert both == f"{whole.index} ({model}), {cell}"
    assert profile_names("h100x8").listed(str(n) for n in range(8)) == "0-7 (H100 80GB HBM3)"
    assert names.listed(["all"]) == "all"
    assert names.listed(["/dev/nvidia3", "/dev/nvidia4"]) == "/dev/nvidia3, /dev/nvidia4"


def test_lost_gpus_are_marked() -> None:
    names = GpuNames([gpu("GPU-1", "0"), gpu("GPU-2", "1", lost="fell off"), gpu("GPU-3", "2")])
    assert names.listed(["GPU-1", "GPU-2", "GPU-3"]) == "0,2 (Tesla T4), 1 (Tesla T4, lost)"
    assert GpuNames([gpu(None, "1", None, lost="no UUID")]).listed(["1"]) == "1 (lost)"


def test_container_cannot_take_the_name_of_a_model() -> None:
    """A name that a container requests does not join or hide the GPUs of a model."""
    names = GpuNames([gpu("GPU-1", "0")])
    assert names.listed(["GPU-1", T4]) == names.listed(["GPU-1"]) + f", {T4}"
    assert names.listed([T4, "GPU-1"]) == f"{T4}, 0 (Tesla T4)"


@pytest.mark.parametrize(
    ("image", "short"),
    [
        (None, "-"),
        ("", "-"),
        ("busybox", "busybox"),
        ("docker.io/library/busybox:1.36", "busybox:1.36"),
        ("localhost/trainer:dev", "trainer:dev"),
        ("registry.example:5000/team/trainer:v3", "team/trainer:v3"),
        (f"ghcr.io/team/app:v1@sha256:{64 * 'a'}", "team/app:v1"),
        (f"ghcr.io/team/app@sha256:{64 * 'a'}", "team/app@aaaaaaaaaaaa"),
        (64 * "a", 12 * "a"),
        ("registry.example/a-long-department/team/trainer:v3", "team/trainer:v3"),
        ("a-long-department/a-service-with-a-long-name:v3", "a-service-with-a-long-name:v3"),
        ("x" * 5000, "x" * 57 + "..."),
    ],
)
def test_images_are_repository_and_tag(image: str | None, short: str) -> None:
    assert display_names.short_image(image) == short


def document(**names: Any) -> dict[str, Any]:
    """Return a document of ps with a container of two replicas, and a process on the host."""
    use = {
        "gpu": ALIKE[0],
        "used": 3000 << 20,
        "total": 15360 << 20,
        "share": {"bytes": 3840 << 20, "by": "limit"},
        "percent": 35,
        "processes": [],
    }
    limit = {"gpu": ALIKE[0], "limit": 3840 << 20, "request": 0, "by": "driver", "guard": None}
    one: dict[str, Any] = {
        "id": "4c1f0a9be27d" + 52 * "0",
        "pod": None,
        "namespace": None,
        "container": None,
        "name": "trainer",
        "image": "docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04",
        "gpus": ALIKE[:1],
        "replicas": [f"{ALIKE[0]}::0", f"{ALIKE[0]}::1"],
        "claims": [],
        "usage": [use],
        "memory": [limit],
        "turns": {},
        "route": "wrapper",
        "device_plugin": False,
        "engine": "docker",
        "since": 0.0,
        "warnings": [],
    }
    device = {**gpu(ALIKE[0], "0"), "total": 15360 << 20, "unattributed": 0}
    host = {"gpu": ALIKE[0], "host": True, "pid": 1, "name": "X", "used": 1 << 20, "percent": None}
    containers = [{**one, **names}]
    return {"containers": containers, "gpus": [device], "processes": [host], "without_gpu": []}


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"name": "project-service-1", "image": "nvcr.io/nvidia/pytorch:24.05-py3"},
        {"pod": "train-0", "namespace": "ml", "container": "main", "name": "main"},
    ],
)
def test_usual_names_fit_in_120_columns(names: dict[str, Any]) -> None:
    headers, rows = ps_text.columns(document(**names), is_wide=False)
    text = table(headers, rows)
    assert max(map(len, text.splitlines())) <= 120
    name = "train-0/main" if "pod" in names else names.get("name", "trainer")
    assert rows[0][1] == name
    assert rows[1][:4] == ["(host)", "-", "-", "0 (Tesla T4)"]


def test_wide_tables_have_everything() -> None:
    headers, rows = ps_text.columns(document(), is_wide=True)
    row = dict(zip(headers, rows[0], strict=True))
    assert row["CONTAINER"] == "4c1f0a9be27d" + 52 * "0"
    assert (row["NAME"], row["GPUS"], row["UUIDS"]) == ("trainer", "0 (Tesla T4)", ALIKE[0])
    assert row["IMAGE"] == "docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04"
    assert row["REPLICAS"] == f"{ALIKE[0]}::0,{ALIKE[0]}::1"
    assert dict(zip(headers, rows[1], strict=True))["UUIDS"] == ALIKE[0]


@pytest.mark.parametrize("is_wide", [False, True])
def test_hostile_names_do_not_reach_the_terminal(is_wide: bool) -> None:
    hostile = document(name=HOSTILE, image=HOSTILE, gpus=[HOSTILE], namespace=HOSTILE)
    headers, rows = ps_text.columns(hostile, is_wide=is_wide)
    lines = table(headers, rows).splitlines()
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_container_without_a_name_has_a_dash() -> None:
    headers, rows = ps_text.columns(document(name=None, image=None), is_wide=False)
    row = dict(zip(headers, rows[0], strict=True))
    assert (row["NAME"], row["IMAGE"]) == ("-", "-")
