"""Answers that Kafka Streams and Spark Structured Streaming would have given on the log that a stream has read.

Neither of them runs. Both decide lateness as Recount does, with another clock (``engine_clocks``): so each record gets
the clock of each engine, or the least and the most that it can have been where the log does not say more.
"""
