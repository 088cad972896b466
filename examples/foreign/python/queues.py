"""The shop on Amazon SQS with boto3: python3 queues.py STEP [ARGUMENT...]"""
import base64
import json
import sys

import boto3


RAW = 'NServiceBus.AmazonSQS.Headers'


def show(headers, body, attributes):
    """Prints a message as one line of JSON."""
    print(json.dumps({'headers': headers, 'body': body.decode(), 'attributes': sorted(attributes)}), flush=True)


def order(id, customer):
    return json.dumps({'id': int(id), 'customer': customer})


def url(queue):
    return sqs.get_queue_url(QueueName=queue)['QueueUrl']


def place(id, customer, **further):
    # snippet: send
    attributes = {'MessageTypeFullName': 'order.placed', **further}
    sqs.send_message(
        QueueUrl=url('billing'), MessageBody=order(id, customer),
        MessageAttributes={name: {'DataType': 'String', 'StringValue': value} for name, value in attributes.items()})
    # end


def place_with_values(id, customer):
    """With each type of attribute."""
    sqs.send_message(QueueUrl=url('billing'), MessageBody=order(id, customer), MessageAttributes={
        'MessageTypeFullName': {'DataType': 'String', 'StringValue': 'order.placed'},
        'number': {'DataType': 'Number', 'StringValue': '12.50'},
        'text': {'DataType': 'Binary', 'BinaryValue': 'Zoë'.encode()},
        'bytes': {'DataType': 'Binary', 'BinaryValue': b'\x00\xff'}})


def receive(queue):
    """Prints the next message of Reprise."""
    # snippet: receive
    messages = []
    while not messages:
        messages = sqs.receive_message(
            QueueUrl=url(queue), WaitTimeSeconds=20, MessageAttributeNames=['All']).get('Messages', [])
    message = messages[0]
    attributes = message.get('MessageAttributes', {})
    if RAW in attributes:  # a copy of another program's message, whose body and attributes stay
        headers, body = json.loads(attributes[RAW]['StringValue']), message['Body'].encode()
    else:
        wrapped = json.loads(message['Body'])
        headers, body = wrapped['Headers'], base64.b64decode(wrapped['Body'])
    # end
    show(headers, body, attributes)
    return message, headers


def request(id, customer):
    """Asks with the shop's own queue."""
    place(id, customer, **{'NServiceBus.ReplyToAddress': 'shop', 'NServiceBus.CorrelationId': 'question-' + id})
    take('shop')


def take(queue):
    message, _ = receive(queue)
    sqs.delete_message(QueueUrl=url(queue), ReceiptHandle=message['ReceiptHandle'])


def return_failed():
    """Returns one message of the error queue, unchanged."""
    message, headers = receive('error')
    # snippet: return
    sqs.send_message(QueueUrl=url(headers['NServiceBus.FailedQ']), MessageBody=message['Body'],
                     MessageAttributes=message.get('MessageAttributes', {}))
    sqs.delete_message(QueueUrl=url('error'), ReceiptHandle=message['ReceiptHandle'])
    # end


def subscribe():
    """Subscribes the queue mailing to the events of billing."""
    # snippet: subscribe
    sns = boto3.client('sns')
    topic = sns.create_topic(Name='invoice-written')['TopicArn']
    queue = sqs.get_queue_attributes(QueueUrl=url('mailing'), AttributeNames=['QueueArn'])['Attributes']['QueueArn']
    sns.subscribe(TopicArn=topic, Protocol='sqs', Endpoint=queue, Attributes={'RawMessageDelivery': 'true'})
    # end


sqs = boto3.client('sqs')
globals()[sys.argv[1]](*sys.argv[2:])
