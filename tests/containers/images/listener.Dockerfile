# Stands for Jaeger and Grafana, which Debian has not: says at Grafana's port that all is well, and does nothing.
FROM debian:trixie-slim
# hadolint ignore=DL3008
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 wget \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY listener.py /srv/listener.py
USER 65534:65534
ENTRYPOINT ["python3", "/srv/listener.py"]
