#!/usr/bin/env python3
"""A consumer that is no worker of Tidegate's and follows a migration as docs/migrations.md asks, in either of pika's ways.

follower.py callback|generator QUEUE. Needs AMQP_URL and pika. A line on stdout for each thing that happens.
"""

import os
import sys

import pika
from pika.exceptions import ChannelClosedByBroker

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
NOT_FOUND = 404


def tell(*words):
    print(*words, flush=True)


def take(channel, method, body):
    # Told before it is acknowledged: what the broker believes to be taken has been told.
    tell("took", body.decode())
    channel.basic_ack(method.delivery_tag)


def by_callback(channel, queue):
    channel.add_on_cancel_callback(lambda frame: tell("cancelled"))
    channel.basic_consume(queue, lambda channel, method, properties, body: take(channel, method, body))
    tell("subscribed")
    # Ends when no consumer is left on the channel.
    channel.start_consuming()


def by_generator(channel, queue):
    told = False
    # With a timeout it also yields nothing, again and again: by then it has subscribed.
    for method, _, body in channel.consume(queue, inactivity_timeout=0.1):
        if not told:
            tell("subscribed")
            told = True
        if method is not None:
            take(channel, method, body)
    # Ends when the broker cancels.
    tell("cancelled")


def main():
    way = {"callback": by_callback, "generator": by_generator}[sys.argv[1]]
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    pause = FIRST_PAUSE
    while True:
        # A new channel, and with it a new consumer tag, each time.
        channel = connection.channel()
        channel.basic_qos(prefetch_count=20)
        try:
            way(channel, sys.argv[2])
            channel.close()
            pause = FIRST_PAUSE
        except ChannelClosedByBroker as error:
            if error.reply_code != NOT_FOUND:
                raise
            tell("not there")
            connection.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


if __name__ == "__main__":
    main()
