#!/bin/sh
# A scheduler here and workers on the hosts of a file, one name on each line, through SSH and with TLS.
# Each host needs the same environment at the same path, and the certificates in ~/tls.
set -eu
HOSTS=${1:?a file of host names}
SLOTS=${2:-8}    # jobs at once on each host
PYTHON=${3:-$(command -v python)}
PORT=8786
TLS="--tls-ca-file tls/ca.pem --tls-cert tls/cert.pem --tls-key tls/key.pem"

cd "$HOME"
"$PYTHON" -m distributed.cli.dask_scheduler --protocol tls --port "$PORT" $TLS --scheduler-file scheduler.json &
trap 'kill $(jobs -p)' EXIT
while read -r host; do
    ssh -n "$host" "$PYTHON -m distributed.cli.dask_worker tls://$(hostname -f):$PORT --nworkers 1 --nthreads $SLOTS $TLS" &
done < "$HOSTS"
wait
