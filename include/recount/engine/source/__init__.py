"""The input of a stream: its Kafka source, where it resumes, what is unread."""
