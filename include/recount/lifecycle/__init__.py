"""Operations on a stream whose declaration has changed: a new version, an upgrade, a retirement, an erasure."""
