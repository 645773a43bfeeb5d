# SPDX-License-Identifier: Apache-2.0
"""What an engine is to have when it is configured, and what is known of its node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_versions import Version

# wrapper: a runtime whose program is gpuhook-runtime. hook: the engine's own runtime, with our
# prestart hook. cdi: the engine applies CDI specs by itself.
Route = Literal["wrapper", "hook", "cdi"]
ROUTES: tuple[Route, ...] = ("wrapper", "hook", "cdi")
NAME = "nvidia"  # of the runtime, which a RuntimeClass calls its handler


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the engine is to have.

    `name` is the runtime's; `program` and `hook` are absolute paths on the node. Without
    `takes_over`, a runtime of that name that is not gpuhook's stays, and nothing is changed.
    `enables_cri` is for a containerd whose configuration disables what a kubelet talks to.
    """

    route: Route
    name: str
    program: str
    hook: str
    is_default: bool = False
    takes_over: bool = False
    enables_cri: bool = False


@dataclass(frozen=True, slots=True)
class EngineNode:
    """What an engine's plan is made from.

    `version` is that of the engine's daemon, None where it is not known. `config` and `drop_in`
    are files that somebody chose, "" for the engine's usual ones. `home` is that of the user whose
    engine it is, None for root's. `base_spec` is what `ctr oci spec` prints there, None where
    nobody asked: containerd's route hook makes its base_runtime_spec of it.
    """

    files: ConfigFiles
    version: Version | None = None
    config: str = ""
    drop_in: str = ""
    home: str | None = None
    base_spec: bytes | None = None
