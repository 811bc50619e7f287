"""How a batch is committed: Delta tables, Kafka transaction, proof."""
