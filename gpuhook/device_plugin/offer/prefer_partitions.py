# SPDX-License-Identifier: Apache-2.0
"""The best partitions of GPUs for one container: of few GPUs, and of those partly in use.

The criteria, in this order, as in AMD's device plugin:
1. the GPUs of the required partitions, then the fewest further GPUs;
2. the highest sum of the scores of the pairs of these GPUs;
3. the fewest free partitions on these GPUs, so that whole GPUs remain for others;
4. the lowest indices.
If several GPUs are needed, a greedy choice starts from each GPU, and the best result is taken.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.offer.prefer_linked import LinkedDevices
    from gpuhook.vendors.vendor_part import LinkScores


def choose(offer: LinkedDevices) -> set[str]:
    """Return the UUIDs of the best devices, the required ones among them."""
    required = offer.required
    free: dict[str, list[str]] = {}
    for device in offer.devices:
        if device.uuid in offer.available and device.uuid not in required:
            free.setdefault(device.gpu, []).append(device.uuid)
    missing = offer.size - len(required)
    started = dict.fromkeys(device.gpu for device in offer.devices if device.uuid in required)
    chosen = set(required)
    for gpu in sorted(started, key=lambda one: len(free.get(one, ()))):
        taken = free.pop(gpu, [])[:missing]
        chosen.update(taken)
        missing -= len(taken)
    if missing:
        for gpu in _best_gpus(free, missing, tuple(started), offer.links):
            taken = free[gpu][:missing]
            chosen.update(taken)
            missing -= len(taken)
    return chosen


def _best_gpus(
    free: dict[str, list[str]], missing: int, started: tuple[str, ...], links: LinkScores
) -> list[str]:
    """Return the best GPUs with at least `missing` free partitions, the fullest use first.

    A GPU has the UUID of its first partition, so that the scores of those are the GPUs'.
    """
    gpus = list(free)
    counts = [len(free[gpu]) for gpu in gpus]
    rows = [[links.score(one, other) for other in gpus] for one in gpus]
    bases = [sum(links.score(one, gpu) for gpu in started) for one in gpus]

    def grown(first: int) -> list[int]:
        picks, gains, left = [first], list(map(sum, zip(bases, rows[first]))), missing
        left -= counts[first]
        while left > 0:
            others = [one for one in range(len(gpus)) if one not in picks]
            enough = [one for one in others if counts[one] >= left]
            if enough:
                best = max(enough, key=lambda one: (gains[one], -counts[one], -one))
            else:
                best = max(others, key=lambda one: (counts[one], gains[one], -one))
            picks.append(best)
            gains = list(map(sum, zip(gains, rows[best])))
            left -= counts[best]
        return picks

    def rank(picks: list[int]) -> tuple[int, int, int, list[int]]:
        near = sum(bases[one] + sum(rows[one][two] for two in picks) for one in picks)
        return (len(picks), -near, sum(counts[one] for one in picks), sorted(picks))

    best = min(map(grown, range(len(gpus))), key=rank)
    # The GPUs that are used up come first, so that the rest is of one GPU.
    return [gpus[one] for one in sorted(best, key=lambda one: (counts[one], one))]
