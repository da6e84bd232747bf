// The scenarios of ../scenarios.json with kafkajs. Prints a JSON line for each.
//
//   node scenarios.js BOOTSTRAP PREFIX NAME...
//
// kafkajs reads by group only: it has no assignment by hand. snappy comes by its plug-in.
'use strict'

const {
  CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel,
} = require('kafkajs')

const REPLICAS = 3
const DEADLINE_MS = 30_000
const [bootstrap, prefix, ...names] = process.argv.slice(2)

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const kafka = new Kafka({
  clientId: prefix,
  brokers: bootstrap.split(','),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 10 },
})
const admin = kafka.admin()
const name = of => `${prefix}-${of}`
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

async function until (what, isSo) {
  const end = Date.now() + DEADLINE_MS
  while (!await isSo()) {
    if (Date.now() > end) throw new Error(`not so in time: ${what}`)
    await pause(20)
  }
}

function create (topic, partitions, configs = {}, replicas = REPLICAS) {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  return admin.createTopics({
    topics: [{ topic, numPartitions: partitions, replicationFactor: replicas, configEntries }],
    waitForLeaders: true,
  })
}

async function topic (of, partitions, configs) {
  await create(name(of), partitions, configs)
  return name(of)
}

async function withProducer (settings, use) {
  const producer = kafka.producer({ allowAutoTopicCreation: false, ...settings })
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

async function fill (topic, partitions, count, settings = {}) {
  await withProducer(settings, async producer => {
    for (let partition = 0; partition < partitions; partition++) {
      const messages = Array.from({ length: count }, (_, i) => ({ partition, value: `${i}` }))
      await producer.send({ topic, messages })
    }
  })
}

// A member of a group that reads until closed. held: its partitions; records: what it has read.
class Member {
  constructor (groupId, settings = {}) {
    this.records = []
    this.held = []
    this.consumer = kafka.consumer({
      groupId,
      sessionTimeout: 6_000,
      heartbeatInterval: 200,
      maxWaitTimeInMs: 200,
      allowAutoTopicCreation: false,
      ...settings,
    })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.held = Object.values(payload.memberAssignment).flat().sort()
    })
  }

  async start (topics, beforeRun = () => {}) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics, fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        this.records.push({ topic, partition, ...message })
      },
    })
    beforeRun(this.consumer)
    return this
  }

  async take (count) {
    await until(`${count} records`, () => this.records.length >= count)
    return this.records.splice(0)
  }

  close () {
    return this.consumer.disconnect()
  }
}

async function withMember (groupId, topics, use, settings) {
  const member = new Member(groupId, settings)
  try {
    await member.start(topics)
    return await use(member)
  } finally {
    await member.close()
  }
}

async function committed (groupId, topic) {
  const [found] = await admin.fetchOffsets({ groupId, topics: [topic] })
  return Number(found.partitions[0].offset)
}

async function codec (of, compression) {
  const to = await topic(`codec-${of}`, 1)
  const messages = Array.from({ length: 20 }, (_, i) => ({
    key: `k${i}`,
    value: `value-${`${i}`.padStart(2, '0')}-${'x'.repeat(100)}`,
    headers: { h: `${i}` },
  }))
  await withProducer({}, producer => producer.send({ topic: to, compression, messages }))
  return withMember(to, [to], async member => {
    const found = await member.take(20)
    return {
      records: found.length,
      key: `${found[19].key}`,
      header: `${found[19].headers.h}`,
      value_bytes: found[19].value.length,
    }
  })
}

async function nulls () {
  const to = await topic('nulls', 1)
  const messages = [{ key: null, value: 'v' }, { key: 'k', value: null }]
  await withProducer({}, producer => producer.send({ topic: to, messages }))
  const text = data => data === null ? null : `${data}`
  return withMember(to, [to], async member => {
    const found = await member.take(2)
    return { keys: found.map(r => text(r.key)), values: found.map(r => text(r.value)) }
  })
}

