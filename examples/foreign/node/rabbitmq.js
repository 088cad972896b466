// The shop on RabbitMQ with amqplib: node rabbitmq.js URL STEP [ARGUMENT...]
const amqp = require('amqplib')

// show prints a message as one line of JSON.
function show({ properties, content }) {
  console.log(JSON.stringify({ properties, body: content.toString() }))
}

const order = (id, customer) => Buffer.from(JSON.stringify({ id: Number(id), customer }))

const steps = {
  async place(connection, id, customer) {
    // snippet: send
    const channel = await connection.createConfirmChannel()
    channel.sendToQueue('billing', order(id, customer), { type: 'order.placed' })
    await channel.waitForConfirms()
    // end
  },

  // Asks by direct reply-to, which needs no queue.
  async request(connection, id, customer) {
    // snippet: request
    const channel = await connection.createChannel()
    const reply = new Promise((resolve, reject) => {
      channel.consume('amq.rabbitmq.reply-to', resolve, { noAck: true }).catch(reject)
    })
    channel.sendToQueue('billing', order(id, customer), {
      type: 'order.placed',
      replyTo: 'amq.rabbitmq.reply-to',
      correlationId: `question-${id}`,
    })
    show(await reply)
    // end
  },

  // Prints the events of billing.
  async listen(connection) {
    const channel = await connection.createChannel()
    await channel.assertExchange('topic:invoice.written', 'fanout')
    await channel.assertQueue('mailing')
    await channel.bindQueue('mailing', 'topic:invoice.written', '')
    await channel.consume('mailing', (message) => {
      show(message)
      channel.ack(message)
    })
    console.log('"listening"')
    await new Promise(() => {})
  },

  // Returns the messages of the error queue to the queues where they failed.
  async returnFailed(connection) {
    // snippet: return
    const channel = await connection.createConfirmChannel()
    for (let message; (message = await channel.get('error')); ) {
      show(message)
      const { properties, content } = message
      channel.sendToQueue(properties.headers['NServiceBus.FailedQ'], content, properties) // with all headers
      await channel.waitForConfirms()
      channel.ack(message)
    }
    // end
    await channel.close()
  },
}

async function main([url, step, ...args]) {
  const connection = await amqp.connect(url)
  await steps[step](connection, ...args)
  await connection.close()
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error)
  process.exit(1)
})
