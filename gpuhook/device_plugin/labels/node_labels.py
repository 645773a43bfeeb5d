# SPDX-License-Identifier: Apache-2.0
"""The feature labels of a node: what its GPUs are and how they are offered.

Names and values are those of NVIDIA's GPU feature discovery, so that selectors go on to work, and
some of gpuhook's own: the memory of a replica, who bounds it, and labels per model where a node has
several.
Pure: what it needs is given, and what cannot be told has no label.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.device_plugin.labels import label_text
from gpuhook.device_plugin.labels.gpu_groups import GPU, MIG, Group, groups, invalid_single

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node

PREFIX = "nvidia.com/"


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """What labels tell of a node that its inventory has not. None: it could not be told."""

    machine: str | None = None  # product name of the DMI table
    clique: str | None = None  # "<cluster UUID>.<clique id>", where all attached GPUs agree
    modes: tuple[str | None, ...] = ()  # of the GPUs, by PCI class: "graphics", "compute"
    is_vgpu: bool = False  # some GPU is one of a hypervisor
    vgpu_host_driver_version: str | None = None
    vgpu_host_driver_branch: str | None = None
    driver_limits: bool = False  # the driver can hold a container to a limit of memory


def labels(
    node: Node,
    resources: tuple[Resource, ...],
    configuration: Configuration,
    facts: LabelFacts,
    timestamp: int | None = None,
) -> dict[str, str]:
    """Return the labels of a node, by name; `timestamp` (seconds of the epoch) is when they began.

    A node that offers no GPU and has none in MIG mode has the labels about vGPUs alone, as with
    the reference.
    """
    found = _vgpu(facts)
    every = groups(node, resources, configuration, driver_limits=facts.driver_limits)
    invalid = invalid_single(node, resources, configuration)
    if every or invalid:
        found |= _driver(node.driver)
        found |= _node(node, configuration, facts)
        found |= _named("gpu", invalid) if invalid else _offered(every)
    main = _main(every)
    if main is not None and configuration.own.accelerator_label:
        found["accelerator"] = _accelerator(main.model)
    if timestamp is not None:
        found[f"{PREFIX}gfd.timestamp"] = str(timestamp)
    return dict(sorted(found.items()))


def _named(subject: str, values: dict[str, str]) -> dict[str, str]:
    return {f"{PREFIX}{subject}.{name}": value for name, value in values.items()}


def _vgpu(facts: LabelFacts) -> dict[str, str]:
    told = {"present": _yes_no(facts.is_vgpu)}
    if facts.is_vgpu and facts.vgpu_host_driver_version:
        told["host-driver-version"] = label_text.value(facts.vgpu_host_driver_version)
    if facts.is_vgpu and facts.vgpu_host_driver_branch:
        told["host-driver-branch"] = label_text.value(facts.vgpu_host_driver_branch)
    return _named("vgpu", told)


def _driver(driver: Driver) -> dict[str, str]:
    """Return the versions, those under the older names too. A driver may have any count of parts.

    >>> sorted(_version("580.95.05").items())[:2]
    [('full', '580.95.05'), ('major', '580')]
    """
    found: dict[str, str] = {}
    if driver.version:
        parts = _version(driver.version)
        found |= _named("cuda.driver-version", parts)
        older = {"major": "major", "minor": "minor", "rev": "revision"}
        found |= _named("cuda.driver", {name: parts[of] for name, of in older.items()})
    if driver.cuda:
        parts = _version(driver.cuda)
        del parts["revision"]
        found |= _named("cuda.runtime-version", parts)
        found |= _named("cuda.runtime", {name: parts[name] for name in ("major", "minor")})
    return found


def _version(text: str) -> dict[str, str]:
    major, _, rest = text.partition(".")
    minor, _, revision = rest.partition(".")
    parts = {"major": major, "minor": minor, "revision": revision, "full": text}
    return {name: label_text.value(part) for name, part in parts.items()}


def _node(node: Node, configuration: Configuration, facts: LabelFacts) -> dict[str, str]:
    strategy = configuration.flags.mig_strategy
    is_capable = any(gpu.mig_mode in ("enabled", "disabled") for gpu in node.gpus)
    told = {
        "gpu.machine": label_text.value(facts.machine or "") or "unknown",
        "gpu.mode": _mode(facts.modes),
        "mig.capable": _yes_no(is_capable),
        "mps.capable": _yes_no(configuration.sharing.strategy == MPS and strategy == "none"),
    }
    if strategy != "none":
        told["mig.strategy"] = strategy
    if facts.clique:
        told["gpu.clique"] = label_text.value(facts.clique)
    return {PREFIX + name: value for name, value in told.items()}


def _mode(modes: tuple[str | None, ...]) -> str:
    """Return the mode of all GPUs, "unknown" where they have not the same."""
    return (modes[0] if len(set(modes)) == 1 else None) or "unknown"


def _offered(every: tuple[Group, ...]) -> dict[str, str]:
    """Return the labels of what is offered: the most numerous model's as the node's own.

    With several models, each has its labels under gpu-<model>.
    """
    main = _main(every)
    found = _named("gpu", main.labels()) if main else {}
    models = [group for group in every if group.subject == GPU]
    for group in models if len(models) > 1 else ():
        found |= _named(f"gpu-{group.key}", group.labels())
    for group in every:
        if group.subject == MIG:
            found |= _named(f"mig-{group.key}", group.labels())
    return found


def _main(every: tuple[Group, ...]) -> Group | None:
    """Return the group that the labels without a model are of: the largest that can be asked for.

    Among equals it is that of the lowest index.
    """
    models = [group for group in every if group.subject == GPU]
    return max(models, key=lambda group: (group.replicas > 0, group.count), default=None)


def _accelerator(model: str) -> str:
    """Return the value of the label that people give to node types by hand.

    >>> _accelerator("Tesla T4"), _accelerator("NVIDIA L4")
    ('nvidia-tesla-t4', 'nvidia-l4')
    """
    text = model if model.lower().startswith("nvidia") else f"nvidia {model}"
    return label_text.value(text).lower()


def _yes_no(fact: bool) -> str:
    return "true" if fact else "false"
