// What is known of the fleet: a fold of answers and events. No page, no clock: the time is told.

/** Changes kept of a replica; the server keeps as many. */
const CHANGES_MAX = 64;

/** Envelopes kept. More: memory of the tab. Fewer: a pause shows less. */
const ENVELOPES_MAX = 300;

export function empty() {
  return { replicas: new Map(), envelopes: [], seen: 0, missed: 0 };
}

const standsAlike = (one, other) =>
  one.trust === other.trust && one.reason === other.reason && one.epoch === other.epoch;

function changesWith(changes, standing, now) {
  const last = changes.at(-1);
  if (last && standsAlike(last, standing)) return changes;
  const { trust, reason, epoch } = standing;
  return [...changes, { at: now, trust, reason, epoch }].slice(-CHANGES_MAX);
}

/** What a look found, beside what an event said since the look began. */
function merged(known, found) {
  const changes = found.changes ?? known?.changes ?? [];
  const isSameLife = known?.epoch === found.epoch;
  if (isSameLife && known.next_seq > found.next_seq) found = { ...found, next_seq: known.next_seq };
  // A look that began before an event must not bring back what was before it.
  if (known && known.since > found.since) {
    const { trust, reason, since, epoch } = known;
    return { ...found, trust, reason, since, epoch, changes };
  }
  return { ...found, changes };
}

const sameReplica = (one, other) =>
  one.instance === other.instance && one.rank === other.rank && one.model === other.model;

/** A batch moved a view: its cursor is known before the next look. */
function takeCursor(state, { replica, epoch, seq }) {
  for (const known of state.replicas.values()) {
    if (known.epoch === epoch && known.next_seq <= seq && sameReplica(known.replica, replica)) {
      known.next_seq = seq + 1;
      known.age_ms = 0;
    }
  }
}

/** The answer of /v1/replicas. */
export function takeReplicas(state, list) {
  const before = state.replicas;
  state.replicas = new Map(list.map((found) => [found.key, merged(before.get(found.key), found)]));
}

/** One event of /v1/events. */
export function takeEvent(state, name, value, now) {
  switch (name) {
    case "standing": {
      const known = state.replicas.get(value.key) ?? { alarms: [], changes: [] };
      const changes = changesWith(known.changes, value, now);
      state.replicas.set(value.key, { ...known, ...value, changes });
      break;
    }
    case "removed":
      state.replicas.delete(value.key);
      break;
    case "envelope":
      takeCursor(state, value);
      state.seen += 1;
      state.envelopes.push({ number: state.seen, at: now, envelope: value });
      if (state.envelopes.length > ENVELOPES_MAX) state.envelopes.shift();
      break;
    case "lagged":
      state.missed += value.missed;
      break;
  }
}

/** How many replicas stand how. */
export function byTrust(replicas) {
  const counts = { exact: 0, lower_bound: 0, none: 0 };
  for (const replica of replicas) counts[replica.trust] = (counts[replica.trust] ?? 0) + 1;
  return counts;
}
