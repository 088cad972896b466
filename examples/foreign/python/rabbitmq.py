"""The shop on RabbitMQ with pika: python3 rabbitmq.py URL STEP [ARGUMENT...]"""
import json
import sys

import pika


def show(properties, body):
    """Prints a message as one line of JSON."""
    fields = {name: value for name, value in vars(properties).items() if value is not None}
    print(json.dumps({'properties': fields, 'body': body.decode()}, default=repr), flush=True)


def order(id, customer):
    return json.dumps({'id': int(id), 'customer': customer})


def place(channel, id, customer):
    # snippet: send
    channel.confirm_delivery()  # basic_publish fails if the broker has not stored the message
    channel.basic_publish(
        exchange='', routing_key='billing', body=order(id, customer), mandatory=True,
        properties=pika.BasicProperties(type='order.placed'))
    # end


def place_by_key(channel, id, customer):
    """As a publisher that names the type in the routing key, and nothing else."""
    channel.exchange_declare('shop', 'topic', durable=True)
    channel.queue_bind('billing', 'shop', 'order.*')
    channel.confirm_delivery()
    channel.basic_publish('shop', 'order.placed', order(id, customer))


def place_with_all(channel, id, customer):
    """With every property and each type of header."""
    channel.confirm_delivery()
    channel.basic_publish('', 'billing', order(id, customer), pika.BasicProperties(
        type='order.placed', message_id='order-' + id, content_type='application/json', content_encoding='utf-8',
        app_id='shop', timestamp=1700000000, correlation_id='basket-7', priority=3, delivery_mode=2, headers={
            'text': 'Zoë', 'number': 7, 'large': 2**40, 'yes': True, 'nothing': None, 'bytes': b'\x00\xff',
            'list': [1, 'two', None], 'table': {'a': 1, 'b': {'c': False}}}))


def request(channel, id, customer):
    """Asks by direct reply-to, which needs no queue."""
    # snippet: request
    def replied(channel, method, properties, body):
        show(properties, body)
        channel.stop_consuming()

    channel.basic_consume('amq.rabbitmq.reply-to', replied, auto_ack=True)  # before the request, on its channel
    channel.basic_publish('', 'billing', order(id, customer), pika.BasicProperties(
        type='order.placed', reply_to='amq.rabbitmq.reply-to', correlation_id='question-' + id))
    channel.start_consuming()
    # end


def request_by_queue(channel, id, customer, name=''):
    """Asks with a queue; the broker names one without a name."""
    def replied(channel, method, properties, body):
        show(properties, body)
        channel.stop_consuming()

    queue = channel.queue_declare(name, exclusive=True).method.queue
    channel.basic_consume(queue, replied, auto_ack=True)
    channel.basic_publish('', 'billing', order(id, customer), pika.BasicProperties(
        type='order.placed', reply_to=queue, correlation_id='question-' + id))
    channel.start_consuming()


def listen(channel):
    """Prints the events of billing."""
    # snippet: subscribe
    channel.exchange_declare('topic:invoice.written', 'fanout', durable=True)
    channel.queue_declare('mailing', durable=True)
    channel.queue_bind('mailing', 'topic:invoice.written')
    # end

    def written(channel, method, properties, body):
        show(properties, body)
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume('mailing', written)
    print('"listening"', flush=True)
    channel.start_consuming()


def return_failed(channel):
    """Returns the messages of the error queue to the queues where they failed."""
    # snippet: return
    channel.confirm_delivery()
    while True:
        method, properties, body = channel.basic_get('error')
        if method is None:
            break
        show(properties, body)
        # All properties and headers as they are, in particular those of Reprise.
        channel.basic_publish('', properties.headers['NServiceBus.FailedQ'], body, properties, mandatory=True)
        channel.basic_ack(method.delivery_tag)
    # end


connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
globals()[sys.argv[2]](connection.channel(), *sys.argv[3:])
connection.close()
