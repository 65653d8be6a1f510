#!/usr/bin/env python3
"""Place an order and the task that closes it, in one transaction: psycopg 3."""

import json
import os
import sys

import psycopg


def place_order(connection, order_id):
    # Both or neither: the block commits at its end and rolls back on an exception.
    with connection.transaction():
        (task_id,) = connection.execute(
            "SELECT tidegate.enqueue('order.close.timeout', %s, due_at => now() + interval '1 second')",
            [json.dumps({"orderId": order_id, "amount": "89.90"})],
        ).fetchone()
        connection.execute("INSERT INTO orders (id, close_task_id) VALUES (%s, %s)", [order_id, task_id])
    return task_id


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        print(place_order(connection, sys.argv[1]))
