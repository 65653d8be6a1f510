-- The shop's own tables. Tidegate knows nothing of them: a handler brings its own database.
CREATE SCHEMA shop;

CREATE TABLE shop.orders (
    id      text PRIMARY KEY,
    user_id text NOT NULL,
    amount  numeric(12, 2) NOT NULL,
    status  text NOT NULL DEFAULT 'UNPAID' CHECK (status IN ('UNPAID', 'PAID', 'CLOSED'))
);

-- Booking the same task twice breaks the constraint, and the handler takes that for success.
CREATE TABLE shop.points (
    user_id     text NOT NULL,
    task_id     text NOT NULL,
    points_type text NOT NULL,
    points      integer NOT NULL,
    UNIQUE (user_id, task_id, points_type)
);

CREATE TABLE shop.members (
    user_id        text PRIMARY KEY,
    last_seen      timestamptz NOT NULL,
    account_closed boolean NOT NULL DEFAULT false
);

CREATE TABLE shop.recalls (
    user_id     text PRIMARY KEY REFERENCES shop.members,
    recalled_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE shop.reports (
    day    date PRIMARY KEY,
    orders bigint NOT NULL
);

INSERT INTO shop.members (user_id, last_seen, account_closed) VALUES
    ('10002345', now(), false),
    ('10002346', now() - interval '45 days', false),
    ('10002347', now() - interval '90 days', false),
    ('10009999', now(), true);

INSERT INTO shop.orders (id, user_id, amount) VALUES
    ('1001', '10002345', 59.00),
    ('1002', '10002345', 89.90),
    ('1003', '10002345', 120.00),
    -- The orders of the sample envelopes.
    ('202504021200010001', '10002345', 89.90),
    ('202509110001', '10002345', 15.50);
