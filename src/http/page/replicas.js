// The table of replicas, and which of them are shown.

import { arrange, byId, element, roving, setAttribute, setText, showTrust } from "./dom.js";
import { byTrust } from "./state.js";
import { blocks, hasWords, hitRates, nameOf, span } from "./text.js";
import { paint, strip } from "./timeline.js";

const TRUSTS = ["exact", "lower_bound", "none"];
const COLUMNS = ["trust", "name", "engine", "reason", "epoch", "seq", "blocks", "lag", "hits", "alarms", "time"];
const NUMBERS = ["epoch", "seq", "blocks", "lag", "hits", "alarms"];

/** 10.0.2 comes before 10.0.10. */
const inOrder = new Intl.Collator("en", { numeric: true });

const rows = new Map();
const hidden = new Set();
let filter = "";
let chips;

/** Tells of a choice and of a change of what is shown. */
export function start(choose, changed) {
  chips = TRUSTS.map((trust) => {
    const chip = element("button", { type: "button", class: "chip", "aria-pressed": "true", "data-trust": trust });
    chip.addEventListener("click", () => {
      if (!hidden.delete(trust)) hidden.add(trust);
      chip.setAttribute("aria-pressed", String(!hidden.has(trust)));
      changed();
    });
    return chip;
  });
  byId("trusts").append(...chips);
  byId("replica-filter").addEventListener("input", (input) => {
    filter = input.target.value;
    changed();
  });
  roving(byId("rows"), (row) => choose(row.dataset.key));
}

function makeRow(key) {
  const cells = {};
  const row = element("tr", { tabindex: "-1", "data-key": key });
  for (const column of COLUMNS) {
    cells[column] = element("td", { class: `c-${column}${NUMBERS.includes(column) ? " number" : ""}` });
    row.append(cells[column]);
  }
  const badge = element("span", { class: "badge" });
  const svg = strip();
  cells.trust.append(badge);
  cells.time.append(svg);
  return { row, cells, badge, svg };
}

function fill({ row, cells, badge, svg }, replica, { chosen, now }) {
  const name = nameOf(replica.replica);
  const hits = hitRates(replica.hits);
  const alarms = replica.alarms?.length ?? 0;
  showTrust(badge, replica.trust);
  setText(cells.name, name);
  setAttribute(cells.name, "title", name);
  setText(cells.engine, replica.engine ?? "");
  setText(cells.reason, replica.reason);
  setAttribute(cells.reason, "title", replica.reason);
  setText(cells.epoch, String(replica.epoch));
  setText(cells.seq, String(replica.next_seq));
  setText(cells.blocks, blocks(replica.blocks));
  setAttribute(cells.blocks, "title", blocks(replica.blocks));
  setText(cells.lag, span(replica.age_ms));
  setText(cells.hits, replica.hits ? `${hits.predicted} / ${hits.observed}` : "–");
  setText(cells.alarms, alarms === 0 ? "" : String(alarms));
  paint(svg, replica.changes ?? [], now);
  setAttribute(row, "aria-selected", String(chosen));
}

const isShown = (replica) =>
  !hidden.has(replica.trust) &&
  hasWords(`${nameOf(replica.replica)} ${replica.key} ${replica.engine ?? ""} ${replica.trust} ${replica.reason}`, filter);

export function show(replicas, chosenKey, now) {
  const counts = byTrust(replicas.values());
  chips.forEach((chip) => setText(chip, `${chip.dataset.trust} ${counts[chip.dataset.trust]}`));
  const ordered = [...replicas.values()].sort((one, other) => inOrder.compare(one.key, other.key));
  const shown = ordered.filter(isShown);
  for (const key of rows.keys()) if (!replicas.has(key)) rows.delete(key);
  const wanted = shown.map((replica) => {
    if (!rows.has(replica.key)) rows.set(replica.key, makeRow(replica.key));
    const made = rows.get(replica.key);
    fill(made, replica, { chosen: replica.key === chosenKey, now });
    return made.row;
  });
  const stop = wanted.find((row) => row.dataset.key === chosenKey) ?? wanted[0];
  wanted.forEach((row) => setAttribute(row, "tabindex", row === stop ? "0" : "-1"));
  arrange(byId("rows"), wanted);
  byId("no-rows").hidden = wanted.length > 0;
}
