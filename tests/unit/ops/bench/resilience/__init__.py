"""Tests of the resilience bench."""
