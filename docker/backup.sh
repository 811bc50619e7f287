#!/bin/sh
# Dumps Airflow's database into /backups once a day and keeps the newest seven dumps. A dump that failed is tried again
# after a minute; one that was interrupted never has the name of a whole one.
set -eu
while :; do
    now=$(date -u +%Y%m%dT%H%M%SZ)
    if pg_dump --format custom --file /backups/unfinished airflow; then
        mv /backups/unfinished "/backups/airflow-$now.dump"
        ls -1 /backups/airflow-*.dump | head -n -7 | xargs -r rm --
        sleep 86400 & wait $!
    else
        sleep 60 & wait $!
    fi
done
