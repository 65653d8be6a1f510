-- The ledger: cron rows that teams insert, the record of every occurrence, and tasks that wait for their time.
--
-- Conventions: states are text with a CHECK (readable from any client, extended by a new CHECK); every instant is a
-- timestamptz between 1970 and 9999 (no 'infinity', which few clients can read); the database's clock decides.

-- The runner creates the schema first, to keep its own bookkeeping (tidegate.schema_migrations) in it.
CREATE SCHEMA IF NOT EXISTS tidegate;

-- An instant that every client can represent.
CREATE DOMAIN tidegate.instant AS timestamptz
    CHECK (VALUE >= '1970-01-01T00:00:00Z'::timestamptz AND VALUE < '9999-12-31T00:00:00Z'::timestamptz);

-- One row per cron job. `INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload) VALUES (…)` is
-- enough to register one: the scheduler computes next_fire_at and wakes by NOTIFY.
--
-- payload is a template in jsonb, which rewrites what it stores: key order, duplicate keys, white space, and the
-- notation of numbers (1e2 becomes 100; digits are never lost). It is spliced as text into the envelope of each task.
CREATE TABLE tidegate.cron_tasks (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name              text NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 255),
    task_type         text NOT NULL,
    cron_expression   text NOT NULL,
    time_zone         text NOT NULL DEFAULT 'UTC',
    -- NULL and what is no object are accepted here and flagged in last_error, as any other broken definition.
    payload           jsonb DEFAULT '{}',
    payload_version   integer NOT NULL DEFAULT 1 CHECK (payload_version >= 1),
    exchange          text CHECK (octet_length(exchange) BETWEEN 1 AND 255),
    routing_key       text CHECK (octet_length(routing_key) BETWEEN 1 AND 255),
    enabled           boolean NOT NULL DEFAULT true,
    misfire_policy    text NOT NULL DEFAULT 'fire_once' CHECK (misfire_policy IN ('fire_once', 'skip', 'catch_up')),
    catch_up_limit    integer NOT NULL DEFAULT 100 CHECK (catch_up_limit BETWEEN 1 AND 1000),
    overlap_policy    text NOT NULL DEFAULT 'allow' CHECK (overlap_policy IN ('allow', 'skip')),
    -- Occurrences lie in [starts_at, ends_at).
    starts_at         tidegate.instant,
    ends_at           tidegate.instant,
    max_retries       integer CHECK (max_retries BETWEEN 0 AND 100),
    timeout_ms        integer CHECK (timeout_ms BETWEEN 1 AND 86400000),
    priority          smallint NOT NULL DEFAULT 100 CHECK (priority BETWEEN 0 AND 255),
    owner             text,

    -- Kept by the scheduler. next_fire_at NULL means "compute from now".
    last_triggered_at tidegate.instant,
    next_fire_at      tidegate.instant,
    -- No occurrence is left before ends_at.
    exhausted         boolean NOT NULL DEFAULT false,
    version           bigint NOT NULL DEFAULT 0,
    -- Why the row can't be scheduled. It is left alone until its definition changes.
    last_error        text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    CHECK (starts_at < ends_at)
);

CREATE INDEX cron_tasks_due ON tidegate.cron_tasks (next_fire_at) WHERE enabled AND next_fire_at IS NOT NULL;
CREATE INDEX cron_tasks_uninitialised ON tidegate.cron_tasks (id)
    WHERE enabled AND next_fire_at IS NULL AND last_error IS NULL AND NOT exhausted;
CREATE INDEX cron_tasks_in_error ON tidegate.cron_tasks (id) WHERE last_error IS NOT NULL;

-- Whoever changes when a row fires, by whatever client, gets the next time computed from now: it never fires at
-- once and never keeps the old time. A change of what it sends gives a flagged row another chance and keeps its time.
CREATE FUNCTION tidegate.cron_tasks_edited() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    IF (NEW.cron_expression, NEW.time_zone, NEW.enabled, NEW.starts_at, NEW.ends_at)
        IS DISTINCT FROM (OLD.cron_expression, OLD.time_zone, OLD.enabled, OLD.starts_at, OLD.ends_at)
    THEN
        NEW.next_fire_at := NULL;
    ELSIF (NEW.name, NEW.task_type, NEW.payload, NEW.payload_version, NEW.exchange, NEW.routing_key,
           NEW.max_retries, NEW.timeout_ms, NEW.priority, NEW.misfire_policy, NEW.catch_up_limit, NEW.overlap_policy)
        IS NOT DISTINCT FROM
          (OLD.name, OLD.task_type, OLD.payload, OLD.payload_version, OLD.exchange, OLD.routing_key,
           OLD.max_retries, OLD.timeout_ms, OLD.priority, OLD.misfire_policy, OLD.catch_up_limit, OLD.overlap_policy)
    THEN
        RETURN NEW; -- The scheduler's own bookkeeping.
    END IF;
    NEW.last_error := NULL;
    NEW.exhausted := false;
    NEW.version := OLD.version + 1;
    NEW.updated_at := now();
    RETURN NEW;
