"""Tests of the independent decoder: python -m unittest discover -s reference -t .

Streams come from a second implementation of docs/format.md: encoders that work value by value on Python integers and
floats.
"""
