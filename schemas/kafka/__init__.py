"""How a process reaches Kafka: settings, client options, what errors mean, dead letters.

Light modules stand beside `clients`, `leadership`, `letters` and `transactions`, which import a
Kafka client: an agent loads the light ones alone.
"""
