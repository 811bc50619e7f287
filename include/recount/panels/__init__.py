"""What the page of a stream shows of a longer grace and of other engines: written by night, so that no reader waits.

``<reports>/grace/<stream>.json`` and ``<reports>/lens/<stream>.json`` are objects with ``said`` (sentences),
``columns`` and ``rows`` (texts).
"""
