# SPDX-License-Identifier: Apache-2.0
"""What prevents a plan for any engine: a broken configuration, a name in use, an old version."""

from __future__ import annotations

from gpuhook.engines.read.engine_config import ConfigPlace
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_plan import EngineNode
    from gpuhook.engines.read.engine_config import EngineConfiguration, Runtime, Version
    from gpuhook.engines.read.toml_document import UnreadableTomlError
    from gpuhook.errors import GpuhookError


def require_readable(configuration: EngineConfiguration) -> None:
    """Raise GH2027 for a file that gpuhook does not read, GH2003 if the engine would not start."""
    for trouble in configuration.trouble:
        if trouble.is_unread:
            raise fault("GH2027", where=trouble.where, said=trouble.said)
        engine = configuration.engine
        raise fault("GH2003", where=trouble.where, said=trouble.said, engine=engine)


def not_toml(engine: str, path: str, error: UnreadableTomlError) -> GpuhookError:
    """Return GH2003 for a file that is not TOML."""
    reason = f"is not TOML: {error.reason}"
    return fault("GH2003", where=ConfigPlace(path, error.line), said=reason, engine=engine)


def name_in_use(engine: str, runtime: Runtime, default_program: str) -> GpuhookError:
    """Return GH2000: a runtime of another program has the name."""
    program = runtime.path or default_program
    return fault("GH2000", where=runtime.where, name=runtime.name, engine=engine, program=program)


def require_cdi(engine: str, node: EngineNode, needed: Version) -> None:
    """Raise GH2045 if the node's engine is older than `needed`, which has CDI."""
    if node.version is not None and node.version < needed:
        raise fault("GH2045", engine=engine, version=dotted(node.version), needed=dotted(needed))


def dotted(version: Version) -> str:
    """Return a version as text, such as "1.7.27"."""
    return ".".join(map(str, version))
