"""The benchmark: Recount beside its peers, on the same jobs, the same machine and in the same run. See ``make bench``."""
