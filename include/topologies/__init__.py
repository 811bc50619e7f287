"""The streams of this deployment: what a user writes. Each module declares topics and topologies, nothing else."""
