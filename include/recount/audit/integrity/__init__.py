"""Whether tables, logs and files were altered by anybody but their writer."""
