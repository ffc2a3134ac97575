// What rings, and what to do about it.

import { arrange, byId, element, setText } from "./dom.js";
import { nameOf, span } from "./text.js";

const items = new Map();

function makeItem(alarm, name) {
  const since = element("span", { class: "since" });
  const item = element("li", { "data-severity": alarm.severity },
    element("details", {},
      element("summary", {}, element("strong", {}, alarm.alarm), " ", element("span", { class: "severity" }, alarm.severity), " ", since,
        element("span", { class: "of" }, name)),
      element("p", {}, alarm.meaning + (alarm.event ? ` After: ${alarm.event}.` : "")),
      element("p", {}, element("b", {}, "First look: "), alarm.first_look),
      element("p", {}, element("b", {}, "Action: "), alarm.action)));
  return { item, since };
}

export function show(alarms, replicas, now) {
  const wanted = alarms.map((alarm) => {
    const id = `${alarm.replica} ${alarm.alarm} ${alarm.event ?? ""}`;
    if (!items.has(id)) {
      const known = replicas.get(alarm.replica);
      items.set(id, makeItem(alarm, known ? nameOf(known.replica) : alarm.replica));
    }
    const { item, since } = items.get(id);
    setText(since, `for ${span(now - alarm.since)}`);
    return [id, item];
  });
  const ids = new Set(wanted.map(([id]) => id));
  for (const id of items.keys()) if (!ids.has(id)) items.delete(id);
  arrange(byId("alarm-list"), wanted.map(([, item]) => item));
  setText(byId("alarms-count"), alarms.length === 0 ? "" : String(alarms.length));
  byId("no-alarms").hidden = alarms.length > 0;
}
