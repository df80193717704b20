# Stands for the collector of OpenTelemetry, which Debian has not: takes what the hub sends, and says of what kind it is.
FROM hubbub:local
COPY collector.py /srv/collector.py
USER 65534:65534
HEALTHCHECK NONE
ENTRYPOINT ["python", "/srv/collector.py"]
