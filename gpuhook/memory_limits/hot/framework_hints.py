# SPDX-License-Identifier: Apache-2.0
"""The variables that give CUDA frameworks their share of a GPU's memory.

A hint enforces nothing: each framework reads its own variable, for the pool of each of its
processes. With it, a framework fills its share and not the card.

A driver that enforces the limit reports the limit as the card's total to CUDA programs. Then a
fraction of the real card would shrink the share twice, so callers do not name the card; and a
framework's default, such as JAX's 75 % of the total, is of the share without any hint.

The effect of each variable, and why it is this one:

- TensorFlow has no variable for a limit; TF_FORCE_GPU_ALLOW_GROWTH keeps it from taking all free
  memory at its start.
- PyTorch: option per_process_memory_fraction, from 2.10 on, of the fraction of a card that the
  caching allocator may have. Under PYTORCH_CUDA_ALLOC_CONF an older PyTorch ends with "Unrecognized
  CachingAllocator option"; PYTORCH_ALLOC_CONF it does not read (to 2.8) or reads for known options
  only (2.9, seen in libc10.so of 2.9.1), so the hint does no harm there. A program's own
  PYTORCH_CUDA_ALLOC_CONF is kept: with it there is no hint.
- JAX: the fraction that XLA's allocator takes at once. XLA_CLIENT_MEM_FRACTION is newer, but no
  JAX starts with both, and programs set the older XLA_PYTHON_CLIENT_MEM_FRACTION themselves.
- CuPy: CUPY_GPU_MEMORY_LIMIT, bytes of each device's pool.
- Paddle: FLAGS_fraction_of_gpu_memory_to_use, of the pool that strategy naive_best_fit takes at
  once and in whose chunks auto_growth grows.
"""

from __future__ import annotations

from gpuhook.request.memory_request import NO_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TENSORFLOW, PYTORCH, JAX, CUPY, PADDLE = "tensorflow", "pytorch", "jax", "cupy", "paddle"
# What a process uses in addition to its framework's pool: CUDA's context, code, workspaces.
CONTEXT = 256 << 20  # bytes
_SCALE = 10000  # four digits of a fraction
# Other names of a framework's variable: if one of them is set, there is no hint.
_SAME = {
    "PYTORCH_ALLOC_CONF": ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
    "XLA_PYTHON_CLIENT_MEM_FRACTION": ("XLA_CLIENT_MEM_FRACTION",),
}


def variables(names: Iterable[str], hard: int, total: int | None) -> dict[str, str]:
    """Return the variables for `names`, of configuration.HINTS, on a card of `total` bytes.

    The framework's pool gets `hard` bytes less a CUDA context, or half of it if that is all. There
    is no fraction if `total` is unknown or not above `hard`, and no hint for an unknown framework.

    >>> variables(("cupy", "jax"), 4 << 30, 16 << 30)
    {'CUPY_GPU_MEMORY_LIMIT': '4026531840', 'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.2343'}
    """
    pool = max(hard - CONTEXT, hard // 2)
    fraction = _fraction(pool, total) if total is not None and hard < total else None
    found: dict[str, str] = {}
    for name in names:
        if name == TENSORFLOW:
            found["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
        elif name == CUPY and pool and hard < (total or NO_LIMIT):  # 0 would be no limit
            found["CUPY_GPU_MEMORY_LIMIT"] = str(pool)
        elif fraction is None:
            continue
        elif name == PYTORCH:
            found["PYTORCH_ALLOC_CONF"] = f"per_process_memory_fraction:{fraction}"
        elif name == JAX:
            found["XLA_PYTHON_CLIENT_MEM_FRACTION"] = fraction
        elif name == PADDLE:
            found["FLAGS_fraction_of_gpu_memory_to_use"] = fraction
    return found


def missing(
    names: Iterable[str], hard: int, total: int | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return variables() without those that `environment` has, by that name or another.

    An existing value is kept, also an empty one: it was set on purpose.
    """
    return {
        name: value
        for name, value in variables(names, hard, total).items()
        if not any(same in environment for same in (name, *_SAME.get(name, ())))
    }


def _fraction(pool: int, total: int) -> str | None:
    """Return pool / total, rounded down; None for 0."""
    part = pool * _SCALE // total
    return f"{part // _SCALE}.{part % _SCALE:04d}" if part else None
