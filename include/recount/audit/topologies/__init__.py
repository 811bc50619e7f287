"""The audit of any topology that can be recomputed: all sinks, from the beginning of the log every time."""