async function seekOffset () {
  const to = await topic('seek-offset', 1)
  await fill(to, 1, 20)
  return withMember(to, [to], async member => {
    await member.take(20)
    member.consumer.seek({ topic: to, partition: 0, offset: '13' })
    return { offsets: (await member.take(7)).map(r => Number(r.offset)) }
  })
}

async function seekTime () {
  const to = await topic('seek-time', 1)
  const base = Math.floor(Date.now() / 1000) * 1000 - 3_600_000
  const messages = Array.from({ length: 10 }, (_, i) => ({
    value: 'v', timestamp: `${base + i * 1000}`,
  }))
  await withProducer({}, producer => producer.send({ topic: to, messages }))
  const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(to, base + 5_500)
  return { offset: Number(offset) }
}

async function pauseAndResume () {
  const to = await topic('pause', 2)
  await fill(to, 2, 5)
  const member = new Member(to)
  try {
    await member.start([to], consumer => consumer.pause([{ topic: to, partitions: [0] }]))
    const partitions = records => [...new Set(records.map(r => r.partition))]
    const first = partitions(await member.take(5))
    member.consumer.resume([{ topic: to, partitions: [0] }])
    return { first, then: partitions(await member.take(5)) }
  } finally {
    await member.close()
  }
}

async function idempotent () {
  const to = await topic('idempotent', 1)
  await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async producer => {
    for (let i = 0; i < 200; i += 10) {
      const messages = Array.from({ length: 10 }, (_, j) => ({ value: `${i + j}` }))
      await producer.send({ topic: to, messages })
    }
  })
  return withMember(to, [to], async member => {
    const found = await member.take(200)
    return { records: found.length, in_order: found.every((r, i) => `${r.value}` === `${i}`) }
  })
}

async function commitSync () {
  const to = await topic('commit-sync', 1)
  await fill(to, 1, 20)
  await withMember(to, [to], async member => {
    await member.take(20)
    await member.consumer.commitOffsets([{ topic: to, partition: 0, offset: '10' }])
  })
  return withMember(to, [to], async member => {
    const next = Number((await member.take(1))[0].offset)
    return { committed: await committed(to, to), next }
  })
}

async function pattern () {
  const group = name('pattern')
  for (const last of ['a', 'b']) await fill(await topic(`pattern-${last}`, 1), 1, 1)
  return withMember(group, [new RegExp(`^${group}-.*`)], async member => {
    const found = await member.take(2)
    return { topics: found.map(r => r.topic.slice(name('').length)).sort() }
  })
}

async function rebalance () {
  const to = await topic('rebalance', 4)
  const one = await new Member(to).start([to])
  const two = new Member(to)
  try {
    await until('the first has all', () => one.held.length === 4)
    await two.start([to])
    await until('each has two', () => one.held.length === 2 && two.held.length === 2)
    const together = [one.held.length, two.held.length]
    await two.close()
    await until('the other has all again', () => one.held.length === 4)
    return { together, alone: one.held.length }
  } finally {
    await one.close()
    await two.close()
  }
}

function transactional (of, use) {
  const settings = { transactionalId: name(of), idempotent: true, maxInFlightRequests: 1 }
  return withProducer(settings, use)
}

async function transaction () {
  const to = await topic('transaction', 1)
  await transactional('transaction', async producer => {
    for (const number of [0, 1, 2]) {
      const open = await producer.transaction()
      const messages = Array.from({ length: 5 }, (_, i) => ({ value: `${number}/${i}` }))
      await open.send({ topic: to, messages })
      await (number === 1 ? open.abort() : open.commit())
    }
  })
  const seen = await withMember(`${to}-committed`, [to], member => member.take(10))
  const all = await withMember(
    `${to}-all`, [to], member => member.take(15), { readUncommitted: true })
  return {
    committed: [...new Set(seen.map(r => `${r.value}`.split('/')[0]))],
    uncommitted: all.length,
  }
}

