# SPDX-License-Identifier: Apache-2.0
"""The faults of a device that no spec of this host describes.

Loaded only for such a device.
"""

from __future__ import annotations

from os.path import basename

from gpuhook.errors import GpuhookError, fault, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.registry import Registry

_SHOWN, _BROKEN = 12, 4
_GPUS = "gpu"  # the class of the devices that `gpuhook refresh` describes first
_OUR_HOOK = "gpuhook-hook"


def unknown_device(
    name: str, kind: str, registry: Registry, own_vendor: str, way: str
) -> GpuhookError:
    """Return GH1102 for the device `name`, or GH1104 if no spec is of its kind.

    generate-cdi writes the specs of `own_vendor`, of every vendor for "". `way` is the advice if no
    spec file can be written, else "".
    """
    specs = [spec for spec in registry.all() if spec.kind == kind]
    dirs = ", ".join(registry.dirs)
    broken = "".join(
        f"; {spec.path} is broken: {_without(spec.path, spec.error.message)}"
        for spec in registry.broken[:_BROKEN]
        if spec.error is not None
    )
    if not specs:
        way = way or _first_spec(kind, registry, own_vendor)
        return fault("GH1104", kind=kind, name=name, dirs=dirs, broken=broken, way=way)
    shown = _listed(dict.fromkeys(device for spec in specs for device in spec.names()))
    files = ", ".join(spec.path for spec in specs)
    newest = specs[-1]  # the one that applies
    if not way:
        way = "if the device is new, run its vendor's tool again"
        if _is_written_by_us(newest):
            way = f"if the GPU is new, run `gpuhook refresh`, which regenerates {newest.path}"
        elif _is_ours(kind, own_vendor):
            way = f"if the GPU is new, run `gpuhook generate-cdi --output-file {newest.path}`"
    return fault("GH1102", name=name, have=shown, files=files, broken=broken, way=way)


def requested(
    error: GpuhookError, name: str, where: str, devices: Iterable[str], advice: str
) -> GpuhookError:
    """Return GH1101 or GH1102 for a requested name, with its source and the node's devices.

    `where` names the source, "" for none. `devices` are the names of the node's devices, which
    GH1102 lists already. `advice` is the first thing to try, "" for none.
    """
    message, hint = error.message, error.hint
    shown = printable(name)
    # The message lacks short forms, such as a range of which one device is missing.
    if not message.startswith(shown) and f"={shown}" not in message:
        message = f"{shown}: {message}"
    listed = _listed(devices) if error.code == "GH1101" else ""
    if listed:
        message, hint = f"{message}; this node has {listed}", "request one of these"
    if where:
        message = f"{printable(where)}: {message}"
    return type(error)(error.code, message, f"{advice}; {hint}" if advice else hint)


def _listed(devices: Iterable[str]) -> str:
    names = list(devices)
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _is_ours(kind: str, own_vendor: str) -> bool:
    """Return whether generate-cdi can describe devices of a kind."""
    return f".{kind.partition('/')[0]}".endswith(f".{own_vendor}" if own_vendor else "")


def _first_spec(kind: str, registry: Registry, own_vendor: str) -> str:
    """Return the advice on how to get the first spec of a kind."""
    # A directory that is read: elsewhere, a new spec has no effect.
    place = registry.dirs[-1] if registry.dirs else "a directory of cdi.specDirs"
    if not _is_ours(kind, own_vendor):
        return f"install its vendor's tool for CDI specs; it must write to {place}"
    vendor, _, device_class = kind.partition("/")
    if device_class != _GPUS or vendor != (own_vendor or vendor):
        return (
            f"write one into {place} with `gpuhook generate-cdi`: its --mode, --vendor and "
            "--class say of which kind the devices are"
        )
    if registry.broken:  # `gpuhook refresh` replaces only specs that it has a record of
        paths = " and ".join(spec.path for spec in registry.broken[:_BROKEN])
        return f"restore or remove {paths}, then run `gpuhook refresh`"
    if any(map(_is_written_by_us, registry.all())):
        return f"run `gpuhook generate-cdi --output-file {place}/nvidia.yaml`"
    return f"run `gpuhook refresh`, which writes {place}/nvidia.yaml"


def _is_written_by_us(spec: Compiled) -> bool:
    """Return whether a spec has the hook of generate-cdi's specs."""
    hooks = spec.edits.get("hooks") or ()
    return any(basename(hook["path"]) == _OUR_HOOK for hook in hooks)


def _without(path: str, message: str) -> str:
    return message[len(path) + 2 :] if message.startswith(path + ": ") else message
