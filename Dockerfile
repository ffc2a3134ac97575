# Two stages: the toolchain stays behind, and what runs has no shell rights beyond reading its files.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /source
COPY . .
# Shown by --version; the context has no git.
ARG KVBRIDGE_COMMIT=
RUN KVBRIDGE_COMMIT="$KVBRIDGE_COMMIT" cargo build --release --locked --bin kvbridge

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --no-create-home kvbridge
COPY --from=build /source/target/release/kvbridge /usr/local/bin/kvbridge
COPY --from=build /source/tests/fixtures/vllm-0.32.0-basic.jsonl /usr/share/kvbridge/demo.jsonl
USER 10001
EXPOSE 8090
ENTRYPOINT ["kvbridge"]
CMD ["run", "--play", "/usr/share/kvbridge/demo.jsonl"]
