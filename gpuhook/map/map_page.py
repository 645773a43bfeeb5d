# SPDX-License-Identifier: Apache-2.0
"""The picture as a self-contained HTML page: the SVG, and a table of the holders."""

from __future__ import annotations

from gpuhook.map import map_svg
from gpuhook.map.map_svg import shown
from gpuhook.usage.display_names import short_id, short_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.map.map_model import Bar, Cell, Picture

_STYLE = """
body { margin: 0; background: var(--back); color: var(--text); line-height: 1.45; }
main { max-width: 1184px; margin: 0 auto; padding-bottom: 32px; }
.picture { overflow-x: auto; }
.picture svg { display: block; width: 100%; min-width: 640px; height: auto; }
section { margin: 0 32px; }
h2 { font-size: 16px; margin: 0 0 8px; font-weight: 650; }
.table { overflow-x: auto; border: 1px solid var(--line); border-radius: 12px;
  background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { text-align: left; padding: 7px 14px; vertical-align: top;
  border-top: 1px solid var(--line); }
thead th { border-top: 0; color: var(--soft); font-weight: 600; }
tbody th { font-weight: 600; white-space: nowrap; } tr { break-inside: avoid; }
td.id { font-family: ui-monospace, Menlo, monospace; font-size: 12px; white-space: nowrap; }
td { overflow-wrap: anywhere; }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
tr.over td, tr.over th { background: var(--overcell); }
@page { margin: 14mm; }
@media print { main { max-width: none; padding: 0; }
  .picture svg { min-width: 0; max-height: 260mm; } table { font-size: 11.5px; }
  h2 { break-after: avoid; } thead { display: table-header-group; }
  .table, .picture { overflow: visible; } }
"""
_NOTHING = "-"
_HEADERS = ("GPU", "Part", "Held by", "Image", "Container", "Memory", "Busy", "Given by")


def text(picture: Picture) -> str:
    """Return a whole HTML file; the style of the picture applies to the page too."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>GPUs of {shown(picture.node)}</title>\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<div class="picture">{map_svg.text(picture)}</div>\n'
        f"{_table(picture)}</main>\n</body>\n</html>\n"
    )


def _table(picture: Picture) -> str:
    """Return the table of the holders, "" without any."""
    held = ((bar, cell) for bar in picture.bars for cell in bar.cells if cell.holder)
    rows = "\n".join(_row(bar, cell) for bar, cell in held)
    if not rows:
        return ""
    heads = "".join(f'<th scope="col">{word}</th>' for word in _HEADERS)
    return (
        '<section><h2>Holders</h2>\n<div class="table"><table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div></section>\n"
    )


def _row(bar: Bar, cell: Cell) -> str:
    memory = f"{cell.memory}, above its share" if cell.state == "over" else cell.memory
    busy = f"{cell.percent}%" if cell.percent is not None else _NOTHING
    return (
        f'<tr class="{cell.state}"><th scope="row">{shown(bar.heading)}</th>'
        f"<td>{shown(cell.label) or 'whole'}</td><td>{shown(cell.holder)}</td>"
        f'<td title="{shown(cell.image)}">{shown(short_image(cell.image))}</td>'
        f'<td class="id" title="{shown(cell.container)}">{shown(short_id(cell.container))}</td>'
        f'<td class="number">{shown(memory) or _NOTHING}</td>'
        f'<td class="number">{busy}</td><td>{shown(cell.route) or _NOTHING}</td></tr>'
    )
