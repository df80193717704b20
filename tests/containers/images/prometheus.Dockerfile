# Stands for prom/prometheus: Debian's, with the names and the user of the official image.
FROM debian:trixie-slim
# hadolint ignore=DL3008
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
 && install --directory --owner=nobody --group=nogroup /prometheus
USER 65534:65534
VOLUME /prometheus
ENTRYPOINT ["prometheus"]
