#!/usr/bin/env python3
"""A router around kvbridge, in a page: takes completions whose prompt is a list of token ids, asks POST /v1/route who
should serve them, sends them there, and reports what the engine had cached. Without an answer of kvbridge it routes by
load: kvbridge can make a choice better, never impossible.

    router.py --kvbridge http://127.0.0.1:8090 --listen 127.0.0.1:9000 --engine 10.0.0.7:8000 --engine 10.0.0.8:8000

Standard library only. It streams nothing and retries nothing: it shows how to ask, not how to build a router.
"""

import argparse
import contextlib
import http.server
import json
import threading
import urllib.error
import urllib.request

KVBRIDGE_TIMEOUT_S = 0.2  # a choice that takes longer than it saves is none
ENGINE_TIMEOUT_S = 600.0


def post(url, body, timeout, token=None):
    headers = {"content-type": "application/json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


class Router:
    def __init__(self, kvbridge, engines, token=None):
        self.kvbridge, self.token = kvbridge, token
        self.load = dict.fromkeys(engines, 0)  # requests in flight, by instance
        self.lock = threading.Lock()

    def choose(self, model, prompt):
        """The instance, what decided, and how many tokens it is said to hold: None where that is no prediction."""
        with self.lock:
            load = dict(self.load)
        question = {"model": model, "token_ids": prompt,
                    "candidates": [{"instance": instance, "load": busy} for instance, busy in load.items()]}
        try:
            answer = post(f"{self.kvbridge}/v1/route", question, KVBRIDGE_TIMEOUT_S, self.token)
        except (OSError, ValueError):
            return min(load, key=load.get), "kvbridge_away", None
        chosen = next(it for it in answer["candidates"] if it["key"] == answer["choice"]["key"])
        predicted = chosen["matched_tokens"] if chosen["usable"] else None
        return answer["choice"]["replica"]["instance"], answer["by"], predicted

    @contextlib.contextmanager
    def busy(self, instance):
        with self.lock:
            self.load[instance] += 1
        try:
            yield
        finally:
            with self.lock:
                self.load[instance] -= 1

    def report(self, model, instance, usage, predicted, conversation):
        """What came of it, so that a prediction can be compared with the truth (docs/http.md)."""
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        body = {"model": model, "instance": instance, "input_tokens": usage["prompt_tokens"], "cached_tokens": cached}
        if predicted is not None:
            body["predicted_tokens"] = predicted
        if conversation:
            body["conversation"] = conversation
        with contextlib.suppress(OSError, ValueError):
            post(f"{self.kvbridge}/v1/feedback", body, KVBRIDGE_TIMEOUT_S, self.token)

    def serve(self, body, conversation):
        model, prompt = body["model"], body["prompt"]
        instance, by, predicted = self.choose(model, prompt)
        with self.busy(instance):
            answer = post(f"http://{instance}/v1/completions", body, ENGINE_TIMEOUT_S)
        self.report(model, instance, answer["usage"], predicted, conversation)
        return instance, by, answer


def handler(router):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            try:
                body = json.loads(body)
                if self.path != "/v1/completions" or not isinstance(body["prompt"], list):
                    raise ValueError("expected /v1/completions with a prompt of token ids")
                served = router.serve(body, self.headers.get("x-conversation"))
            except (KeyError, TypeError, ValueError) as error:
                return self.answer(400, {"error": str(error)}, {})
            except urllib.error.HTTPError as error:
                return self.answer(error.code, {"error": f"the engine: {error.reason}"}, {})
            except OSError as error:
                return self.answer(502, {"error": str(error)}, {})
            instance, by, answer = served
            return self.answer(200, answer, {"x-instance": instance, "x-routed-by": by})

        def answer(self, status, body, headers):
            body = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "content-type": "application/json", "content-length": len(body)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kvbridge", default="http://127.0.0.1:8090")
    parser.add_argument("--listen", default="127.0.0.1:9000")
    parser.add_argument("--engine", action="append", required=True, help="as kvbridge calls its instance")
    parser.add_argument("--token-file", help="a token with the scopes read and report")
    args = parser.parse_args()
    token = open(args.token_file).read().strip() if args.token_file else None
    host, _, port = args.listen.rpartition(":")
    router = Router(args.kvbridge.rstrip("/"), args.engine, token)
    server = http.server.ThreadingHTTPServer((host, int(port)), handler(router))
    print(f"router on http://{host}:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
