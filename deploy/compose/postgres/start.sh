#!/bin/bash
# Starts PostgreSQL with TLS. It refuses a key that others could read, or that is not its own, so it gets a copy.
set -euo pipefail
install -o postgres -g postgres -m 600 /run/secrets/postgres/tls-key.pem /run/tls/key.pem
install -o postgres -g postgres -m 644 /run/secrets/postgres/tls-certificate.pem /run/tls/certificate.pem
install -o postgres -g postgres -m 600 /run/secrets/postgres/password /run/tls/password
exec docker-entrypoint.sh postgres \
  -c ssl=on -c ssl_cert_file=/run/tls/certificate.pem -c ssl_key_file=/run/tls/key.pem \
  -c ssl_min_protocol_version=TLSv1.2 -c wal_level=logical -c shared_buffers=64MB -c max_connections=60
