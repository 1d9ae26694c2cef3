"""What an operator looks at, folded from the topics: one place for page, review and doctor.

`ops.view.cluster.ClusterView` folds records; the other modules say what its content means at a
time. Nothing here reads Kafka, files or a clock.
"""
