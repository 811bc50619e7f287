"""``spark-submit spark_jobs/audit.py --stream NAME``, or ``--group``, ``--all``, with RECOUNT_* in the environment."""

from recount.jobs import audit_job

if __name__ == "__main__":
    audit_job()