END $$;

CREATE TRIGGER cron_tasks_edited BEFORE UPDATE ON tidegate.cron_tasks
    FOR EACH ROW EXECUTE FUNCTION tidegate.cron_tasks_edited();

CREATE FUNCTION tidegate.cron_tasks_wake() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    -- One text per transaction: Postgres drops repeated ones.
    PERFORM pg_notify('tidegate_cron', '');
    RETURN NULL;
END $$;

CREATE TRIGGER cron_tasks_wake_insert AFTER INSERT ON tidegate.cron_tasks
    FOR EACH ROW WHEN (NEW.enabled) EXECUTE FUNCTION tidegate.cron_tasks_wake();
-- Not for the scheduler's own updates, which move next_fire_at forward: schedulers would wake each other for ever.
CREATE TRIGGER cron_tasks_wake_update AFTER UPDATE ON tidegate.cron_tasks
    FOR EACH ROW WHEN (NEW.enabled AND NEW.last_error IS NULL AND NOT NEW.exhausted
        AND (NEW.next_fire_at IS NULL OR NEW.next_fire_at < OLD.next_fire_at))
    EXECUTE FUNCTION tidegate.cron_tasks_wake();

-- Every occurrence of a cron row ends in exactly one row here. The history goes with its cron row.
CREATE TABLE tidegate.cron_fires (
    cron_task_id bigint NOT NULL REFERENCES tidegate.cron_tasks ON DELETE CASCADE,
    fire_at      tidegate.instant NOT NULL,
    outcome      text NOT NULL CHECK (outcome IN ('FIRED', 'CAUGHT_UP', 'SKIPPED_MISFIRE', 'SKIPPED_OVERLAP')),
    task_id      text COLLATE "C",
    recorded_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (cron_task_id, fire_at),
    CHECK ((task_id IS NOT NULL) = (outcome IN ('FIRED', 'CAUGHT_UP')))
);

-- Outbox and life cycle of what came by cron, SQL or HTTP.
CREATE TABLE tidegate.tasks (
    task_id          text COLLATE "C" PRIMARY KEY CHECK (task_id ~ '^[A-Za-z0-9._:-]{1,128}$'),
    task_type        text NOT NULL CHECK (octet_length(task_type) BETWEEN 1 AND 128),
    -- NULL: the platform's exchange, and the task type as routing key.
    exchange         text CHECK (octet_length(exchange) BETWEEN 1 AND 255),
    routing_key      text CHECK (octet_length(routing_key) BETWEEN 1 AND 255),
    -- The bytes that are sent. Text, because jsonb would rewrite what the producer wrote.
    envelope         text NOT NULL CHECK (octet_length(envelope) BETWEEN 2 AND 65536),
    priority         smallint NOT NULL DEFAULT 100 CHECK (priority BETWEEN 0 AND 255),
    producer         text,
    trace_id         text,
    origin           text NOT NULL DEFAULT 'sql' CHECK (origin IN ('http', 'sql', 'cron', 'replay')),
    -- The planned time, never moved; next_try_at is set when handing over failed.
    due_at           tidegate.instant NOT NULL DEFAULT now(),
    next_try_at      tidegate.instant,
    state            text NOT NULL DEFAULT 'PENDING'
        CHECK (state IN ('PENDING', 'PUBLISHED', 'RUNNING', 'SUCCESS', 'RETRYING', 'FAILED', 'CANCELED')),
    -- Failed hand-overs to the broker; attempts counts runs by a worker.
    publish_attempts integer NOT NULL DEFAULT 0,
    attempts         integer NOT NULL DEFAULT 0,
    last_error       text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    published_at     timestamptz,
    started_at       timestamptz,
    finished_at      timestamptz
)
-- Room on the page for the later versions of a row. Updates that leave `state` alone stay in place (HOT).
-- Rows come and go fast: the planner and the indexes need fresher statistics than the defaults give.
WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02,
      autovacuum_vacuum_insert_scale_factor = 0.1);

-- What the relay reads: as small as what waits, whatever the size of the history.
CREATE INDEX tasks_pending ON tidegate.tasks ((coalesce(next_try_at, due_at))) WHERE state = 'PENDING';

CREATE FUNCTION tidegate.tasks_wake() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    earliest timestamptz;
BEGIN
    SELECT min(coalesce(next_try_at, due_at)) INTO earliest FROM inserted WHERE state = 'PENDING';
    -- What is due later is found by the relay's regular scan: no need to wake anyone for it now.
    IF earliest < now() + interval '30 seconds' THEN
        PERFORM pg_notify('tidegate_tasks', (extract(epoch FROM earliest) * 1000000)::bigint::text);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER tasks_wake AFTER INSERT ON tidegate.tasks
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION tidegate.tasks_wake();
