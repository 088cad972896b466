"""The shop on PostgreSQL with psycopg: python3 postgresql.py URL STEP [ARGUMENT...]"""
import json
import sys
import time

import psycopg


def show(headers, body):
    """Prints a message as one line of JSON."""
    print(json.dumps({'headers': json.loads(headers), 'body': body.decode()}), flush=True)


def order(id, customer):
    return json.dumps({'id': int(id), 'customer': customer}).encode()


def place(connection, id, customer, **further):
    # snippet: send
    headers = {'NServiceBus.EnclosedMessageTypes': 'order.placed', 'NServiceBus.ContentType': 'application/json', **further}
    with connection.transaction():
        connection.execute('create table if not exists orders (id int, customer text)')
        connection.execute('insert into orders values (%s, %s)', (id, customer))
        connection.execute('insert into billing (headers, body) values (%s, %s)',
                           (json.dumps(headers), order(id, customer)))  # strings, and bytes
    # end


def place_in_vain(connection, id, customer):
    """The transaction fails, and nothing is sent."""
    try:
        with connection.transaction():
            place(connection, id, customer)
            raise KeyError('the shop fails')
    except KeyError:
        pass


def place_with_values(connection, id, customer):
    """With values of headers that are no strings."""
    place(connection, id, customer, number=7, yes=True, nothing=None, list=[1, 'two'], table={'a': 1})


def receive(connection, queue):
    # snippet: receive
    with connection.transaction():
        row = connection.execute(f'''delete from {queue} where seq = (
            select seq from {queue} where due <= now() order by due, seq for update skip locked limit 1)
            returning headers, body''').fetchone()
        if row:
            show(*row)  # in the transaction: if it fails, the message stays
    # end
    return row


def take(connection, queue):
    while not receive(connection, queue):
        time.sleep(0.1)  # NOTIFY wakes Reprise's receivers; others poll


def request(connection, id, customer):
    """Asks with the shop's own queue."""
    place(connection, id, customer, **{
        'NServiceBus.ReplyToAddress': '"public"."shop"', 'NServiceBus.CorrelationId': 'question-' + id})
    take(connection, 'shop')


def subscribe(connection):
    # snippet: subscribe
    connection.execute('''insert into "SubscriptionRouting" (topic, endpoint, queueaddress)
        values ('invoice.written', 'shop', '"public"."shop"')''')
    # end


def return_failed(connection):
    """Returns the messages of the error queue to billing, with all their headers."""
    # snippet: return
    rows = connection.execute('''with failed as (
            delete from error where headers::json ->> 'NServiceBus.FailedQ' = '"public"."billing"'
            returning headers, body, seq)
        insert into billing (headers, body) select headers, body from failed order by seq
        returning headers, body''')
    # end
    for row in rows:
        show(*row)


with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    globals()[sys.argv[2]](connection, *sys.argv[3:])
