# Stands for postgres: Debian's, with the user id, the folder and the variables of the official image that
# docker-compose.fleet.yml uses.
FROM debian:trixie-slim
# hadolint ignore=DL3008
RUN groupadd --gid 999 postgres \
 && useradd --uid 999 --gid postgres --home-dir /var/lib/postgresql postgres \
 && apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql-common \
 && sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf \
 && apt-get install -y -qq --no-install-recommends postgresql && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
 && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ \
 && install --directory --owner=postgres --group=postgres --mode=0700 /var/lib/postgresql
COPY postgres.sh /usr/local/bin/start
USER 999:999
VOLUME /var/lib/postgresql
STOPSIGNAL SIGINT
ENTRYPOINT ["sh", "/usr/local/bin/start"]
