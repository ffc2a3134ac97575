"""A reader of SubscribeKvEvents as SMG's gateway is one: grpcio and the messages of SMG's own package.

    smg_reader.py ADDRESS START [--slow] [--token TOKEN] [--ca FILE] [--service NAME]

Prints a line for each batch, and one with the status at the end. A slow one reads the first batch, and the
others only after a line on its standard input. Token ids are not printed.
"""

import argparse
import json
import sys

import grpc
from smg_grpc_proto.generated import common_pb2

SERVICE = "vllm.grpc.engine.VllmEngine"


def event(it):
    kind = it.WhichOneof("data")
    if kind == "cleared":
        return ["clear"]
    if kind == "removed":
        hashes = [f"{h & (2**64 - 1):016x}" for h in it.removed.block_hashes]
        return ["remove", it.removed.tier, hashes]
    stored = it.stored
    parent = f"{stored.parent_block_hash & (2**64 - 1):016x}" if stored.HasField("parent_block_hash") else None
    for block in stored.blocks:
        assert len(block.token_ids) == block.block_size > 0, "as many tokens as a block has"
    return ["store", stored.tier, [f"{b.block_hash & (2**64 - 1):016x}" for b in stored.blocks], parent]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("address")
    arguments.add_argument("start", type=int)
    arguments.add_argument("--slow", action="store_true")
    arguments.add_argument("--token")
    arguments.add_argument("--ca")
    arguments.add_argument("--service", default=SERVICE)
    given = arguments.parse_args()
    # A window that grows would hold megabytes for a reader that does not read.
    options = [("grpc.http2.bdp_probe", 0), ("grpc.max_receive_message_length", 4 * 1024 * 1024)]
    if given.ca:
        with open(given.ca, "rb") as file:
            channel = grpc.secure_channel(given.address, grpc.ssl_channel_credentials(file.read()), options)
    else:
        channel = grpc.insecure_channel(given.address, options)
    subscribe = channel.unary_stream(
        f"/{given.service}/SubscribeKvEvents",
        request_serializer=common_pb2.SubscribeKvEventsRequest.SerializeToString,
        response_deserializer=common_pb2.KvEventBatch.FromString,
    )
    metadata = [("authorization", f"Bearer {given.token}")] if given.token else []
    stream = subscribe(common_pb2.SubscribeKvEventsRequest(start_sequence_number=given.start), metadata=metadata)
    try:
        for at, batch in enumerate(stream):
            chunk = [batch.snapshot.index, batch.snapshot.count] if batch.HasField("snapshot") else None
            said = {"seq": batch.sequence_number, "snapshot": chunk, "events": [event(it) for it in batch.events]}
            print(json.dumps(said), flush=True)
            if given.slow and at == 0:
                sys.stdin.readline()
        print(json.dumps({"end": "OK"}), flush=True)
    except grpc.RpcError as error:
        print(json.dumps({"end": error.code().name}), flush=True)


main()
