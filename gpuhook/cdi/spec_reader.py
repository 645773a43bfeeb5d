# SPDX-License-Identifier: Apache-2.0
"""CDI specs read here and now, for who only looks: no compiled form is kept, none is looked for."""

from __future__ import annotations

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compile as compiler
from gpuhook.cdi.hot import compiled_spec, registry
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.compiled_spec import Compiled


def layers(dirs: list[str]) -> list[list[Compiled]]:
    """Return the specs in each of `dirs`, and what is wrong with those that are broken."""
    return [_layer(directory) for directory in dirs]


def _layer(directory: str) -> list[Compiled]:
    found = (_read(path) for path in registry.files(directory))
    return [source for source in found if source is not None]


def _read(path: str) -> Compiled | None:
    """Return a spec, or what is wrong with it; None for a dangling link or a file that is gone."""
    try:
        return compiled_spec.of_spec(path, compiler.checked(spec_file.parser(path), path))
    except FileNotFoundError:
        return None
    except OSError as error:
        unreadable = fault("GH1110", path=path, reason=error.strerror or error)
        return compiled_spec.Compiled.of_fault(path, unreadable)
    except GpuhookError as error:
        return compiled_spec.Compiled.of_fault(path, error)
