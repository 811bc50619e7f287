"""Conformance: cases taken from the tests of Kafka Streams, run through our declarations and compared.

``case`` reads a file, ``declared`` turns a case into a topology, ``outcome`` runs it, ``comparing`` finds the first
difference, ``by_design`` says which differences follow from a rule of docs/semantics.md, ``report`` counts.
"""
