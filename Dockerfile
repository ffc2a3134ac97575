# What runs has no toolchain, no rights beyond reading its files, and no root. Nothing here needs BuildKit, so the
# stages that the default target does not use come first and cost it nothing but a copy.
#   docker build -t kvbridge:local .                                       builds the program
#   docker build --target runtime-prebuilt -t kvbridge:local .             takes dist/kvbridge as it is
FROM debian:bookworm-slim AS base
RUN useradd --system --uid 10001 --no-create-home kvbridge
ENV PATH=/opt/kvbridge:$PATH
COPY tests/fixtures/vllm-0.32.0-basic.jsonl /usr/share/kvbridge/demo.jsonl
USER 10001
EXPOSE 8090
ENTRYPOINT ["kvbridge"]
CMD ["run", "--play", "/usr/share/kvbridge/demo.jsonl"]

FROM base AS runtime-prebuilt
# The pattern is also right where there is no dist/: builders without BuildKit make this stage in any case.
COPY LICENSE dist/kvbridg[e] /opt/kvbridge/

FROM rust:1.95-slim-bookworm AS build
WORKDIR /source
COPY . .
# Shown by --version; the context has no git.
ARG KVBRIDGE_COMMIT=
RUN KVBRIDGE_COMMIT="$KVBRIDGE_COMMIT" cargo build --release --locked --bin kvbridge

FROM base AS runtime
COPY --from=build /source/LICENSE /source/target/release/kvbridge /opt/kvbridge/
