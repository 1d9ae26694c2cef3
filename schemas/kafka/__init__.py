"""How a process reaches Kafka: settings, client options, what errors mean, dead letters.

Light modules stand beside `clients`, the only one that imports a Kafka client: an agent loads
the others alone.
"""
