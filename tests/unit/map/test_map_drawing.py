# SPDX-License-Identifier: Apache-2.0
"""The picture of a ps document, in a terminal, as SVG and as a page."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuhook.map import map_drawing, map_model, map_page, map_svg, map_terminal
from gpuhook.map.map_model import Bar, Cell, Picture
from gpuhook.usage import node_usage
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.usage import nvidia_devices

GIB = 1 << 30
GPU = "GPU-0aaaaaaa-0000-0000-0000-000000000000"


def gpu(uuid: str = GPU, index: str = "0", **facts: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "gpu": uuid,
        "index": index,
        "of": uuid,
        "name": "Tesla T4",
        "profile": None,
    }
    told |= {"split": False, "total": 16 * GIB, "used": 4 * GIB, "reserved": 0, "percent": 40}
    return {**told, "unattributed": 0, "lost": None, **facts}


def holder(
    identity: str, *held: str, gpus: tuple[str, ...] = (GPU,), used: int = GIB, size: int = 4 * GIB
) -> dict[str, Any]:
    """Return a container that holds replicas, and uses memory of each of its devices."""
    usage = [
        {
            "gpu": one,
            "held": True,
            "used": used,
            "total": 16 * GIB,
            "share": {"bytes": size, "by": "replicas"},
            "over": used > size,
            "percent": 7,
            "processes": [],
        }
        for one in gpus
    ]
    names = {"id": identity, "pod": None, "namespace": None, "container": None, "name": None}
    return {
        **names,
        "image": None,
        "route": "cdi",
        "gpus": list(gpus),
        "replicas": list(held),
        "usage": usage,
    }


def picture(
    gpus: list[dict[str, Any]],
    containers: list[dict[str, Any]] | None = None,
    units: dict[str, tuple[str, ...]] | None = None,
    processes: list[dict[str, Any]] | None = None,
) -> Picture:
    document = {"gpus": gpus, "containers": containers or [], "processes": processes or []}
    return map_drawing.picture("node-1", document, units or {})


def cells(found: Picture) -> list[tuple[str, str, str, float]]:
    return [(c.label, c.holder, c.state, round(c.part, 3)) for c in found.bars[0].cells]


REPLICAS = tuple(f"{GPU}::{number}" for number in range(4))


def test_replicas() -> None:
    """Replicas of one container are one cell; a holder above its share is marked."""
    containers = [holder("one", REPLICAS[0]), holder("two", *REPLICAS[1:3], used=9 * GIB)]
    found = picture([gpu()], containers, {GPU: REPLICAS})
    assert cells(found) == [
        ("::0", "one", map_model.HELD, 0.25),
        ("::1 ::2", "two", map_model.OVER, 0.5),
        ("::3", "", map_model.FREE, 0.25),
    ]
    assert found.bars[0].cells[2].size == 4 * GIB
    wanted = "1 GPU · 2 of 3 parts held · 1 above its share · 4 GiB of 16 GiB in use"
    assert found.summary == wanted


def test_container_without_a_replica_has_its_own_cell() -> None:
    found = picture([gpu()], [holder("one", REPLICAS[0]), holder("other")], {GPU: REPLICAS[:1]})
    assert cells(found) == [
        ("::0", "one", map_model.HELD, 0.5),
        ("no replica", "other", map_model.HELD, 0.5),
    ]


def test_cells_of_a_gpu_without_replicas() -> None:
    alone = picture([gpu()], [holder("one")])
    assert cells(alone) == [("", "one", map_model.HELD, 1.0)]
    shared = picture([gpu()], [holder("one"), holder("two")])
    assert [cell[:2] for cell in cells(shared)] == [("1/2", "one"), ("2/2", "two")]
    assert cells(picture([gpu()])) == [("", "", map_model.FREE, 1.0)]
    lost = picture([gpu(lost="GPU is lost", used=None, total=None)])
    assert cells(lost) == [("GPU is lost", "", map_model.LOST, 1.0)]


def test_mig_instances_are_drawn_by_memory() -> None:
    """The remainder is in no instance."""
    instances = [
        gpu(f"MIG-{n}", f"0:{n}", of=GPU, profile=profile, total=size * GIB)
        for n, (profile, size) in enumerate((("3g.8gb", 8), ("1g.2gb", 2)))
    ]
    found = picture(
        [gpu(split=True), *instances],
        [holder("one", "MIG-0::1", gpus=("MIG-0",))],
        {"MIG-0": ("MIG-0::0", "MIG-0::1")},
    )
    assert cells(found) == [
        ("3g.8gb ::0", "", map_model.FREE, 0.25),
        ("3g.8gb ::1", "one", map_model.HELD, 0.25),
        ("1g.2gb", "", map_model.FREE, 0.125),
        ("no instance", "", map_model.UNCUT, 0.375),
    ]


def test_memory_without_a_cell_has_a_note() -> None:
    host = {"gpu": GPU, "host": True, "name": "Xorg", "pid": 1, "used": 200 << 20}
    found = picture([gpu(unattributed=3 * GIB)], processes=[host])
    assert found.bars[0].notes == (
        "processes on the host use 200 MiB (Xorg)",
        "3 GiB are in use by unknown processes",
    )
    for text in (map_terminal.text(found, 100), map_svg.text(found), map_page.text(found)):
        assert all(note in text for note in found.bars[0].notes)


def test_long_names_keep_their_end() -> None:
    """The end of a pod's name, its replica and its memory are visible in any width."""
    held = []
    for n in range(7):
        long = {"namespace": "platform", "pod": f"a-training-job-with-a-long-name-{n}"}
        held.append(holder(f"c{n}", f"{GPU}::{n}", size=2 * GIB) | long | {"container": "main"})
    found = picture([gpu()], held, {GPU: tuple(f"{GPU}::{n}" for n in range(8))})
    for width in (60, 80, 120, 200):
        text = map_terminal.text(found, width)
        assert text.count("1 of 2 GiB") == 7, text
        assert all(f"name-{n}" in text or f"-{n}/main" in text for n in range(7)), text
    assert all(f"e-{n}</text>" in map_svg.text(found) for n in range(7))


