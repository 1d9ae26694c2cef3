"""The contract between the processes: Avro schemas, typed records, topics, framing, codecs.

A leaf that imports none of the packages above it. The record contract itself needs no Kafka
client; `kafka` and `process` hold what every process does alike at its edge.
"""
