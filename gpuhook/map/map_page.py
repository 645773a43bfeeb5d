# SPDX-License-Identifier: Apache-2.0
"""The picture as a self-contained HTML page: the drawing, and a table of the holders."""

from __future__ import annotations

from gpuhook.map import map_svg, svg_colors
from gpuhook.map.map_svg import shown
from gpuhook.usage.display_names import short_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.map.map_model import Bar, Cell, Picture

_STYLE = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); line-height: 1.45; }
main { max-width: 1184px; margin: 0 auto; padding: 28px 32px 40px; }
header { display: flex; flex-wrap: wrap; justify-content: space-between; align-items: baseline;
  gap: 4px 24px; margin-bottom: 14px; }
h1 { font-size: 24px; margin: 0; font-weight: 650; }
h2 { font-size: 16px; margin: 28px 0 8px; font-weight: 650; }
p { margin: 0; } time { color: var(--soft); font-size: 13px; }
header p { flex-basis: 100%; }
.warnings { margin: 0 0 16px; padding: 10px 16px 10px 34px; border: 1px solid var(--overedge);
  border-radius: 10px; background: var(--overcell); font-size: 14px; }
figure { margin: 0 0 14px; break-inside: avoid; overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 640px; height: auto; }
.key svg { min-width: 0; }
.defs { position: absolute; }
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
@media print { main { max-width: none; padding: 0; } figure svg { min-width: 0; }
  table { font-size: 11.5px; } h2 { break-after: avoid; } thead { display: table-header-group; }
  .table, figure { overflow: visible; } }
"""
_NOTHING = "-"
_HEADERS = ("GPU", "Part", "Held by", "Container", "Memory", "Busy", "Given by")


def text(picture: Picture) -> str:
    """Return a whole HTML file."""
    title = f"GPUs of {shown(picture.node)}"
    figures = "\n".join(map(_figure, picture.bars)) or "<p>No GPUs.</p>"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n"
        f"<style>{svg_colors.root(':root')}{svg_colors.DRAWING}{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{title}</h1><time>{shown(picture.when)}</time>"
        f"<p>{shown(picture.summary)}</p></header>\n{_warnings(picture)}"
        f'<svg width="0" height="0" class="defs" aria-hidden="true">{map_svg.HATCH}</svg>\n'
        f"{figures}\n{_key(picture)}\n{_table(picture)}</main>\n</body>\n</html>\n"
    )


def _warnings(picture: Picture) -> str:
    if not picture.warnings:
        return ""
    items = "".join(f"<li>{shown(words)}</li>" for words in picture.warnings)
    return f'<ul class="warnings">{items}</ul>\n'


def _figure(bar: Bar) -> str:
    drawn, height = map_svg.card(bar)
    return f'<figure><svg viewBox="0 0 {map_svg.WIDTH} {height}">{drawn}</svg></figure>'


def _key(picture: Picture) -> str:
    drawn, height = map_svg.key(picture)
    return (
        f'<figure class="key"><svg viewBox="0 0 {map_svg.WIDTH} {height}" role="img" '
        f'aria-label="Legend">{drawn}</svg></figure>'
    )


def _table(picture: Picture) -> str:
    """Return the table of the holders, "" without any."""
    rows = "\n".join(_row(bar, cell) for bar, cell in map_svg.cells(picture))
    if not rows:
        return ""
    heads = "".join(f'<th scope="col">{word}</th>' for word in _HEADERS)
    return (
        '<h2>Holders</h2>\n<div class="table"><table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n"
    )


def _row(bar: Bar, cell: Cell) -> str:
    memory = f"{cell.memory}, above its share" if cell.state == "over" else cell.memory
    busy = f"{cell.percent}%" if cell.percent is not None else _NOTHING
    return (
        f'<tr class="{cell.state}"><th scope="row">GPU {shown(bar.index)}</th>'
        f"<td>{shown(cell.label) or 'whole'}</td><td>{shown(cell.holder)}</td>"
        f'<td class="id" title="{shown(cell.container)}">{shown(short_id(cell.container))}</td>'
        f'<td class="number">{shown(memory) or _NOTHING}</td>'
        f'<td class="number">{busy}</td><td>{shown(cell.route) or _NOTHING}</td></tr>'
    )
