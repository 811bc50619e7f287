"""Claims of each side about the rows of a sink, and the verdict on each row."""
