#!/usr/bin/env python3
"""A reader of envelopes on JetStream, in another language: keeps a view of each replica of a model and knows how
far to believe it. Rules by number are those of docs/specs/envelope.md, bus.md and lives.md.

    pip install nats-py msgpack
    consumer.py --nats nats://127.0.0.1:4222 --model fake             a line a second
    consumer.py ... --once                                            ends when every replica is exact and caught up

It reads the log from its beginning, which is what a small example can do: kvbridge's own readers begin with a stored view
(bus.md 4), so that they are exact although the log has forgotten how a life began.
"""

import argparse
import asyncio
import collections
import json
import sys
import time

import msgpack
import nats

HEARTBEAT_TTL_S = 5.0  # bus.heartbeat_ttl
LEASE_S = 60.0  # recovery.lease
TRUSTS = ["none", "lower_bound", "exact"]


def escaped(part):
    """A part of a replica key (envelope.md 6.1)."""
    plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
    return "".join(chr(b) if chr(b) in plain else f"={b:02X}" for b in part.encode())


def least(*trusts):
    return min(trusts, key=TRUSTS.index)


class Replica:
    """A view folded from one replica's log."""

    def __init__(self):
        self.epoch = self.next_seq = 0
        self.trust = "none"
        self.copies = collections.Counter()  # (hash, tier, group) -> copies: a block may be stored twice (3.4)
        self.words = {}  # bridge -> what its heartbeat said, and when that was heard
        self.forget()

    def forget(self):
        """Where bridges' own views are is not known: how old the end of the log is neither (recovery.md 5.11)."""
        self.met = False  # since words came without a break the view was once where a bridge's was
        self.expected = float("inf")  # where that is
        self.named = []  # places beyond the view where a bridge's was, and when that was heard first

    def start_over(self, trust):
        self.copies.clear()
        self.trust = trust

    def take(self, envelope):
        epoch, seq, span = envelope["epoch"], envelope["seq"], envelope["span"]
        if span == 0 or epoch < self.epoch:
            return  # a bridge's word covers no seq (4.3); a life that is over
        if epoch > self.epoch:
            # Another life of the cache. From its first batch on nothing is missing.
            self.epoch, self.next_seq = epoch, seq
            self.forget()
            self.start_over("exact" if seq == 0 else "lower_bound")
        if seq + span <= self.next_seq:
            return  # stored twice
        if seq > self.next_seq:
            self.start_over("lower_bound")  # the stream no longer has what was between
        for event in envelope["events"]:
            self.apply(event)
        self.next_seq = seq + span

    def apply(self, event):
        kind, tier = event["type"], json.dumps(event.get("tier"))
        group = event.get("group", {}).get("index")
        if kind == "stored":
            for block in event["blocks"]:
                self.copies[block["hash"], tier, group] += 1
        elif kind == "removed":
            for block in event["hashes"]:
                self.take_away(block, tier, group)
        elif kind == "moved":
            self.take_away(event["hash"], json.dumps(event["from"]), group)
            self.copies[event["hash"], json.dumps(event["to"]), group] += 1
        elif kind == "cleared":
            scope = event["scope"]
            gone = [json.dumps(tier) for tier in scope] if isinstance(scope, list) else None
            for place in [place for place in self.copies if gone is None or place[1] in gone]:
                del self.copies[place]
            if gone is None:
                # Only an engine's own clear proves that nothing is left (4.1).
                self.trust = "exact" if event["cause"] == "engine" else least(self.trust, "lower_bound")
        elif kind == "reset":
            self.start_over(least(event["trust"], "lower_bound"))  # (4.2)
        elif kind == "lost_stores":
            self.trust = least(self.trust, "lower_bound")  # (1.6)
        else:
            self.start_over("lower_bound")  # what it is nobody knows: it may have removed blocks (1.5)

    def take_away(self, *place):
        self.copies[place] -= 1
        if self.copies[place] <= 0:
            del self.copies[place]

    def hear(self, word):
        self.believed()  # a silence before this word counts, however short
        before = self.words.get(word["bridge"])
        # The same word again is no sign of life, and an older one came late (lives.md 3.2).
        if before is None or word["at"] > before["at"]:
            self.words[word["bridge"]] = dict(word, heard=time.monotonic())

    def believed(self):
        """What may be believed now, why, and the seq up to which a bridge has vouched (lives.md 3.2)."""
        now = time.monotonic()
        fresh = [word for word in self.words.values() if now - word["heard"] < HEARTBEAT_TTL_S]
        if not fresh:
            self.forget()
            return "none", "bridge_silent", 0
        best = max(fresh, key=lambda word: (word["epoch"], TRUSTS.index(word["trust"]), word["next_seq"]))
        if best["epoch"] != self.epoch or best["trust"] == "none":
            self.forget()
            return "none", best["reason"] if best["epoch"] == self.epoch else "other_life", best["next_seq"]
        # A log that takes nothing any more still has an end: how far the bridge itself is tells (lives.md 3.3).
        self.wait_for(max(best["next_seq"], best.get("view_seq") or 0), now)
        if self.named and now - self.named[0][1] >= LEASE_S:
            return "none", "log_behind", best["next_seq"]
        if not self.met:
            return "none", "catching_up", best["next_seq"]
        return least(self.trust, best["trust"]), best["reason"], best["next_seq"]

    def wait_for(self, view, now):
        """A bridge's view is there, and what was named before was heard then (recovery.md 5.11)."""
        self.expected = min(self.expected, view)
        self.met = self.met or self.next_seq >= self.expected
        if view > max([self.next_seq, *(place for place, _ in self.named)]):
            self.named.append((view, now))
        # Of a bridge that speaks instead of one that was further no more is awaited than it has.
        named = [(min(place, view), heard) for place, heard in self.named]
        late = [place for place, heard in named if now - heard >= LEASE_S]
        # Of those that are late the furthest is to be reached.
        self.named = [each for each in named if each[0] > max([self.next_seq, *(place - 1 for place in late)])]


