"""Data that one audit hands to the next."""