async function transactionOffsets () {
  const to = await topic('transaction-offsets', 1)
  const turn = (producer, isCommitted) => producer.transaction().then(async open => {
    await open.send({ topic: to, messages: [{ value: 'v' }] })
    const partitions = [{ partition: 0, offset: '10' }]
    await open.sendOffsets({ consumerGroupId: to, topics: [{ topic: to, partitions }] })
    await (isCommitted ? open.commit() : open.abort())
    // A commit is answered before its markers are written.
    if (isCommitted) await until('the markers', async () => await committed(to, to) >= 0)
    return committed(to, to)
  })
  return transactional('transaction-offsets', async producer => ({
    after_abort: await turn(producer, false),
    after_commit: await turn(producer, true),
  }))
}

async function partitionsOf (topic) {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  return topics[0].partitions
}

async function retention (topic) {
  const type = ConfigResourceTypes.TOPIC
  const resources = [{ type, name: topic, configNames: ['retention.ms'] }]
  const described = await admin.describeConfigs({ includeSynonyms: false, resources })
  return described.resources[0].configEntries[0].configValue
}

async function adminTopics () {
  const to = await topic('admin-topics', 3, { 'retention.ms': '3600000' })
  // Judge and keep one answer: the next broker that is asked may not know of it yet.
  let partitions = []
  await until('it is described', async () => {
    partitions = await partitionsOf(to).catch(() => [])
    return partitions.length === 3
  })
  const before = await retention(to)
  const configEntries = [{ name: 'retention.ms', value: '7200000' }]
  const type = ConfigResourceTypes.TOPIC
  const resources = [{ type, name: to, configEntries }]
  await admin.alterConfigs({ validateOnly: false, resources })
  await until('it is altered', async () => await retention(to) === '7200000')
  await admin.createPartitions({ topicPartitions: [{ topic: to, count: 5 }] })
  await until('it has grown', async () => (await partitionsOf(to)).length === 5)
  await admin.deleteTopics({ topics: [to] })
  let gone
  await until('it is gone', async () => {
    gone = (await failed(partitionsOf(to))).error
    return gone !== 'NONE'
  })
  return {
    partitions: partitions.length,
    replicas: partitions[0].replicas.length,
    retention: before,
    altered: '7200000',
    grown: 5,
    after_delete: gone,
  }
}

async function adminGroups () {
  const to = await topic('admin-groups', 1)
  await fill(to, 1, 1)
  await withMember(to, [to], async member => {
    await member.take(1)
    await member.consumer.commitOffsets([{ topic: to, partition: 0, offset: '1' }])
  })
  const isListed = async () => (await admin.listGroups()).groups.some(g => g.groupId === to)
  const state = async () => (await admin.describeGroups([to])).groups[0].state
  await until('the group is empty', async () => await state() === 'Empty')
  const listed = await isListed()
  await admin.deleteGroups([to])
  return { state: 'Empty', listed, listed_after_delete: await isListed() }
}

async function listOffsets () {
  const to = await topic('list-offsets', 1)
  await fill(to, 1, 20)
  const [{ low, high }] = await admin.fetchTopicOffsets(to)
  return { earliest: Number(low), latest: Number(high) }
}

async function deleteRecords () {
  const to = await topic('delete-records', 1)
  await fill(to, 1, 20)
  // kafkajs finds no leader of a topic that it has not asked about before.
  await admin.fetchTopicOffsets(to)
  await admin.deleteTopicRecords({ topic: to, partitions: [{ partition: 0, offset: '7' }] })
  const [{ low }] = await admin.fetchTopicOffsets(to)
  const first = await withMember(to, [to], async member => (await member.take(1))[0].offset)
  // kafkajs answers with nothing: the earliest offset stands for the answer's low watermark too.
  return { low: Number(low), earliest: Number(low), first: Number(first) }
}

