// A replica's last minutes as a strip: which trust it had when.

import { setAttribute, setText } from "./dom.js";
import { moment } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const WINDOW_MS = 600_000;
const WIDTH = 150;

/** Pieces of the strip: where each begins, how wide it is, what it was. Pure. */
export function pieces(changes, now, windowMs = WINDOW_MS, width = WIDTH) {
  const from = now - windowMs;
  const x = (at) => ((Math.min(now, Math.max(from, at)) - from) * width) / windowMs;
  return changes
    .map((change, index) => ({ change, until: changes[index + 1]?.at ?? now }))
    .filter(({ until }) => until >= from)
    .map(({ change, until }) => {
      const begins = x(change.at);
      // What lasted milliseconds is what one looks for: never thinner than can be seen.
      return { change, x: begins, width: Math.max(1.5, x(until) - begins) };
    });
}

export function strip() {
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${WIDTH} 14`, width: WIDTH, height: 14, preserveAspectRatio: "none", class: "strip", "aria-hidden": "true" })) {
    svg.setAttribute(name, value);
  }
  return svg;
}

export function paint(svg, changes, now) {
  const wanted = pieces(changes, now);
  // Short ones last, so that none is covered by the long one behind it.
  wanted.sort((one, other) => other.width - one.width);
  while (svg.childNodes.length > wanted.length) svg.lastChild.remove();
  while (svg.childNodes.length < wanted.length) {
    const rect = document.createElementNS(SVG, "rect");
    rect.setAttribute("height", "14");
    rect.append(document.createElementNS(SVG, "title"));
    svg.append(rect);
  }
  wanted.forEach((piece, index) => {
    const rect = svg.childNodes[index];
    setAttribute(rect, "x", piece.x.toFixed(1));
    setAttribute(rect, "width", piece.width.toFixed(1));
    setAttribute(rect, "data-trust", piece.change.trust);
    setText(rect.firstChild, `${moment(piece.change.at)} ${piece.change.trust} (${piece.change.reason})`);
  });
}
