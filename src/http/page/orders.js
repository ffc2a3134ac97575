// What the page can have done: resync and flush of one replica, asked for twice.

import { get, post } from "./api.js";
import { byId, setText } from "./dom.js";

const LOOK_MS = 500;
const ORDERS = {
  resync: {
    path: "/v1/resync",
    title: "Resync",
    meaning: "The view is proven anew, by replay or snapshot. Until then its trust is none: routers go by load.",
  },
  flush: {
    path: "/v1/flush",
    title: "Flush",
    meaning: "The engine empties its cache: everything it holds must be computed again. The view is exact once its clear was read.",
  },
};

let order = null;

/** How a job stands, in words. Pure. */
export function jobText(job) {
  const replicas = (job.replicas ?? []).map((replica) => {
    const why = [replica.reason, replica.detail].filter(Boolean).join(": ");
    return `${replica.state}${why ? ` (${why})` : ""}, trust ${replica.trust}`;
  });
  return [`job ${job.id}: ${job.state}`, ...replicas].join("; ");
}

async function follow(job) {
  while (job.state === "running" && byId("order-dialog").open) {
    setText(byId("order-status"), jobText(job));
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    job = await get(`/v1/jobs/${encodeURIComponent(job.id)}`);
  }
  setText(byId("order-status"), jobText(job));
}

async function confirm(submit) {
  submit.preventDefault();
  const button = byId("order-confirm");
  button.disabled = true;
  setText(byId("order-status"), "asking");
  try {
    await follow(await post(order.path, { replica: order.key }, byId("order-token").value));
  } catch (error) {
    setText(byId("order-status"), String(error.message));
    button.disabled = false;
  }
}

export function start(chosenReplica) {
  for (const [id, about] of Object.entries(ORDERS)) {
    byId(id).addEventListener("click", () => {
      order = { ...about, key: chosenReplica() };
      setText(byId("order-title"), about.title);
      setText(byId("order-replica"), order.key);
      setText(byId("order-meaning"), about.meaning);
      setText(byId("order-confirm"), about.title);
      setText(byId("order-status"), "");
      byId("order-confirm").disabled = false;
      byId("order-dialog").showModal();
    });
  }
  byId("order-dialog").querySelector("form").addEventListener("submit", confirm);
  byId("order-dialog").addEventListener("close", () => {
    byId("order-token").value = "";
  });
}
