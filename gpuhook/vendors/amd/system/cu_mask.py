# SPDX-License-Identifier: Apache-2.0
"""HSA_CU_MASK: a part of the compute units (CUs) of a GPU for each of the containers that share it.

The mask is cooperative: ROCm reads the variable, and a program can remove it. It also fails open:
ROCm ignores a mask that it does not accept, without a message, and an XCC without a CU in the mask
runs unmasked. So there is no mask unless these rules give one:

- CDNA: bit i is a CU of XCC i mod X, of X XCCs. A part is a run of a multiple of X CUs.
- RDNA: CUs are in pairs (WGPs), and WGPs are in shader engines, of which there are E. A part is a
  run of a multiple of E WGPs. A CU without its pair makes ROCm ignore the mask.

Source: GPUStack's measurements with ROCm 7.2.4. gpuhook has not been run on such a GPU.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gpuhook.vendors.plugin.vendor_device import ComputeShare

VARIABLE = "HSA_CU_MASK"
_CDNA = ("gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950")
_RDNA = ("gfx10", "gfx11", "gfx12")
_PAIR = 2


def cu_group(gfx: str | None, xccs: int | None, engines: int | None) -> int | None:
    """Return the number of CUs of which a part must be a multiple, None for no mask.

    >>> cu_group("gfx942", 8, None), cu_group("gfx1100", None, 6), cu_group("gfx906", None, 4)
    (8, 12, None)
    """
    if gfx in _CDNA:
        return xccs
    if gfx is not None and gfx.startswith(_RDNA) and engines:
        return _PAIR * engines
    return None


def cu_run(cus: int, group: int, share: int, shares: int) -> range | None:
    """Return the CUs of part `share` (from 0) of `shares`; None if a part is smaller than a group.

    >>> cu_run(304, 8, 1, 38), cu_run(60, 6, 0, 4), cu_run(38, 8, 0, 5)
    (range(8, 16), range(0, 12), None)
    """
    size = cus // shares // group * group
    return range(share * size, (share + 1) * size) if size and share < shares else None


def variables(shares: Sequence[ComputeShare]) -> dict[str, str]:
    """Return the variable for a container with these shares, {} if there is no mask.

    ROCm numbers the GPUs of the container in KFD's order, which may be another one: the shares of
    several GPUs must be the same CUs.
    """
    parts = [_runs(share) for share in shares]
    if not parts or not all(parts) or any(part != parts[0] for part in parts):
        return {}
    return {VARIABLE: mask(enumerate(parts))}


def _runs(share: ComputeShare) -> list[range]:
    """Return the CUs of each replica of a device, [] if one has none."""
    if share.device.compute is None:
        return []
    cus, group = share.device.compute
    runs = [cu_run(cus, group, one, share.replica_count) for one in share.replicas]
    known = [run for run in runs if run is not None]
    return known if len(known) == len(runs) else []


def mask(parts: Iterable[tuple[int, Collection[range]]]) -> str:
    """Return the mask of the GPUs with these indices in the container, "" without a part.

    >>> mask([(0, [range(0, 8), range(16, 24)]), (2, [range(8)])])
    '0:0-7,16-23;2:0-7'
    """
    lists = ((index, sorted(runs, key=lambda run: run.start)) for index, runs in parts)
    words = (
        (index, ",".join(f"{run.start}-{run.stop - 1}" for run in runs)) for index, runs in lists
    )
    return ";".join(f"{index}:{text}" for index, text in words if text)
