"""Tests of the sealed worlds."""
