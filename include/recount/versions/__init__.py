"""What is done to a stream whose declaration has changed: a new version of it, or an upgrade of its state."""
