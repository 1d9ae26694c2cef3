-- Windows, and transitions of faults, as tables of Flink SQL, with a schema registry: Flink's Avro
-- formats read Confluent's framing and bare Avro, not single-object encoding.

-- Columns are found by name: fields that a newer writer adds are passed over. An enum cannot be a
-- column, since Avro resolves it into no string. Times are microseconds since the epoch.
CREATE TABLE windows (
    path_id STRING NOT NULL,
    src STRING NOT NULL,
    dst STRING NOT NULL,
    flow INT NOT NULL,
    agent_id STRING NOT NULL,
    window_end_at BIGINT NOT NULL,
    sent BIGINT NOT NULL,
    lost BIGINT NOT NULL,
    p50_ns BIGINT,
    p99_ns BIGINT,
    `partition` INT METADATA VIRTUAL,
    ended_at AS TO_TIMESTAMP_LTZ(window_end_at / 1000, 3),
    -- Each agent's clock closes its own windows; those of an agent that was away come later.
    WATERMARK FOR ended_at AS ended_at - INTERVAL '60' SECOND
) WITH (
    'connector' = 'kafka',
    'topic' = 'probe.window.v1',
    'properties.bootstrap.servers' = '127.0.0.1:9092',
    'properties.group.id' = 'flink',
    'scan.startup.mode' = 'earliest-offset',
    'format' = 'avro-confluent',
    'avro-confluent.url' = 'http://127.0.0.1:8081'
);

CREATE TABLE fault_events (
    fault_id STRING NOT NULL,
    seq BIGINT NOT NULL,
    component_id STRING NOT NULL,
    fault_kind STRING NOT NULL,
    summary STRING NOT NULL,
    event_at BIGINT NOT NULL,
    -- Its state is an enum; the header ce_type says the same.
    headers MAP<STRING NOT NULL, BYTES> METADATA VIRTUAL,
    PRIMARY KEY (fault_id, seq) NOT ENFORCED
) WITH (
    'connector' = 'kafka',
    'topic' = 'fault.event.v1',
    'properties.bootstrap.servers' = '127.0.0.1:9092',
    'properties.group.id' = 'flink',
    -- The localizer writes transactions; Kafka's own default reads uncommitted records as well.
    'properties.isolation.level' = 'read_committed',
    'scan.startup.mode' = 'earliest-offset',
    'format' = 'avro-confluent',
    'avro-confluent.url' = 'http://127.0.0.1:8081'
);

-- GROUP BY and joins shuffle by their keys: where a topic's partitions hold what, does not matter.
SELECT path_id, TUMBLE_START(ended_at, INTERVAL '10' MINUTE) AS began_at,
    SUM(lost) AS lost, SUM(sent) AS sent
FROM windows
GROUP BY path_id, TUMBLE(ended_at, INTERVAL '10' MINUTE);
