// The page: looks at the API, follows its events, and shows what came of both.

import * as alarms from "./alarms.js";
import { Refused, events, get, readiness, useToken } from "./api.js";
import * as detail from "./detail.js";
import { byId, setText } from "./dom.js";
import * as envelopes from "./envelopes.js";
import * as orders from "./orders.js";
import * as replicas from "./replicas.js";
import { empty, takeEvent, takeReplicas } from "./state.js";

/** Between two looks at what events do not tell: blocks, cursors, lag, alarms. */
const LOOK_MS = 300;
/** Between two tries to open the stream. */
const RETRY_MS = 1000;
/** Between two paintings: more often nobody sees. */
const PAINT_MS = 100;

const state = empty();
let ringing = [];
let chosenKey = null;
let paintDue = false;

const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function paint() {
  paintDue = false;
  const now = Date.now();
  replicas.show(state.replicas, chosenKey, now);
  detail.show(state.replicas.get(chosenKey), now);
  envelopes.show(state);
  alarms.show(ringing, state.replicas, now);
}

function changed() {
  if (paintDue) return;
  paintDue = true;
  setTimeout(paint, PAINT_MS);
}

function choose(key) {
  chosenKey = key;
  paint();
}

function showStream(word, text) {
  document.body.dataset.stream = word;
  setText(byId("stream"), text);
}

function openTokenDialog() {
  if (!byId("token-dialog").open) byId("token-dialog").showModal();
}

/** Waits for a token. Who closes the dialog is not asked again: the button opens it. */
function tokenGiven() {
  const form = byId("token-dialog").querySelector("form");
  return new Promise((resolve) => form.addEventListener("submit", resolve, { once: true }));
}

async function refused(error) {
  const isRefused = error instanceof Refused;
  showStream(isRefused ? "refused" : "closed", isRefused ? error.message : "not connected");
  if (isRefused && error.status === 401) {
    openTokenDialog();
    await tokenGiven();
    return;
  }
  await later(RETRY_MS);
}

async function look(query = "") {
  const [found, rings, ready] = await Promise.all([get(`/v1/replicas${query}`), get("/v1/alarms"), readiness()]);
  takeReplicas(state, found.replicas);
  ringing = rings.alarms;
  const bus = ready.bus ? `bus ${ready.bus.kind}: ${ready.bus.state}` : "";
  const stands = ready.ready ? `ready (${ready.mode})` : `not ready: ${ready.reason}`;
  setText(byId("bus"), [stands, bus].filter(Boolean).join(", "));
  changed();
}

async function keepLooking() {
  for (;;) {
    await later(LOOK_MS);
    if (document.hidden || document.body.dataset.stream !== "open") continue;
    // The stream says what is wrong.
    await look().catch(() => {});
  }
}

async function follow() {
  for (;;) {
    try {
      // Changes are taken from a look once: from here on events tell them.
      await look("?changes=true");
      for await (const event of events(undefined, () => showStream("open", "live"))) {
        takeEvent(state, event.name, JSON.parse(event.data), Date.now());
        changed();
      }
      showStream("closed", "the stream ended");
      await later(RETRY_MS);
    } catch (error) {
      await refused(error);
    }
  }
}

function keys(press) {
  const typing = press.target.closest("input, dialog");
  if (typing || press.ctrlKey || press.metaKey || press.altKey) return;
  if (press.key === "/") {
    press.preventDefault();
    byId("replica-filter").focus();
  } else if (press.key === "p") {
    envelopes.togglePause(state);
  }
}

replicas.start(choose, changed);
envelopes.start(state, changed);
orders.start(() => chosenKey);
document.addEventListener("keydown", keys);
byId("token-button").addEventListener("click", openTokenDialog);
byId("token-dialog").querySelector("form").addEventListener("submit", () => useToken(byId("token").value.trim()));
byId("token-dialog").addEventListener("close", () => {
  byId("token").value = "";
});
for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}
keepLooking();
follow();
