// What the page can have done: the resync of one replica, asked for twice.

import { post } from "./api.js";
import { byId, setText } from "./dom.js";

let key = null;

async function confirm(submit) {
  submit.preventDefault();
  byId("order-confirm").disabled = true;
  setText(byId("order-status"), "asking");
  try {
    await post(`/v1/replicas/${encodeURIComponent(key)}/resync`, undefined, byId("order-token").value);
    setText(byId("order-status"), "asked: what comes of it shows in trust and changes");
  } catch (error) {
    setText(byId("order-status"), String(error.message));
    byId("order-confirm").disabled = false;
  }
}

export function start(chosenReplica) {
  byId("resync").addEventListener("click", () => {
    key = chosenReplica();
    setText(byId("order-replica"), key);
    setText(byId("order-status"), "");
    byId("order-confirm").disabled = false;
    byId("order-dialog").showModal();
  });
  byId("order-dialog").querySelector("form").addEventListener("submit", confirm);
  byId("order-dialog").addEventListener("close", () => {
    byId("order-token").value = "";
  });
}
