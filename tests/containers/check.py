#!/usr/bin/env python3
"""Whether a kvbridge holds what a fake engine has: waits until both stand at one seq, then compares every
block, and asks for a match of a prompt that the engine has just completed. Prints one JSON line.

usage: check.py ENGINE_URL KVBRIDGE_URL [--epoch-above EPOCH] [--instance NAME]
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request

PATIENCE_S = 60.0


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def until(what, look):
    deadline = time.monotonic() + PATIENCE_S
    last = None
    while time.monotonic() < deadline:
        try:
            found, last = look()
        except (OSError, urllib.error.URLError, ValueError) as error:
            found, last = None, error
        if found is not None:
            return found
        time.sleep(0.05)
    sys.exit(f"check: {what} did not come true: {last}")


def blocks(text):
    """Head and {(hash, tier, group): count} of NDJSON as /truth and snapshots have it."""
    lines = [json.loads(line) for line in text.splitlines()]
    if not lines or lines[-1].get("end") is not True:
        raise ValueError("cut short")
    held = {}
    for line in lines[1:-1]:
        group = line.get("group")
        if isinstance(group, dict):
            group = group.get("index")
        held[line["hash"][-16:], line["tier"], group] = line["count"]
    return lines[0], held


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("kvbridge")
    parser.add_argument("--epoch-above", type=int, default=0)
    parser.add_argument("--instance", help="which replica it is, where there are several")
    args = parser.parse_args()

    prompt = list(range(7_000, 7_064))
    completion = {"model": "fake", "prompt": prompt, "max_tokens": 1}

    def replica():
        ask(f"{args.engine}/v1/completions", completion)
        found = json.loads(ask(f"{args.kvbridge}/v1/replicas"))["replicas"]
        found = [it for it in found if args.instance in (None, it["replica"]["instance"])]
        good = len(found) == 1 and found[0]["trust"] == "exact" and found[0]["epoch"] > args.epoch_above
        return (found[0] if good else None), found

    key = until("exact in a new epoch", replica)["key"]

    def compared():
        head, truth = blocks(ask(f"{args.engine}/truth"))
        cut, held = blocks(ask(f"{args.kvbridge}/v1/replicas/{key}/snapshot"))
        where = {"engine": head, "kvbridge": cut}
        if head["pending"] or head["next_seq"] != cut["resume_seq"] or cut["trust"] != "exact":
            return None, where
        if cut["epoch"] <= args.epoch_above:
            return None, where
        if truth != held:
            ghosts, missing = held.keys() - truth.keys(), truth.keys() - held.keys()
            sys.exit(f"check: at seq {head['next_seq']}: {len(ghosts)} ghosts, {len(missing)} missing")
        return {"epoch": cut["epoch"], "next_seq": head["next_seq"], "blocks": len(held)}, where

    found = until("one seq on both sides", compared)

    def matched():
        ask(f"{args.engine}/v1/completions", completion)
        answer = json.loads(ask(f"{args.kvbridge}/v1/match", {"model": "fake", "token_ids": prompt}))
        match = next(it for it in answer["replicas"] if it["key"] == key)
        # An engine that keeps no block of a sequence's very end has one less.
        usable = match["usable"] and match["matched_blocks"] >= len(prompt) // 16 - 1
        return (match["matched_blocks"] if usable else None), answer

    found["matched_blocks"] = until("a match", matched)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
