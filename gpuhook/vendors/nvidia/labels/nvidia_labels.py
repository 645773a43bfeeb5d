# SPDX-License-Identifier: Apache-2.0
"""The feature labels of a node: its GPUs and how they are offered.

Names and values are those of NVIDIA's GPU feature discovery, so that selectors continue to work.
gpuhook adds the memory of a replica, what enforces it, and labels per model on a node with several.
Pure: a fact that is not available has no label.
"""

from __future__ import annotations

import re

from gpuhook.vendors.labels import label_text
from gpuhook.vendors.labels.vendor_labels import VendorLabels
from gpuhook.vendors.nvidia.labels.gpu_groups import (
    FIELDS,
    GPU,
    MIG,
    Group,
    groups,
    invalid_single,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.labels.vendor_labels import LabelOffer
    from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
    from gpuhook.vendors.nvidia.labels.label_facts import LabelFacts

PREFIX = "nvidia.com/"
_FIELDS = "|".join(map(re.escape, FIELDS))
NAMES = (  # the pattern of the names that labels() returns for some node
    rf"{PREFIX}((gpu|gpu-.+|mig-.+)\.({_FIELDS})|gpu\.(machine|mode|clique)|gfd\.timestamp|"
    r"cuda\.(driver\.(major|minor|rev)|runtime\.(major|minor)|"
    r"driver-version\.(major|minor|revision|full)|runtime-version\.(major|minor|full))|"
    r"mig\.(capable|strategy)|mps\.capable|"
    r"vgpu\.(present|host-driver-version|host-driver-branch))"
)


def labels(node: Node, offer: LabelOffer, facts: LabelFacts) -> VendorLabels:
    """Return the labels of a node.

    A node that offers no GPU and has none in MIG mode has only the labels about vGPUs, as with
    NVIDIA's GPU feature discovery; one without the driver has none if it has other GPUs.
    """
    if not offer.is_only and not node.gpus and node.driver.version is None:
        return VendorLabels(names=NAMES)
    values = _vgpu(facts)
    every = groups(node, offer)
    invalid = invalid_single(node, offer)
    if every or invalid:
        values |= _driver(node.driver)
        values |= _node(node, offer, facts)
        values |= _named("gpu", invalid) if invalid else _offered(every)
    if offer.timestamp is not None:
        values[f"{PREFIX}gfd.timestamp"] = str(offer.timestamp)
    main = _main(every)
    return VendorLabels(values, NAMES, model="" if main is None else main.offered.model)


def _named(subject: str, values: dict[str, str]) -> dict[str, str]:
    return {f"{PREFIX}{subject}.{name}": value for name, value in values.items()}


def _vgpu(facts: LabelFacts) -> dict[str, str]:
    values = {"present": _yes_no(facts.is_vgpu)}
    if facts.is_vgpu and facts.vgpu_host_driver_version:
        values["host-driver-version"] = label_text.value(facts.vgpu_host_driver_version)
    if facts.is_vgpu and facts.vgpu_host_driver_branch:
        values["host-driver-branch"] = label_text.value(facts.vgpu_host_driver_branch)
    return _named("vgpu", values)


def _driver(driver: Driver) -> dict[str, str]:
    """Return the versions, also under the older names. A version has any number of parts.

    >>> sorted(_version("580.95.05").items())[:2]
    [('full', '580.95.05'), ('major', '580')]
    """
    values: dict[str, str] = {}
    if driver.version:
        parts = _version(driver.version)
        values |= _named("cuda.driver-version", parts)
        older = {"major": "major", "minor": "minor", "rev": "revision"}
        values |= _named("cuda.driver", {name: parts[of] for name, of in older.items()})
    if driver.cuda:
        parts = _version(driver.cuda)
        del parts["revision"]
        values |= _named("cuda.runtime-version", parts)
        values |= _named("cuda.runtime", {name: parts[name] for name in ("major", "minor")})
    return values


def _version(text: str) -> dict[str, str]:
    major, _, rest = text.partition(".")
    minor, _, revision = rest.partition(".")
    parts = {"major": major, "minor": minor, "revision": revision, "full": text}
    return {name: label_text.value(part) for name, part in parts.items()}


def _node(node: Node, offer: LabelOffer, facts: LabelFacts) -> dict[str, str]:
    strategy = offer.strategy
    is_capable = any(gpu.mig_mode in ("enabled", "disabled") for gpu in node.gpus)
    values = {
        "gpu.machine": label_text.value(facts.machine or "") or "unknown",
        "gpu.mode": _mode(facts.modes),
        "mig.capable": _yes_no(is_capable),
        "mps.capable": _yes_no(offer.sharing == "mps" and strategy == "none"),
    }
    if strategy != "none":
        values["mig.strategy"] = strategy
    if facts.clique:
        values["gpu.clique"] = label_text.value(facts.clique)
    return {PREFIX + name: value for name, value in values.items()}


def _mode(modes: tuple[str | None, ...]) -> str:
    """Return the mode of all GPUs, "unknown" if they differ."""
    return (modes[0] if len(set(modes)) == 1 else None) or "unknown"


def _offered(every: tuple[Group, ...]) -> dict[str, str]:
    """Return the labels of the offer; those without a model describe the most numerous model.

    With several models, each one also has labels under gpu-<model>.
    """
    main = _main(every)
    values = _named("gpu", main.labels()) if main else {}
    models = [group for group in every if group.subject == GPU]
    for group in models if len(models) > 1 else ():
        values |= _named(f"gpu-{group.offered.key}", group.labels())
    for group in every:
        if group.subject == MIG:
            values |= _named(f"mig-{group.offered.key}", group.labels())
    return values


def _main(every: tuple[Group, ...]) -> Group | None:
    """Return the group for the labels without a model: the largest one with replicas.

    Of equal groups it is the one of the lowest index.
    """
    models = [group for group in every if group.subject == GPU]
    return max(
        models, key=lambda group: (group.offered.replicas > 0, group.offered.count), default=None
    )


def _yes_no(fact: bool) -> str:
    return "true" if fact else "false"
