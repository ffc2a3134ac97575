// Words and numbers as they are shown. Nothing here touches the page or the clock.

export const TIERS = ["device", "host", "disk", "external"];

/** A span of time in the largest unit that says enough. */
export function span(ms) {
  if (ms === undefined || ms === null) return "–";
  if (ms < 0) return "0 s";
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.floor(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.floor(ms / 3_600_000)} h`;
  return `${Math.floor(ms / 86_400_000)} d`;
}

/** A moment of today as people say it. */
export function moment(unixMs) {
  const at = new Date(unixMs);
  const two = (number, width = 2) => String(number).padStart(width, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
}

/** Distinct blocks by tier, those that are there. */
export function blocks(byTier) {
  const known = TIERS.filter((tier) => byTier?.[tier] !== undefined);
  const others = Object.keys(byTier ?? {}).filter((tier) => !TIERS.includes(tier));
  const all = [...known, ...others];
  if (all.length === 0) return "0";
  return all.map((tier) => (tier === "device" ? "" : `${tier} `) + byTier[tier]).join(" · ");
}

/** A part as per cent. */
export function part(some, all) {
  return all > 0 ? `${Math.round((100 * some) / all)} %` : "–";
}

/** Predicted and observed hit rate. Observed is of the requests that were predicted, if any. */
export function hitRates(hits) {
  if (!hits) return { predicted: "–", observed: "–", engine: "–" };
  const compared = hits.routed_input > 0;
  const observed = compared ? part(hits.routed_cached, hits.routed_input) : part(hits.cached, hits.input);
  return {
    predicted: part(hits.routed_predicted, hits.routed_input),
    observed,
    engine: part(hits.cached, hits.input),
  };
}

/** A replica's name for people. */
export function nameOf(replica) {
  return `${replica.model} ${replica.instance}/${replica.rank}`;
}

function eventText(event) {
  const tier = event.tier ?? "?";
  switch (event.type) {
    case "stored":
      return `stored ${event.blocks} on ${tier}${event.tokens > 0 ? ` (${event.tokens} tokens)` : ""}`;
    case "removed":
      return `removed ${event.blocks} from ${tier}`;
    case "reset":
      return `reset (${event.cause}, trust ${event.trust})`;
    case "trust":
      return `${event.bridge} says trust ${event.trust} (${event.reason})`;
    default:
      return String(event.type ?? "?");
  }
}

/** What an envelope says, in one line: what follows each other alike is summed up. */
export function envelopeText(envelope) {
  const kinds = [];
  for (const event of envelope.events ?? []) {
    const blocks = (event.blocks ?? event.hashes ?? []).length;
    const tokens = event.tokens?.count ?? 0;
    const last = kinds.at(-1);
    const counts = event.type === "stored" || event.type === "removed";
    if (counts && last?.type === event.type && last.tier === event.tier) {
      last.blocks += blocks;
      last.tokens += tokens;
    } else {
      kinds.push({ ...event, blocks, tokens });
    }
  }
  return kinds.length === 0 ? "nothing" : kinds.map(eventText).join(", ");
}

/** Whether a text has every word of a filter. */
export function hasWords(text, filter) {
  const folded = text.toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => folded.includes(word));
}
