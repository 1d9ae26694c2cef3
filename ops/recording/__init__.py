"""Recordings: topics kept in Avro object container files, and written again elsewhere."""
