"""The general recompute: every operator of the language, from the raw logs in one shot.

``recomputed`` walks a topology once; each module holds one kind of operator. What order decides (sliding and session
windows, deduplication, processors, folds) is a plain function over one key's records, in ``log_sessions``,
``log_processing`` and ``log_aggregates``; everything else is SQL of DuckDB.
"""
