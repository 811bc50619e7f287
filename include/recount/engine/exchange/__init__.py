"""How a batch is computed, apart from how it is committed."""
