#!/bin/sh
# Airflow's worker, for as long as the container of the stream drivers lives. One that ends is started anew here: if the
# container ended with it, so would the drivers. After a crash Airflow holds the worker's name for taken, and its file
# with the process id is left: each start has a new name and file.
set -eu

stop() {
    kill -TERM "$worker"
    wait "$worker" || true
    exit 0
}
trap stop TERM INT

while :; do
    now=$(date +%s)
    airflow edge worker --concurrency 24 --edge-hostname "drivers-$now" --pid "/tmp/edge-worker-$now.pid" &
    worker=$!
    wait "$worker" || true
    sleep 2
done
