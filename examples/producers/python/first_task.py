#!/usr/bin/env python3
"""First task, in Python: publish one task for now and one for later, and know that both are safe."""

import json
import os
import sys
import uuid

import pika


def publish(channel, exchange, task, headers=None):
    """Returns once the task is on a durable queue; raises UnroutableError or NackError if it isn't."""
    channel.basic_publish(
        exchange,
        task["taskType"],  # routing key
        json.dumps(task, ensure_ascii=False).encode(),
        pika.BasicProperties(
            content_type="application/json",
            delivery_mode=2,
            message_id=task["taskId"],
            type=task["taskType"],
            headers=headers,
        ),
        mandatory=True,
    )
    print(f"{task['taskId']} is safe on {exchange}")


def task(name):
    # Ids, amounts and times are strings, so that no language changes them.
    return {
        "taskId": f"python-{uuid.uuid4()}-{name}",
        "taskType": "order.close.timeout",
        "payload": {"orderId": "1001", "amount": "89.90"},
        "producer": "first-task-python",
    }


def main():
    url = os.environ.get("AMQP_URL")
    if not url:
        sys.exit("AMQP_URL is not set; it looks like amqp://user:password@localhost:5672/%2f")
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    # For now: task.exchange, and the task type as routing key.
    publish(channel, "task.exchange", task("now"))
    # For later: task.ingress, and the header x-delay in milliseconds.
    publish(channel, "task.ingress", task("later"), {"x-delay": 5_000})
    connection.close()


if __name__ == "__main__":
    main()
