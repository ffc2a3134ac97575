// One replica in full: what it stands on, and how it stood before.

import { arrange, byId, element, setText, showTrust } from "./dom.js";
import { TIERS, hitRates, moment, span } from "./text.js";

const facts = new Map();

function fact(name, text) {
  if (!facts.has(name)) facts.set(name, [element("dt", {}, name), element("dd")]);
  const nodes = facts.get(name);
  setText(nodes[1], text);
  return nodes;
}

/** Names and texts of what is known. Pure. */
export function factsOf(replica, now) {
  const { hits, life, hashes } = replica;
  const rates = hitRates(hits);
  const tiers = [...new Set([...TIERS, ...Object.keys(replica.blocks ?? {})])];
  const told = [
    ["key", replica.key],
    ["engine", replica.engine ?? "–"],
    ["trust", `${replica.trust} (${replica.reason}) for ${span(now - replica.since)}`],
    ["epoch", String(replica.epoch)],
    ["next seq", String(replica.next_seq)],
    ["blocks", tiers.map((tier) => `${tier} ${replica.blocks?.[tier] ?? 0}`).join(" · ")],
    ["lag", `${span(replica.age_ms)} since the view moved or was proven`],
  ];
  if (hits) {
    const compared = hits.routed_input > 0;
    told.push(["predicted hits", compared ? `${rates.predicted} of ${hits.routed_input} tokens` : "no router told (POST /v1/feedback)"]);
    if (compared) told.push(["observed hits", `${rates.observed} of the same`]);
    told.push(["engine's hits", `${rates.engine} of ${hits.input} tokens`]);
  } else {
    told.push(["hit rate", "nothing reported yet (POST /v1/feedback, or sources.metrics)"]);
  }
  if (hashes) told.push(["hashes", `${hashes.equal} equal, ${hashes.different} different (${hashes.scheme})`]);
  if (life) told.push(["life on the bus", [life.state, life.epoch, life.why].filter((it) => it !== undefined).join(" ")]);
  if (replica.alarms?.length) told.push(["alarms", replica.alarms.join(", ")]);
  return told;
}

function changeLine(change, before) {
  const badge = element("span", { class: "badge" });
  showTrust(badge, change.trust);
  const life = before && before.epoch !== change.epoch ? `epoch ${change.epoch}` : "";
  const line = element("li", { "data-at": `${change.at} ${change.trust} ${change.reason}` });
  line.append(element("time", {}, moment(change.at)), badge, element("span", { class: "why" }, `${change.reason} ${life}`.trim()));
  return line;
}

export function show(replica, now) {
  byId("no-detail").hidden = Boolean(replica);
  byId("changes-title").hidden = !replica;
  byId("resync").disabled = byId("flush").disabled = !replica;
  const told = replica ? factsOf(replica, now).flatMap(([name, text]) => fact(name, text)) : [];
  arrange(byId("facts"), told);
  const changes = replica?.changes ?? [];
  const list = byId("changes");
  const mark = (change) => `${replica.key} ${change.at} ${change.trust} ${change.reason} ${change.epoch}`;
  const known = new Map([...list.children].map((line) => [line.dataset.mark, line]));
  const lines = changes.map((change, index) => {
    const line = known.get(mark(change)) ?? changeLine(change, changes[index - 1]);
    line.dataset.mark = mark(change);
    return line;
  });
  arrange(list, lines.reverse());
}
