"""Runs one stream: ``spark-submit spark_jobs/stream.py --stream NAME``, with RECOUNT_* in the environment."""

from recount.jobs import stream_job

if __name__ == "__main__":
    stream_job()
