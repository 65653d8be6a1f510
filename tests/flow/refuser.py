#!/usr/bin/env python3
"""A client in another language: publishes tasks with no headers, consumes a queue and refuses whatever comes.

refuser.py QUEUE KEY nack|reject BODY... Needs AMQP_URL and pika. A line on stdout for each delivery: the time in ms since 1970,
and the body.
"""

import os
import sys
import time

import pika


def main():
    queue, key, way, bodies = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    channel = connection.channel()
    channel.confirm_delivery()

    def refuse(channel, method, properties, body):
        print(time.time_ns() // 1_000_000, body.decode(), flush=True)
        if way == "nack":
            channel.basic_nack(method.delivery_tag, requeue=False)
        else:
            channel.basic_reject(method.delivery_tag, requeue=False)

    channel.basic_qos(prefetch_count=10)
    channel.basic_consume(queue, refuse)
    for body in bodies:
        channel.basic_publish("task.exchange", key, body.encode(), mandatory=True)
    channel.start_consuming()


if __name__ == "__main__":
    main()
