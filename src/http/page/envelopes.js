// What is applied, live: a bounded list that can be filtered and stopped, and one envelope in full.

import { arrange, byId, element, roving, setText } from "./dom.js";
import { envelopeText, hasWords, moment, nameOf } from "./text.js";

const LINES_MAX = 150;

let filter = "";
/** While paused: what there was when it began. */
let frozen = null;
let chosen = null;
let changed = () => {};
const lines = new Map();

function pause(state) {
  frozen = frozen ? null : [...state.envelopes];
  const button = byId("pause");
  button.setAttribute("aria-pressed", String(frozen !== null));
  setText(button, frozen ? "Go on" : "Pause");
  changed();
}

export function togglePause(state) {
  pause(state);
}

export function start(state, onChange) {
  changed = onChange;
  byId("pause").addEventListener("click", () => pause(state));
  byId("envelope-filter").addEventListener("input", (input) => {
    filter = input.target.value;
    changed();
  });
  roving(byId("lines"), (line) => {
    const number = Number(line.dataset.number);
    chosen = (frozen ?? state.envelopes).find((kept) => kept.number === number) ?? chosen;
    // Who reads one does not want it to move.
    if (!frozen) pause(state);
    changed();
  });
}

const lineText = ({ envelope }) => `${nameOf(envelope.replica)} seq ${envelope.seq} ${envelopeText(envelope)}`;

function makeLine(kept) {
  const { envelope } = kept;
  return element("li", { tabindex: "-1", "data-number": String(kept.number) },
    element("time", {}, moment(kept.at)),
    element("span", { class: "who" }, nameOf(envelope.replica)),
    element("span", { class: "seq" }, String(envelope.seq)),
    element("span", { class: "what" }, envelopeText(envelope)));
}

export function show(state) {
  const all = frozen ?? state.envelopes;
  const wanted = all.filter((kept) => filter === "" || hasWords(lineText(kept), filter)).slice(-LINES_MAX).reverse();
  const numbers = new Set(wanted.map((kept) => kept.number));
  for (const number of lines.keys()) if (!numbers.has(number)) lines.delete(number);
  const nodes = wanted.map((kept) => {
    if (!lines.has(kept.number)) lines.set(kept.number, makeLine(kept));
    const node = lines.get(kept.number);
    node.setAttribute("aria-current", String(kept === chosen));
    return node;
  });
  const stop = nodes.find((node) => node.getAttribute("aria-current") === "true") ?? nodes[0];
  nodes.forEach((node) => node.setAttribute("tabindex", node === stop ? "0" : "-1"));
  arrange(byId("lines"), nodes);
  const later = frozen ? state.seen - (frozen.at(-1)?.number ?? 0) : 0;
  const missed = state.missed > 0 ? `, ${state.missed} missed: this reader is too slow` : "";
  setText(byId("envelopes-note"), (frozen ? `paused, ${later} since` : `${state.seen} seen`) + missed);
  if (chosen) setText(byId("envelope"), JSON.stringify(chosen.envelope, null, 1));
}
