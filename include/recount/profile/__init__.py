"""The embedded profile: Kafka, Spark and Airflow of one home on this machine."""
