# SPDX-License-Identifier: Apache-2.0
"""The style sheet of the picture: light, dark, and light on paper.

`:root` is the SVG, or the page around it.
"""

from __future__ import annotations

STYLE = """
:root {
--back: #f4f6f8; --card: #ffffff; --line: #d5dbe2; --text: #18212b; --soft: #566371;
--cell: #e6effb; --edge: #9dbbe6; --full: #2b66c9; --rest: #cddef5;
--overcell: #fdebe4; --overedge: #e0927a; --overfull: #c23d17; --overrest: #f6cfc1;
--none: #fafbfc; --noneedge: #c3ccd6; --hatch: #e6eaef; --lost: #8f2b12;
font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif;
}
@media screen and (prefers-color-scheme: dark) { :root {
--back: #11161c; --card: #1a2129; --line: #323c48; --text: #e8edf2; --soft: #9fadbb;
--cell: #1f2f47; --edge: #3f6199; --full: #6ea3f7; --rest: #31486b;
--overcell: #44231a; --overedge: #a9553b; --overfull: #ff8a66; --overrest: #6b3526;
--none: #1d252e; --noneedge: #465362; --hatch: #2b3540; --lost: #ffa48a;
} }
@media print { :root { --back: #ffffff;
  -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
.back { fill: var(--back); }
.card { fill: var(--card); stroke: var(--line); }
.title { font-size: 22px; font-weight: 650; fill: var(--text); }
.gpu { font-size: 15px; font-weight: 650; fill: var(--text); }
.words { font-size: 13px; fill: var(--text); }
.soft { font-size: 12.5px; fill: var(--soft); }
.uuid { font-size: 11.5px; fill: var(--soft); font-family: ui-monospace, Menlo, monospace; }
.name { font-size: 13px; font-weight: 600; fill: var(--text); }
.small { font-size: 12px; fill: var(--soft); }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.held { fill: var(--cell); stroke: var(--edge); }
.over { fill: var(--overcell); stroke: var(--overedge); stroke-width: 1.5; }
.free { fill: var(--none); stroke: var(--noneedge); stroke-dasharray: 4 3; }
.uncut, .lost { fill: url(#hatch); stroke: var(--noneedge); }
.lostname { font-size: 13px; font-weight: 600; fill: var(--lost); }
.held-full { fill: var(--full); } .held-rest { fill: var(--rest); }
.over-full { fill: var(--overfull); } .over-rest { fill: var(--overrest); }
.overname { font-size: 13px; font-weight: 600; fill: var(--overfull); }
.clear { paint-order: stroke; stroke: var(--none); stroke-width: 5px; stroke-linejoin: round; }
.hatch { stroke: var(--hatch); stroke-width: 5; }
.hatch-back { fill: var(--none); }
"""
