"""What the pages show: read from topics, tables and reports, drawn and rendered on the server. Knows no Airflow."""
