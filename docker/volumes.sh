#!/bin/sh
# Saves or loads all volumes of the composition: volumes.sh save|load FOLDER, where docker-compose.yml is.
#
# Log, tables, checkpoints, certificates, keys and Airflow's database go together: a table that is older than its
# checkpoint, or than the log, is no state that any stream was in. So `save` stops all services and starts them again.
# `load` wants a composition whose services are stopped, replaces what is in its volumes, and starts nothing.
set -eu
usage() {
    echo "usage: volumes.sh save|load FOLDER" >&2
    exit 2
}

test $# -eq 2 || usage
what=$1
case $what in
save) mkdir -p "$2" ;;
load) test -d "$2" || { echo "$2: no such folder" >&2; exit 2; } ;;
*) usage ;;
esac
folder=$(cd "$2" && pwd)
told=$(docker compose config --format json)
project=$(printf "%s" "$told" | python3 -c "import json, sys; print(json.load(sys.stdin)['name'])")
image=$(printf "%s" "$told" | python3 -c "import json, sys; print(json.load(sys.stdin)['services']['migration']['image'])")
volumes="keys kafka-1 kafka-2 kafka-3 postgres recount"

in_volume() {
    volume=$1
    shift
    docker run --rm --network none --user 0 --volume "${project}_$volume:/volume" --volume "$folder:/backup" "$image" "$@"
}

case $what in
save)
    for volume in $volumes; do test ! -e "$folder/$volume.tar.gz" || { echo "$folder holds a backup: name another folder" >&2; exit 2; }; done
    # also when a volume cannot be copied
    trap "docker compose start" EXIT
    docker compose stop
    for volume in $volumes; do
        in_volume "$volume" tar --create --gzip --directory /volume --file "/backup/$volume.unfinished" .
    done
    for volume in $volumes; do mv "$folder/$volume.unfinished" "$folder/$volume.tar.gz"; done
    ;;
load)
    if [ -n "$(docker compose ps --quiet)" ]; then
        echo "services run: docker compose stop, then call this again" >&2
        exit 2
    fi
    for volume in $volumes; do test -f "$folder/$volume.tar.gz" || { echo "$folder has no $volume.tar.gz" >&2; exit 2; }; done
    for volume in $volumes; do
        in_volume "$volume" sh -c "find /volume -mindepth 1 -delete && tar --extract --gzip --directory /volume --file /backup/$volume.tar.gz"
    done
    ;;
esac
