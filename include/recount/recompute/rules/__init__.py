"""Rules of docs/semantics.md for time, keys and values, written for the recompute alone.

The stream and the interpreter have these rules from ``recount.declare``. Nothing here may call them: a rule that both
sides share is a rule that no audit can find wrong. Only declarations are shared, that is, names and parameters.
"""
