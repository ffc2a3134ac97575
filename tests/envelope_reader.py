#!/usr/bin/env python3
"""A second reader of the envelope, written from its description alone.

Reads every case of schemas/golden/v1 in msgpack with a decoder of its own, brings it into the JSON
form (bin becomes lower-case hex, 64-bit hashes become 16 digits) and compares it with the case's
JSON file. It also checks the rules that a comparison alone would not see: names only, no null but
parent, nothing after the message, files as listed in SHA256SUMS. Standard library only.
Exit 0 when all agree.

usage: envelope_reader.py [FOLDER]
"""

import hashlib
import json
import pathlib
import struct
import sys


class Broken(Exception):
    """A case that does not keep the contract."""


class Reader:
    """The part of msgpack that the envelope uses."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, count):
        part = self.data[self.at : self.at + count]
        if len(part) != count:
            raise Broken(f"ends too early: {count} bytes wanted at byte {self.at}")
        self.at += count
        return part

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def value(self):
        at, tag = self.at, self.number("B")
        if tag <= 0x7F:
            return tag
        if tag <= 0x8F:
            return self.map(tag & 0x0F)
        if tag <= 0x9F:
            return self.array(tag & 0x0F)
        if tag <= 0xBF:
            return self.text(tag & 0x1F)
        if tag >= 0xE0:
            return tag - 0x100
        if tag == 0xC0:
            return None
        if tag in (0xC2, 0xC3):
            return tag == 0xC3
        lengths = {0: "B", 1: "H", 2: "I"}
        if 0xC4 <= tag <= 0xC6:
            return self.take(self.number(lengths[tag - 0xC4]))
        if 0xD9 <= tag <= 0xDB:
            return self.text(self.number(lengths[tag - 0xD9]))
        if tag in (0xDC, 0xDD):
            return self.array(self.number(lengths[tag - 0xDB]))
        if tag in (0xDE, 0xDF):
            return self.map(self.number(lengths[tag - 0xDD]))
        if 0xCC <= tag <= 0xD3:
            return self.number("BHIQbhiq"[tag - 0xCC])
        raise Broken(f"byte {at}: type 0x{tag:02x} has no place in an envelope")

    def text(self, length):
        return self.take(length).decode("utf-8")

    def array(self, length):
        return [self.value() for _ in range(length)]

    def map(self, length):
        out = {}
        for _ in range(length):
            key = self.value()
            if not isinstance(key, str):
                raise Broken(f"key {key!r} is not a name")
            if key in out:
                raise Broken(f"key {key} comes twice")
            out[key] = self.value()
        return out


def json_form(value, key=""):
    """The JSON form of a msgpack value that stands under `key`."""
    if value is None and key != "parent":
        raise Broken(f"{key} is null; a missing value is a missing key")
    if isinstance(value, dict):
        return {name: json_form(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [json_form(item, key) for item in value]
    if isinstance(value, bytes):
        # Among extra keys a text is also possible, so bytes say what they are.
        return {"bytes": value.hex()} if key == "extra" else value.hex()
    return value


def hash64(owner, key):
    """Turns one 64-bit hash into its 16 digits."""
    if key in owner:
        if type(owner[key]) is not int or owner[key] < 0:
            raise Broken(f"{key} is not an unsigned integer")
        owner[key] = f"{owner[key]:016x}"


def normal(message):
    """The whole message in its JSON form."""
    message = json_form(message)
    records = message if isinstance(message, list) else [message]
    for record in records:
        hash64(record, "content")
        hash64(record, "extra")
        for event in record.get("events", []):
            if event["type"] == "stored":
                for block in event["blocks"]:
                    hash64(block, "content")
    return message


def same(left, right, path=""):
    """Like ==, but 1 is not true, and the error says where."""
    if type(left) is not type(right):
        kinds = f"{type(left).__name__} in msgpack, {type(right).__name__} in JSON"
        raise Broken(f"{path or '/'}: {kinds}")
    if isinstance(left, dict):
        if left.keys() != right.keys():
            raise Broken(f"{path or '/'}: only one has {sorted(left.keys() ^ right.keys())}")
        for key in left:
            same(left[key], right[key], f"{path}/{key}")
    elif isinstance(left, list):
        if len(left) != len(right):
            raise Broken(f"{path or '/'}: {len(left)} items in msgpack, {len(right)} in JSON")
        for index, pair in enumerate(zip(left, right)):
            same(*pair, f"{path}/{index}")
    elif left != right:
        raise Broken(f"{path or '/'}: {left!r} in msgpack, {right!r} in JSON")


def check(packed, text):
    reader = Reader(packed.read_bytes())
    message = reader.value()
    if reader.at != len(reader.data):
        raise Broken(f"{len(reader.data) - reader.at} bytes after the message")
    for part in message if isinstance(message, list) else [message]:
        if "events" in part and part["v"] != 1:
            raise Broken(f"version {part['v']}, expected 1")
    same(normal(message), json.loads(text.read_text(encoding="utf-8")))


def check_sums(folder):
    listed = dict(
        reversed(line.split("  ", 1))
        for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    )
    for path in folder.glob("*.*"):
        if hashlib.sha256(path.read_bytes()).hexdigest() != listed.pop(path.name, None):
            raise Broken(f"{path.name} is not the file in SHA256SUMS")
    if listed:
        raise Broken(f"missing: {sorted(listed)}")


def main():
    here = pathlib.Path(__file__).resolve().parent
    folder = here.parent / "schemas" / "golden" / "v1"
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
    cases = sorted(folder.glob("*.msgpack"))
    faults = [] if cases else [f"no golden case in {folder}"]
    for packed in cases:
        try:
            check(packed, packed.with_suffix(".json"))
        except (Broken, OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            faults.append(f"{packed.stem}: {fault}")
    try:
        check_sums(folder)
    except (Broken, OSError, ValueError) as fault:
        faults.append(str(fault))
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(cases)} golden cases read, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
