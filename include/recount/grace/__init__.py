"""What a longer grace would have saved and what it costs, from the late ledger and the audits; without Spark.

``judges`` says which operators judge records by a grace, ``shortfalls`` by how much that was too short for each late
record. ``advice`` says the same of the grace misses that audits found, and puts both beside the state
(``recount.spark.estimates``) and the delay that a longer grace costs. ``recommending`` chooses.
"""
