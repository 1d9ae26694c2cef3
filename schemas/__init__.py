"""The contract between the processes: Avro schemas, typed records, topics, framing, codecs.

A leaf: it imports none of the other rooms, no Kafka client and no numerics.
"""
