-- The shop's own table. Its orders and their tasks are made in one transaction.
CREATE TABLE orders (id text PRIMARY KEY, close_task_id text NOT NULL);