// Kafka's name of the error that the promise is rejected with. kafkajs wraps it in several ways.
async function failed (promise) {
  try {
    await promise
  } catch (error) {
    for (let e = error; e; e = e.cause || e.errors?.[0] || e.groups?.[0]?.error) {
      if (e.type && e.code !== undefined) return { error: e.type }
    }
    return { error: `${error}` }
  }
  return { error: 'NONE' }
}

async function tooLarge () {
  const to = await topic('too-large', 1, { 'max.message.bytes': '1000' })
  const messages = [{ value: 'x'.repeat(5_000) }]
  return failed(withProducer({}, producer => producer.send({ topic: to, messages })))
}

async function fenced () {
  const to = await topic('fenced', 1)
  return transactional('fenced', async old => {
    const ofOld = await old.transaction()
    await ofOld.send({ topic: to, messages: [{ value: 'old' }] })
    return transactional('fenced', async young => {
      const ofYoung = await young.transaction()
      await ofYoung.send({ topic: to, messages: [{ value: 'young' }] })
      const { error } = await failed(ofOld.commit())
      await ofYoung.commit()
      const isFenced = ['PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH'].includes(error)
      return isFenced ? { is_fenced: true } : { error }
    })
  })
}

async function groupNotEmpty () {
  const to = await topic('group-not-empty', 1)
  await fill(to, 1, 1)
  return withMember(to, [to], async member => {
    await member.take(1)
    return failed(admin.deleteGroups([to]))
  })
}

// kafkajs makes `false` of this error, and of this one only.
async function topicExists () {
  const isMade = await create(await topic('exists', 1), 1)
  return { error: isMade ? 'NONE' : 'TOPIC_ALREADY_EXISTS' }
}

async function fewerPartitions () {
  const to = await topic('fewer', 3)
  return failed(admin.createPartitions({ topicPartitions: [{ topic: to, count: 2 }] }))
}

// The topic is there: all of three replicas must be in sync, and one broker is dead.
function notEnoughReplicas () {
  const to = name('not-enough-replicas')
  const settings = { retry: { retries: 1 } }
  return failed(withProducer(settings, p => p.send({ topic: to, messages: [{ value: 'v' }] })))
}

const scenarios = {
  'codec-none': () => codec('none', CompressionTypes.None),
  'codec-gzip': () => codec('gzip', CompressionTypes.GZIP),
  'codec-snappy': () => codec('snappy', CompressionTypes.Snappy),
  nulls,
  'seek-offset': seekOffset,
  'seek-time': seekTime,
  pause: pauseAndResume,
  idempotent,
  'commit-sync': commitSync,
  pattern,
  rebalance,
  transaction,
  'transaction-offsets': transactionOffsets,
  'admin-topics': adminTopics,
  'admin-groups': adminGroups,
  'list-offsets': listOffsets,
  'delete-records': deleteRecords,
  'error-unknown-topic': () => failed(partitionsOf(name('unknown'))),
  'error-topic-exists': topicExists,
  'error-topic-name': () => failed(create(name('not a name!'), 1)),
  'error-replication-factor': () => failed(create(name('nine'), 1, {}, 9)),
  'error-config': () => failed(create(name('config'), 1, { 'retention.ms': 'never' })),
  'error-fewer-partitions': fewerPartitions,
  'error-too-large': tooLarge,
  'error-fenced': fenced,
  'error-group-not-empty': groupNotEmpty,
  'error-not-enough-replicas': notEnoughReplicas,
}

async function main () {
  await admin.connect()
  for (const scenario of names) {
    const began = Date.now()
    const line = { scenario }
    try {
      line.outcome = await scenarios[scenario]()
    } catch (error) {
      line.failure = `${error.stack}`
    }
    console.log(JSON.stringify({ ...line, ms: Date.now() - began }))
  }
  await admin.disconnect()
}

main()
