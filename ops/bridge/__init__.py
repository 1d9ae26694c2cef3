"""The bridge: faults to Alertmanager, PagerDuty and webhooks.

`paging` decides what is paged, purely from records and their times. The rest reads the topics,
delivers, and remembers in Kafka how far each target has got.
"""
