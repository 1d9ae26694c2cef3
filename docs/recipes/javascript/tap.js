// Prints the committed records of a topic of faults, in both framings: kafkajs, avsc and lz4js.
//
//     npm ci && node tap.js BOOTSTRAP TOPIC GROUP SCHEMAS REGISTRY
//     node tap.js 127.0.0.1:9092 fault.event.v1 my-own-group schemas/avsc/fault.event.v1 http://127.0.0.1:8081
//
// It ends when all is read that was there at the start.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import avro from 'avsc'
import kafkajs from 'kafkajs'
import lz4 from 'lz4js'

const { CompressionCodecs, CompressionTypes, Kafka } = kafkajs
const [bootstrap, topic, groupId, folder, registry] = process.argv.slice(2)

// Agents and workers write lz4, which kafkajs reads by this only.
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})

// A `long` beyond 2^53, which only `incarnation` exceeds, would be refused: longs are BigInt here.
const long = avro.types.LongType.__with({
  fromBuffer: (b) => b.readBigInt64LE(),
  toBuffer: (n) => { const b = Buffer.alloc(8); b.writeBigInt64LE(n); return b },
  fromJSON: BigInt,
  toJSON: Number,
  isValid: (n) => typeof n === 'bigint',
  compare: (a, b) => (a === b ? 0 : a < b ? -1 : 1),
})

// A registry of names for each: all versions have one name.
const parse = (schema) => avro.Type.forSchema(schema, { registry: { long } })

const EMPTY = 0xc15d213aa4d7a795n // CRC-64-AVRO of the Avro specification
const TABLE = Array.from({ length: 256 }, (_, i) => {
  let f = BigInt(i)
  for (let bit = 0; bit < 8; bit++) f = (f >> 1n) ^ (EMPTY & -(f & 1n))
  return f
})
function fingerprint(schema) {
  // The canonical form has no longs of ours: it is the schema's, not the type's.
  const text = JSON.stringify(avro.Type.forSchema(schema).schema())
  return Buffer.from(text).reduce((f, byte) => (f >> 8n) ^ TABLE[Number((f ^ BigInt(byte)) & 255n)], EMPTY)
}

const versions = readdirSync(folder)
  .sort((a, b) => parseInt(a) - parseInt(b)) // 1.avsc, 2.avsc, ...
  .map((file) => JSON.parse(readFileSync(path.join(folder, file), 'utf8')))
const newest = parse(versions.at(-1))
const byFingerprint = new Map(versions.map((schema) => [fingerprint(schema), parse(schema)]))
const byId = new Map()

async function writerOf(value) {
  if (value[0] === 0xc3 && value[1] === 0x01) { // single-object encoding
    const writer = byFingerprint.get(value.readBigUInt64LE(2))
    if (!writer) throw new Error('a schema that is newer than the files: copy schemas/avsc anew')
    return [writer, value.subarray(10)]
  }
  if (value[0] !== 0x00) throw new Error("neither single-object encoding nor Confluent's framing")
  const id = value.readUInt32BE(1)
  if (!byId.has(id)) {
    const answer = await fetch(`${registry}/schemas/ids/${id}`)
    if (!answer.ok) throw new Error(`registry: schema ${id}: ${answer.status}`)
    byId.set(id, parse(JSON.parse((await answer.json()).schema)))
  }
  return [byId.get(id), value.subarray(5)]
}

async function decode(value) {
  const [writer, body] = await writerOf(value)
  // Fields that the writer lacks get their defaults, those that it adds are passed over.
  return newest.fromBuffer(body, newest.createResolver(writer))
}

const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: kafkajs.logLevel.ERROR })
const admin = kafka.admin()
await admin.connect()
const left = new Map()
for (const { partition, low, high } of await admin.fetchTopicOffsets(topic))
  if (BigInt(high) > BigInt(low)) left.set(partition, BigInt(high))
await admin.disconnect()

const consumer = kafka.consumer({ groupId }) // read_committed is its default
await consumer.connect()
await consumer.subscribe({ topic, fromBeginning: true })
await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error))
  // Marks of transactions are passed over: it is the batch that says how far it reaches.
  consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload }) => {
    if (BigInt(payload.lastOffset) + 1n >= (left.get(payload.partition) ?? 0n)) left.delete(payload.partition)
    if (left.size === 0) resolve()
  })
  consumer.run({
    eachMessage: async ({ partition, message }) => {
      if (message.value === null) return // a tombstone: the key is gone
      try {
        const fault = await decode(message.value)
        console.log(partition, message.key.toString(), String(fault.seq), fault.state, fault.summary)
      } catch (error) {
        console.error(`${topic} ${partition}, offset ${message.offset}: ${error.message}`)
      }
    },
  }).catch(reject)
  if (left.size === 0) resolve()
})
await consumer.disconnect()
