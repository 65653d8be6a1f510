// Place an order and the task that closes it, in one transaction: node-postgres.
'use strict';

const { Client } = require('pg');

async function placeOrder(client, orderId) {
  await client.query('BEGIN');
  try {
    const { rows } = await client.query(
      "SELECT tidegate.enqueue('order.close.timeout', $1, due_at => now() + interval '1 second') AS task_id",
      [JSON.stringify({ orderId, amount: '89.90' })],
    );
    await client.query('INSERT INTO orders (id, close_task_id) VALUES ($1, $2)', [orderId, rows[0].task_id]);
    await client.query('COMMIT');
    return rows[0].task_id;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

async function main() {
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  try {
    console.log(await placeOrder(client, process.argv[2]));
  } finally {
    await client.end();
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
