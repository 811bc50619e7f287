"""The batch recompute: its own code, from the raw log in one shot, never the stream's state."""
