# SPDX-License-Identifier: Apache-2.0
"""The three ways to share a GPU: who computes when, and who has which memory, as SVG."""

from __future__ import annotations

from html import escape

TITLE = "Time slicing, MPS and MIG: who computes when, and who has which memory"
_COLOURS = ("#4c8bf5", "#f0883e", "#3fb950", "#a371f7")
_NAMES = ("A", "B", "C", "D")
_PANEL, _GAP, _TOP = 280, 30, 84
_WIDTH, _HEIGHT = 3 * _PANEL + 4 * _GAP, 382
_CSS = """\
text{font:14px system-ui,sans-serif;fill:#1f2328}.head{font-size:18px;font-weight:bold}
.small{font-size:12px;fill:#59636e}.in{fill:#fff;font-weight:bold;text-anchor:middle}
.page{fill:#fff}.panel{fill:#f6f8fa;stroke:#d0d7de}
.free{fill:none;stroke:#8c959f;stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}
.panel{fill:#151b23;stroke:#3d444d}.in{fill:#fff}}"""
_PANELS = (
    (
        "Time slicing",
        "containers take turns",
        "one memory, no limit by itself:",
        "a memory limit needs gpuhook's guard",
        "or a driver that enforces it",
    ),
    (
        "MPS",
        "containers compute at once",
        "one memory, a limit per client,",
        "enforced by the MPS server;",
        "a crash can end all clients",
    ),
    (
        "MIG",
        "instances compute apart",
        "each instance has its own memory",
        "and its own compute units:",
        "tenants do not disturb each other",
    ),
)


def picture() -> str:
    """Return the SVG; it has a background, for pages in light and dark colours."""
    body = "".join(_panel(number) for number in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{escape(TITLE)}">\n'
        f"<style>{_CSS}</style>\n"
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>\n{body}</svg>\n'
    )


def _panel(number: int) -> str:
    name, compute, *memory = _PANELS[number]
    left = _GAP + number * (_PANEL + _GAP)
    parts = [
        f'<rect class="panel" x="{left}" y="20" width="{_PANEL}" height="342" rx="8"/>',
        f'<text class="head" x="{left + 16}" y="52">{name}</text>',
        f'<text class="small" x="{left + 16}" y="72">{compute}</text>',
        *(_slices, _lanes, _instances)[number](left + 16),
        f'<text class="small" x="{left + 16}" y="210">time →</text>',
        f'<text x="{left + 16}" y="238">Memory</text>',
        *(_shared, _limited, _split)[number](left + 16),
    ]
    parts += [
        f'<text class="small" x="{left + 16}" y="{308 + 18 * n}">{escape(line)}</text>'
        for n, line in enumerate(memory)
    ]
    return "\n".join(parts) + "\n"


def _box(left: float, top: float, width: float, height: float, owner: int) -> list[str]:
    middle = top + height / 2 + 5
    size = f'width="{width:g}" height="{height:g}"'
    return [
        f'<rect x="{left:g}" y="{top:g}" {size} rx="3" fill="{_COLOURS[owner]}"/>',
        f'<text class="in" x="{left + width / 2:g}" y="{middle:g}">{_NAMES[owner]}</text>',
    ]


def _slices(left: float) -> list[str]:
    turns = [_box(left + 31 * n, _TOP, 29, 108, n % 4) for n in range(8)]
    return [line for turn in turns for line in turn]


def _lanes(left: float) -> list[str]:
    return [line for n in range(4) for line in _box(left, _TOP + 27 * n, 246, 25, n)]


def _instances(left: float) -> list[str]:
    lanes = [_box(left, _TOP + 37 * n, 246, 32, n) for n in range(3)]
    return [line for lane in lanes for line in lane]


def _shared(left: float) -> list[str]:
    widths, found, at = (96, 30, 66, 40), list[str](), left
    for owner, width in enumerate(widths):
        found += _box(at, 250, width, 32, owner)
        at += width
    return [*found, f'<rect class="free" x="{left}" y="250" width="246" height="32" rx="3"/>']


def _limited(left: float) -> list[str]:
    found: list[str] = []
    for owner, width in enumerate((54, 30, 60, 44)):
        at = left + 62 * owner
        found += _box(at, 250, width, 32, owner)
        found.append(f'<rect class="free" x="{at}" y="250" width="60" height="32" rx="3"/>')
    return found


def _split(left: float) -> list[str]:
    return [line for n in range(3) for line in _box(left + 83 * n, 250, 80, 32, n)]
