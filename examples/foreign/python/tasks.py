"""The shop on RabbitMQ with Celery: python3 -m celery -A tasks worker, or python3 tasks.py ID CUSTOMER"""
import json
import os
import sys

from celery import Celery
from kombu import Queue

app = Celery('tasks', broker=os.environ['AMQP_URL'], backend=os.environ.get('RESULTS'))


# snippet: worker
@app.task(name='shop.send_mail', bind=True)
def send_mail(self, customer, order):
    print(json.dumps({'id': self.request.id, 'customer': customer, 'order': order}), file=sys.__stdout__, flush=True)
    # end
    return 'sent'


def place(id, customer):
    # snippet: send
    billing = Queue('billing', exchange='', routing_key='billing', no_declare=True)
    app.send_task('shop.place_order', kwargs={'id': id, 'customer': customer}, queue=billing)
    # end


if __name__ == '__main__':
    place(int(sys.argv[1]), sys.argv[2])