def test_cells_have_the_name_and_the_image() -> None:
    """An image that does not fit is cut; the page has the whole one."""
    image = "docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04"
    long = holder("c" * 64, REPLICAS[0]) | {"name": "trainer", "image": image}
    other = holder("d" * 64, REPLICAS[1])
    found = picture([gpu()], [long, other], {GPU: REPLICAS})
    terminal = map_terminal.text(found, 140)
    drawn = (terminal, map_svg.text(found), map_page.text(found))
    for text in drawn:
        assert all(word in text for word in ("trainer", "cuda:12.4.1-base-ubuntu22.04", 12 * "d"))
        assert ("c" * 12 in text) is (text != terminal)
    assert all(f"image {image}" in text for text in drawn[1:])
    widths = {len(line) for line in terminal.splitlines() if line.startswith("│")}
    assert widths == {140}
    assert "cuda:12.4" in map_terminal.text(found, 60)
    assert not any(":12.4" in line for line in map_terminal.text(picture([gpu()]), 60).splitlines())


def test_gpus_of_unknown_index_have_different_names() -> None:
    """Two UUIDs that begin alike, and an index by the request of the container."""
    alike = [f"GPU-0aaaaaaa-1111-0000-0000-00000000000{n}" for n in range(2)]
    found = picture([], [holder("one", gpus=(*alike, "3", "/dev/nvidia7"))])
    assert [bar.title for bar in found.bars] == [*alike, "GPU 3", "/dev/nvidia7"]
    text = map_terminal.text(found, 100)
    assert all(bar.title in text for bar in found.bars)


def test_unknown_memory_is_not_zero() -> None:
    one = holder("one")
    one["usage"] = [{**one["usage"][0], "used": None, "total": None, "share": None}]
    found = picture([gpu(total=None, used=None)], [one])
    text = map_terminal.text(found, 80)
    assert "memory unknown" in text
    assert map_terminal.FINE.empty not in text
    assert "memory unknown" in map_page.text(found)


def test_summary_is_never_cut() -> None:
    found = picture([gpu(f"GPU-{n}", str(n)) for n in range(3)])
    assert found.summary in " ".join(map_terminal.text(found, 40).split("\n"))