async def follow(args):
    replicas = collections.defaultdict(Replica)
    connection = await nats.connect(args.nats)

    async def envelope(message):
        major = message.headers.get("Kvbridge-Schema", "1")
        if major != "1":
            sys.exit(f"schema {major} is none that this reader knows")  # (1.4)
        key = message.subject.removeprefix("kv.v1.hint.")
        replicas[key].take(msgpack.unpackb(message.data, strict_map_key=True))

    async def heartbeat(message):
        key, _, bridge = message.subject.removeprefix("$KV.KVSTATUS.").rpartition(".")
        if message.data and key.startswith(escaped(args.model) + ".") and bridge:
            replicas[key].hear(json.loads(message.data))

    await connection.subscribe("$KV.KVSTATUS.>", cb=heartbeat)
    # Ordered: the client sees a hole in what it was sent, and reads again from there (bus.md 2.1).
    subject = f"kv.v1.hint.{escaped(args.model)}.>"
    await connection.jetstream().subscribe(subject, cb=envelope, ordered_consumer=True)
    while True:
        lines = []
        for key, replica in sorted(replicas.items()):
            trust, reason, vouched = replica.believed()
            behind = max(0, vouched - replica.next_seq)
            lines.append({"key": key, "epoch": replica.epoch, "next_seq": replica.next_seq, "trust": trust,
                          "reason": reason, "behind": behind, "copies": sum(replica.copies.values())})
        done = lines and all(line["trust"] == "exact" and line["behind"] == 0 for line in lines)
        if not args.once or done:
            for line in lines:
                print(json.dumps(line), flush=True)
        if args.once and done:
            await connection.close()
            return
        await asyncio.sleep(0.1 if args.once else 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nats", default="nats://127.0.0.1:4222")
    parser.add_argument("--model", required=True)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--patience", type=float, help="seconds that --once may take")
    args = parser.parse_args()
    asyncio.run(asyncio.wait_for(follow(args), args.patience))


if __name__ == "__main__":
    main()
