# Stands for python:VERSION-slim-trixie where no registry of images is reached: the same Debian, the same libraries and
# a CPython of this machine, without what the official image leaves out, too (tests, compiled modules, symbols).
FROM debian:trixie-slim AS stripped
# hadolint ignore=DL3008
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils
COPY interpreter /usr/local
RUN find /usr/local -depth \
  \( -type d \( -name test -o -name tests -o -name idle_test -o -name __pycache__ -o -name site-packages -o -name 'config-3.*' \) \
  -o -type f \( -name '*.a' -o -name '_tkinter*.so' -o -name 'nis.*.so' \) \) -exec rm -rf {} + \
 && find /usr/local -type f \( -name '*.so*' -o -name 'python3.*[0-9]' \) -exec strip --strip-unneeded {} +

FROM debian:trixie-slim
# hadolint ignore=DL3008
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends ca-certificates netbase tzdata libbz2-1.0 libcrypt1 libffi8 liblzma5 \
  libncursesw6 libreadline8t64 libsqlite3-0 libssl3t64 libuuid1 zlib1g \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=stripped /usr/local /usr/local
# What this machine trusts: behind a proxy that opens TLS its certificate is needed. An older pip looks nowhere else.
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
RUN printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' > /etc/pip.conf \
 && ldconfig && mkdir -p "/usr/local/lib/python3.$(python3 -c 'import sys; print(sys.version_info[1])')/site-packages" \
 && python3 -m ensurepip \
 && ln -sf pip3 /usr/local/bin/pip \
 && find /usr/local -depth -type d -name __pycache__ -exec rm -rf {} +
CMD ["python3"]
