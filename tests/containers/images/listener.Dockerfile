# Stands for Jaeger and Grafana, which Debian has not: says at Grafana's port that all is well, and does nothing.
FROM hubbub:local
USER 0:0
# hadolint ignore=DL3008
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
COPY listener.py /srv/listener.py
USER 65534:65534
HEALTHCHECK NONE
ENTRYPOINT ["python", "/srv/listener.py"]
