# SPDX-License-Identifier: Apache-2.0
"""The options of the device plugin: those of the keys, of a start, and those without effect.

Options and variables of NVIDIA's plugin keep their names; the others have GPUHOOK_ variables.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.device_plugin.config.config_source import ConfigSource
from gpuhook.device_plugin.config.configuration import ROOT_SECTION
from gpuhook.device_plugin.config.grammar.grammar import Option, keys_of, walk
from gpuhook.device_plugin.config.grammar.value_kinds import BOOLEAN
from gpuhook.device_plugin.config.launch_options import Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ABOUT = "No effect; accepted with a warning."
_WITHOUT_EFFECT = (
    Option(
        "cdi-feature-flags",
        ("CDI_FEATURE_FLAGS",),
        about=_ABOUT,
        ignored="gpuhook does not have the features of NVIDIA's CDI generator",
    ),
    Option(
        "cdi-disable-hooks",
        ("CDI_DISABLE_HOOKS",),
        about=_ABOUT,
        ignored="gpuhook's CDI specs contain only its own hook, and none of NVIDIA's",
    ),
    Option(
        "use-node-feature-api",
        ("GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"),
        BOOLEAN,
        _ABOUT,
        ignored="gpuhook writes its labels to a file (--labels) or to the node (--label-node)",
    ),
)


def _options() -> Iterator[Option]:
    for path, key in walk(ROOT_SECTION):
        if key.option is not None:
            yield replace(key.option, key=path)
    for made in (ConfigSource, Launch):
        for key in keys_of(made, variables="GPUHOOK_"):
            if key.option is not None:
                yield key.option


_ALL = tuple(_options())
OPTIONS = (*(one for one in _ALL if not one.is_of_labels), *_WITHOUT_EFFECT)
# Of `gpuhook labels` only: the plugin runs until it is stopped, and updates labels on changes.
LABEL_OPTIONS = tuple(one for one in _ALL if one.is_of_labels)
