"""Repairs one stream: ``spark-submit spark_jobs/backfill.py --stream NAME``, with RECOUNT_* in the environment."""

from recount.jobs import backfill_job

if __name__ == "__main__":
    backfill_job()
