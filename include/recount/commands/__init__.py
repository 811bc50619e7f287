"""Commands of the core, which itself is standard library only."""
