#!/usr/bin/env python3
"""A push-notice consumer in plain Python: pika and nothing else.

It shows the whole contract of a consumer that is no worker of Tidegate's:

  * done            -> basic_ack
  * try again       -> basic_nack(requeue=False): the platform retries it with back-off, up to the limit, and then
                       dead-letters it. Never requeue=True, which would deliver it again at once, for ever.
  * cannot be read  -> the same nack: the platform sees for itself that the envelope is invalid and dead-letters it.

The attempt number is in the header x-task-attempt. One JSON object per line on stdout tells what happened.

Needs AMQP_URL, e.g. amqp://user:password@localhost:5672/%2f, and the module pika (Debian: python3-pika).
"""

import json
import os
import signal
import sys
import time
from datetime import datetime, timezone

import pika
from pika.exceptions import AMQPError

QUEUE = "notify.push.queue"

# The demonstration's gateways: how often each refuses before it takes a notice.
REFUSALS = {"app": 0, "sms": 2}
refused = {}


def tell(**event):
    print(json.dumps(event), flush=True)


def now():
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def push(task):
    """Sends the notice; False if the gateway wants us to come back later."""
    gateway = task["payload"].get("gateway", "app")
    tries = refused.get(task["taskId"], 0)
    if tries < REFUSALS[gateway]:
        refused[task["taskId"]] = tries + 1
        return False
    return True


def on_message(channel, method, properties, body):
    started = now()
    attempt = int((properties.headers or {}).get("x-task-attempt", 1))
    try:
        task = json.loads(body)
        key, ended = task["taskId"], "done" if push(task) else "failed"
    except (ValueError, KeyError, TypeError, AttributeError):
        key, ended = body.decode("utf-8", "replace"), "failed"
    # Told before it is settled: what is printed has happened even if the acknowledgement gets lost.
    tell(event="run", key=key, attempt=attempt, started=started, ended=ended)
    if ended == "done":
        channel.basic_ack(method.delivery_tag)
    else:
        channel.basic_nack(method.delivery_tag, requeue=False)


def consume(url):
    parameters = pika.URLParameters(url)
    parameters.client_properties = {"connection_name": "push notices (python)"}
    connection = pika.BlockingConnection(parameters)
    try:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        channel.basic_consume(QUEUE, on_message, auto_ack=False)
        tell(event="ready")
        channel.start_consuming()
    finally:
        if connection.is_open:
            connection.close()


def main():
    url = os.environ.get("AMQP_URL")
    if not url:
        sys.exit("AMQP_URL is not set; it looks like amqp://user:password@localhost:5672/%2f")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        try:
            consume(url)
        except KeyboardInterrupt:
            return
        except (AMQPError, OSError) as error:
            # What was not acknowledged is delivered again; the queue keeps everything meanwhile.
            tell(event="lost", why=f"{type(error).__name__}: {error}")
        # Also reached when the broker cancels the consumer.
        time.sleep(1)


if __name__ == "__main__":
    main()
