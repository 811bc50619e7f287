"""A stream at work, by the stage of a record: source, stage, exchange, state, operators, commit, upkeep, driver."""
