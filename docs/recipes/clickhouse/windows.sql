-- Windows into ClickHouse, with a schema registry: its Kafka engine reads Avro in no other framing
-- (ClickHouse issue 71444). Values that it cannot read, such as those from before the registry
-- came, do not stop it: they are in windows_unread, with the reason.

-- librdkafka's default is read_committed. Columns are found by name: fields that a newer writer
-- adds are passed over, columns that an older one lacks get their defaults.
CREATE TABLE windows_queue (
    path_id String, src String, dst String, flow Int32, agent_id String,
    window_start_at DateTime64(6, 'UTC'), window_end_at DateTime64(6, 'UTC'),
    sent Int64, lost Int64, p50_ns Nullable(Int64), p99_ns Nullable(Int64)
) ENGINE = Kafka SETTINGS
    kafka_broker_list = '127.0.0.1:9092',
    kafka_topic_list = 'probe.window.v1',
    kafka_group_name = 'clickhouse',
    kafka_format = 'AvroConfluent',
    format_avro_schema_registry_url = 'http://127.0.0.1:8081',
    input_format_avro_allow_missing_fields = 1,
    kafka_handle_error_mode = 'stream';

-- A window is written once; after a rebalance ClickHouse may read it again: the later of two with
-- one key goes (read with FINAL). A path's partition is that of its agent's rounds, not of its key.
CREATE TABLE windows (
    path_id String, src String, dst String, flow Int32, agent_id String,
    window_start_at DateTime64(6, 'UTC'), window_end_at DateTime64(6, 'UTC'),
    sent Int64, lost Int64, p50_ns Nullable(Int64), p99_ns Nullable(Int64)
) ENGINE = ReplacingMergeTree ORDER BY (path_id, flow, window_start_at);

CREATE MATERIALIZED VIEW windows_view TO windows AS
    SELECT path_id, src, dst, flow, agent_id, window_start_at, window_end_at,
        sent, lost, p50_ns, p99_ns
    FROM windows_queue WHERE length(_error) = 0;

CREATE TABLE windows_unread (
    partition UInt64, offset UInt64, reason String, value String
) ENGINE = MergeTree ORDER BY (partition, offset);

CREATE MATERIALIZED VIEW windows_unread_view TO windows_unread AS
    SELECT _partition AS partition, _offset AS offset, _error AS reason, _raw_message AS value
    FROM windows_queue WHERE length(_error) > 0;
