# SPDX-License-Identifier: Apache-2.0
"""Containers of Kubernetes manifests as questions, with the device plugin's allocation."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.explain import question as kinds
from gpuhook.explain.pods.container_spec import as_spec
from gpuhook.explain.question import Question

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.vendors.nvidia.inventory.inventory import Node

_IMAGE = "a manifest does not have the image's variables: pass them with --env"


def questions(text: str, where: str) -> list[Question]:
    """Return the question of each container in manifests of pods and workloads.

    allotted() adds the allocation of the device plugin. Raises GH1930 to GH1932.
    """
    from gpuhook.explain.pods import pod_manifests  # it loads the code for YAML

    return [
        Question(kinds.POD, one.title, as_spec(one), notes=(_IMAGE,), asked=one)
        for one in pod_manifests.read(text, where)
    ]


def allotted(
    found: Sequence[Question],
    node: Node | None,
    plugin_config: str | None,
    image_env: Sequence[str],
    host_root: str | None = None,
) -> list[Question]:
    """Return the questions with the placement of the pods and the device plugin's allocation.

    `plugin_config` is the path of the plugin's configuration, None for its defaults; `image_env`
    are the variables of the containers' image. `host_root` is None for a node that is not this
    machine. Each pod is alone on the node. Without the node's facts there is no allocation.
    Questions other than pods are unchanged. Raises GH1800 and GH1801 for the configuration, and
    what pod_answers.of_pods() raises.
    """
    asked = [one.asked for one in found if one.asked is not None]
    if not asked:
        return list(found)
    from gpuhook.explain.pods import plugin_offer, pod_answers  # they load the device plugin
    from gpuhook.explain.pods.scheduling import pod_placements

    chosen = plugin_offer.configuration(plugin_config)
    given = iter(pod_answers.of_pods(asked, node, chosen) if node is not None else ())
    placements = iter(pod_placements.pod_placements(asked, node, chosen, host_root))
    done = []
    for one in found:
        if one.asked is not None:
            allocated = next(given, None)
            spec = as_spec(one.asked, allocated, node, image_env=image_env)
            notes = () if image_env else one.notes
            one = replace(
                one, spec=spec, notes=notes, allocated=allocated, placement=next(placements)
            )
        done.append(one)
    return done
