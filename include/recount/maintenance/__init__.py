"""Files that nobody writes any more, removed when they are older than they have to be kept."""