def test_devices_without_an_inventory_are_drawn() -> None:
    """Without a driver and an inventory, the holders are shown."""
    found = picture([], [holder("one", gpus=("0",))])
    assert [(bar.uuid, bar.cells[0].holder) for bar in found.bars] == [("0", "one")]
    assert "one" in map_terminal.text(found, 80)


@pytest.mark.parametrize("profile", ["t4", "a100-mig", "h100x8", "lost-gpu"])
def test_shipped_profiles_can_be_drawn(profile: str) -> None:
    node = dump_file.load(profile)
    document = node_usage.empty(nvidia_devices.of_node(node))
    found = map_drawing.picture(profile, document, {})
    assert len(found.bars) == len(node.gpus)
    text = map_terminal.text(found, 120)
    assert all(f"GPU {gpu_.index} " in text for gpu_ in node.gpus)
    whole = map_page.text(found)
    assert all((one.profile or "") in whole for gpu_ in node.gpus for one in gpu_.instances)


HOSTILE = "</title><script>alert(1)</script>\x1b[31m\x07\u202e&\"'"
texts = st.text(max_size=30) | st.just(HOSTILE)


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    """Draw any picture."""
    states = st.sampled_from(sorted(map_model.WORDS))
    sizes = st.none() | st.integers(0, 200 * GIB)
    percents = st.none() | st.integers(0, 100)

    def cell() -> Cell:
        label, holder, container, route = (draw(texts) for _ in range(4))
        size, used, percent = draw(sizes), draw(sizes), draw(percents)
        part, state = draw(st.floats(0.001, 1)), draw(states)
        return Cell(part, state, label, holder, container, route, size, used, percent)

    def bar(index: int) -> Bar:
        some = [cell() for _ in range(draw(st.integers(1, 4)))]
        many = tuple(some * draw(st.sampled_from([1, 1, 15])))
        notes = tuple(draw(st.lists(texts, max_size=2)))
        numbers = draw(sizes), draw(sizes), draw(percents)
        return Bar(str(index), draw(texts), draw(texts), many, *numbers, notes)

    bars = tuple(bar(index) for index in range(draw(st.integers(0, 2))))
    return Picture(
        draw(texts), bars, draw(texts), draw(texts), tuple(draw(st.lists(texts, max_size=2)))
    )


@settings(max_examples=60)
@given(pictures(), st.integers(20, 200), st.booleans())
def test_terminal_picture_fits_any_width_and_is_escaped(
    found: Picture, width: int, is_ascii: bool
) -> None:
    signs = map_terminal.ASCII if is_ascii else map_terminal.FINE
    plain = map_terminal.text(found, width, signs=signs)
    assert all(len(line) <= max(map_terminal.NARROWEST, width) for line in plain.splitlines())
    assert all(line.isprintable() for line in plain.splitlines())
    assert plain.isascii() or not is_ascii
    coloured = map_terminal.text(found, width, signs=signs, has_colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


@settings(max_examples=60)
@given(pictures())
def test_markup_is_well_formed_for_any_text(found: Picture) -> None:
    """No text of a pod becomes an element, and nothing is loaded from elsewhere."""
    for text in (
        map_svg.text(found),
        map_page.text(found).partition("<body>")[2].partition("</body>")[0],
    ):
        root = ET.fromstring(text if text.startswith("<svg") else f"<r>{text}</r>")
        names = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert "script" not in names
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "") or "http" in str(found)
        assert sum(1 for one in root.iter() if "card" in one.get("class", "")) == len(found.bars)


def test_widths_add_up_to_the_total() -> None:
    """The narrowest part has a column and a border, even if another part has nearly all."""
    for parts in ([0.1] * 39, [0.98, 0.01, 0.01], [1.0]):
        widths = map_terminal._widths(parts, 79)
        assert sum(widths) == 79
        assert min(widths) >= 2


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_each_holder_is_named_in_a_terminal(width: int) -> None:
    """Cells that are too narrow have letters, and lines with their holders."""
    units = tuple(f"{GPU}::{number}" for number in range(24))
    found = picture([gpu()], [holder(f"job-{n}", unit) for n, unit in enumerate(units)])
    text = map_terminal.text(found, width)
    assert all(re.search(rf"::{n}  job-{n}  1 of 4 GiB", text) for n in range(24))
    assert "GPU 0 (Tesla T4)" in text
