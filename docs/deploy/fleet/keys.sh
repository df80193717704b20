#!/bin/sh
# Makes what the members of docker-compose.fleet.yml need to trust each other. What is there stays, but for their
# certificates, which are new each time and good for a year.
set -eu
umask 077
cd /var/lib/hubbub-keys
hubbub certs member . a b c
[ -e vault.key ] || {
  python -c 'import base64, secrets; print(base64.b64encode(secrets.token_bytes(32)).decode())' > vault.key.new
  mv vault.key.new vault.key
}
