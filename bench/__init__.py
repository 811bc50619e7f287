"""The benchmark: Recount beside its peers, on the same jobs and machine, in the same run. See ``make bench``."""
