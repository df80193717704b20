# Stands for alpine/socat.
FROM debian:trixie-slim
# hadolint ignore=DL3008
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends socat && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
ENTRYPOINT ["socat"]
