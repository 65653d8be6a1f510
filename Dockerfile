FROM rust:1-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package tidegate && strip target/release/tidegate

FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin tidegate
WORKDIR /app
COPY --from=build /src/target/release/tidegate /usr/local/bin/tidegate
COPY --from=build /src/topology topology
USER 10001
ENTRYPOINT ["tidegate"]
CMD ["serve"]
