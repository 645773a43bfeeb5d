# SPDX-License-Identifier: Apache-2.0
"""The options of `gpuhook dra run`: some of the device plugin, and those of the kubelet's sockets.

The configuration file is that of the device plugin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace

from gpuhook.device_plugin.api_server.service_account import SERVICE_ACCOUNT
from gpuhook.device_plugin.config import launch_options, plugin_options
from gpuhook.device_plugin.config.grammar.grammar import Option, flag, keys_of
from gpuhook.device_plugin.config.grammar.value_kinds import DIRECTORY, NAME
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuhook.device_plugin.config.overrides import OptionValues

_POD_UID = re.compile(r"[0-9A-Za-z-]{0,64}")


@dataclass(frozen=True, slots=True)
class DraLaunch:
    """The options of a start. `plugin` has those that the device plugin has, too."""

    plugin: Launch = field(default_factory=Launch)
    kubelet_root: str = flag(
        DIRECTORY,
        "The kubelet's directory, at the same path as on the host: it has the directories of the "
        "sockets, plugins and plugins_registry.",
        "/var/lib/kubelet",
    )
    pod_uid: str = flag(
        NAME,
        "The UID of the driver's pod, for its own sockets: the pods of a rolling update can then "
        "run at the same time.",
        "",
        option=Option(variables=("POD_UID",)),
    )
    service_account: str = flag(
        DIRECTORY,
        "The directory with the token and the ca.crt of a service account.",
        SERVICE_ACCOUNT,
    )


_OWN = tuple(
    key.option for key in keys_of(DraLaunch, variables="GPUHOOK_") if key.option is not None
)
_NODE = "The name of this node in the cluster, which is also that of its pools. Required."


def options(names: Collection[str]) -> tuple[Option, ...]:
    """Return the options of the device plugin with these names, and those of a driver only."""
    chosen = [one for one in plugin_options.OPTIONS if one.name in names]
    named = (replace(one, about=_NODE) if one.name == "node-name" else one for one in chosen)
    return (*named, *_OWN)


def dra_launch(given: OptionValues, environ: Mapping[str, str]) -> DraLaunch:
    """Return the options of the command line and the environment.

    Raises GH1803 and GH1804 as launch_options.launch(), and GH2609 for what a driver lacks.
    """
    names = {one.name for one in fields(DraLaunch)} & given.launch.keys()
    own = {name: str(given.launch.pop(name)) for name in names}
    made = DraLaunch(launch_options.launch(given), **own)
    if not made.plugin.node_name:
        hint = "set --node-name, in a pod NODE_NAME from spec.nodeName"
        raise fault("GH2609", reason="the name of the node is not known", hint=hint)
    if _POD_UID.fullmatch(made.pod_uid) is None:
        hint = "set POD_UID from metadata.uid of the pod"
        raise fault("GH2609", reason=f"{made.pod_uid!r} is not the UID of a pod", hint=hint)
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        hint = "run it in a pod, or set KUBERNETES_SERVICE_HOST and --service-account"
        raise fault("GH2609", reason="the address of the API server is not known", hint=hint)
    return made
