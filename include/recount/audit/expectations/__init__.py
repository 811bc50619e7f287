"""The suites of Great Expectations and what they look at."""
