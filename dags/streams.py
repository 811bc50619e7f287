"""The DAGs that keep streams running, bring topics in step and remove old files.

Airflow parses a file anew every half minute: the DAGs of forty streams in one would take a second.
"""

from recount.airflow import recount_dags

recount_dags(globals(), only=["streams", "topics", "maintenance"])
