"""A certificate, the chain of them, its findings and their register, as documents."""
