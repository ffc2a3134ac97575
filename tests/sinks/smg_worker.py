"""A worker that SMG's gateway takes for a vLLM server: the generated servicer of smg-grpc-proto in front of a modelled engine.

Generate runs the prompt on the engine (`kvbridge fake-engine`) and answers with its cached_tokens; health, model and loads are
answered as far as the gateway asks. The stream of KV events is either that of SMG's own relay (`smg_grpc_servicer.kv_relay`), which
reads the engine's sockets, or that of a kvbridge, passed on as an L7 route would.
"""

import asyncio
import json
import time
import urllib.request

import grpc
from smg_grpc_proto.generated import common_pb2, vllm_engine_pb2 as pb, vllm_engine_pb2_grpc as pb_grpc

MODEL = "fake"


def ask(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


class Worker(pb_grpc.VllmEngineServicer):
    """One engine."""

    def __init__(self, name, engine, model_path, bridge=None):
        self.name, self.engine, self.model_path, self.bridge = name, engine, model_path, bridge
        self.running, self.served, self.streams = 0, [], []

    async def HealthCheck(self, request, context):
        return pb.HealthCheckResponse(healthy=True, message="ok")

    async def GetModelInfo(self, request, context):
        return pb.GetModelInfoResponse(
            model_path=MODEL, is_generation=True, max_context_length=65536, vocab_size=10000,
            served_model_name=MODEL, tokenizer_path=self.model_path, model_type="fake", max_req_input_len=65536,
            eos_token_ids=[1], bos_token_id=2)

    async def GetServerInfo(self, request, context):
        return pb.GetServerInfoResponse(
            active_requests=self.running, server_type="vllm-grpc", data_parallel_size=1, block_size=16, max_num_seqs=64)

    async def GetLoads(self, request, context):
        load = pb.SchedulerLoad(num_running_reqs=self.running, num_total_reqs=self.running, max_running_requests=64)
        return pb.GetLoadsResponse(timestamp="", version="fake", dp_rank_count=1, loads=[load])

    async def Abort(self, request, context):
        return pb.AbortResponse()

    async def Generate(self, request, context):
        tokens = list(request.tokenized.input_ids)
        self.running += 1
        try:
            body = {"model": MODEL, "prompt": tokens, "max_tokens": 4}
            answer = await asyncio.to_thread(ask, f"{self.engine['http']}/v1/completions", body)
        finally:
            self.running -= 1
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.served.append((time.monotonic(), len(tokens), cached))
        complete = pb.GenerateComplete(
            output_ids=[5, 6, 7, 8], finish_reason="length", prompt_tokens=len(tokens), completion_tokens=4, cached_tokens=cached)
        if request.stream:
            yield pb.GenerateResponse(chunk=pb.GenerateStreamChunk(
                token_ids=[5, 6, 7, 8], prompt_tokens=len(tokens), completion_tokens=4, cached_tokens=cached))
        yield pb.GenerateResponse(complete=complete)

    async def SubscribeKvEvents(self, request, context):
        self.streams.append(["open", request.start_sequence_number])
        rpc = self.passed_on if self.bridge else self.relayed
        async for batch in rpc(request, context):
            yield batch

    async def passed_on(self, request, context):
        async with grpc.aio.insecure_channel(self.bridge) as channel:
            try:
                async for batch in pb_grpc.VllmEngineStub(channel).SubscribeKvEvents(request):
                    yield batch
            except grpc.aio.AioRpcError as error:
                self.streams.append(["ended", error.code().name])
                await context.abort(error.code(), error.details())

    async def relayed(self, request, context):
        from smg_grpc_servicer.kv_relay import Engine, RankSource, relay

        rank = self.engine["ranks"][0]
        source = RankSource(rank=0, endpoint=rank["live"], replay_endpoint=rank["replay"])
        async for batch in relay([source], Engine.VLLM, request.start_sequence_number, context):
            yield batch

    async def start(self):
        """Serves on a free port, which is returned."""
        self.server = grpc.aio.server()
        pb_grpc.add_VllmEngineServicer_to_server(self, self.server)
        port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()
        return port
