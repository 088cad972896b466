package rabbitmq

// maxShortString is how many bytes AMQP allows names, routing keys and most properties.
const maxShortString = 255
