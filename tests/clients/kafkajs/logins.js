// The cases of ../logins/cases.py with kafkajs. Prints a JSON line for each.
//
//   node logins.js FILE
'use strict'

const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const DEADLINE_MS = 10_000

function settings (question) {
  const found = {
    clientId: 'kafkajs',
    brokers: [question.bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { retries: 0 },
  }
  if (question.protocol.endsWith('SSL')) {
    found.ssl = { ca: [fs.readFileSync(question.ca)] }
    if (question.certificate) {
      found.ssl.cert = found.ssl.key = fs.readFileSync(question.certificate)
    }
  }
  if (question.token) {
    const value = fs.readFileSync(question.token, 'utf8')
    found.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value }) }
  } else if (question.mechanism) {
    const mechanism = question.mechanism.toLowerCase()
    found.sasl = { mechanism, username: question.user, password: question.password }
  }
  return found
}

async function read (kafka, question) {
  const consumer = kafka.consumer({ groupId: question.group, maxWaitTimeInMs: 200 })
  try {
    await consumer.connect()
    await consumer.subscribe({ topics: [question.topic], fromBeginning: true })
    return await new Promise((resolve, reject) => {
      setTimeout(() => resolve('nothing in time'), DEADLINE_MS).unref()
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      consumer.run({ eachMessage: async () => resolve('read') }).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
}

async function use (question) {
  const kafka = new Kafka(settings(question))
  const producer = kafka.producer({ allowAutoTopicCreation: false })
  try {
    await producer.connect()
    await producer.send({ topic: question.topic, messages: [{ value: 'kafkajs' }] })
  } finally {
    await producer.disconnect()
  }
  return read(kafka, question)
}

// The error at the bottom, and what it says without addresses. Which alert a broker sends for a
// client's bad certificate is up to its TLS library; a client that still writes may see the
// connection's end before it.
function said (error) {
  while (error.cause) error = error.cause
  if (/^ERR_SSL_.*_ALERT_|^ECONNRESET$|^EPIPE$/.test(error.code)) {
    return { error: 'TLS alert, or the end of the connection' }
  }
  const says = error.message.replace(/127\.0\.0\.1:\d+/g, 'ADDRESS')
  return { error: error.type || error.code || error.name, says }
}

async function main () {
  for (const question of JSON.parse(fs.readFileSync(process.argv[2]))) {
    const outcome = await use(question).catch(said)
    console.log(JSON.stringify({ case: question.name, outcome }))
  }
  process.exit(0)
}

main()
