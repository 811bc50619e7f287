"""The work of tasks on the records of one partition: decode, filter, reduce."""
