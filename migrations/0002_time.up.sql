-- Time and the ledger, second part: jitter and exact accounts for cron rows, and tasks that can be enqueued by SQL,
-- moved, cancelled and followed to their end.
--
-- Rewrites tidegate.tasks (a stored column is added) under an exclusive lock: seconds per million rows.

-- ---------------------------------------------------------------------------------------------------- cron rows

ALTER TABLE tidegate.cron_tasks
    -- Each occurrence is sent up to this much later, by an offset that follows from name and instant.
    ADD COLUMN jitter_ms integer NOT NULL DEFAULT 0 CHECK (jitter_ms BETWEEN 0 AND 86400000),
    -- The last occurrence that cron_fires accounts for: nothing at or before it fires again, whatever the clock or
    -- an edit says. Kept by the scheduler.
    ADD COLUMN accounted_until tidegate.instant,
    -- The task sent last, which `overlap_policy = 'skip'` asks after. Kept by the scheduler.
    ADD COLUMN last_task_id text COLLATE "C",
    -- Every fire leaves a dead version of its row and of the entry in front of the index that the scheduler reads.
    SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

UPDATE tidegate.cron_tasks c SET
    accounted_until = (SELECT max(f.fire_at) FROM tidegate.cron_fires f WHERE f.cron_task_id = c.id),
    last_task_id = (SELECT f.task_id FROM tidegate.cron_fires f WHERE f.cron_task_id = c.id AND f.task_id IS NOT NULL
                    ORDER BY f.fire_at DESC LIMIT 1);

-- Schedulers work through the sixteen shards of what is due in different orders, so that several of them share a
-- backlog instead of racing for the same rows.
DROP INDEX tidegate.cron_tasks_due;
CREATE INDEX cron_tasks_due ON tidegate.cron_tasks ((id & 15), next_fire_at) WHERE enabled AND next_fire_at IS NOT NULL;
DROP INDEX tidegate.cron_tasks_uninitialised;
CREATE INDEX cron_tasks_uninitialised ON tidegate.cron_tasks ((id & 15), id)
    WHERE enabled AND next_fire_at IS NULL AND last_error IS NULL AND NOT exhausted;
-- Counted now and then: by the index alone.
DROP INDEX tidegate.cron_tasks_in_error;
CREATE INDEX cron_tasks_in_error ON tidegate.cron_tasks (id) WHERE enabled AND last_error IS NOT NULL;

-- Whoever changes a row, by whatever client, makes what a scheduler decided about the earlier version void; see the
-- first migration for what an edit does to next_fire_at.
CREATE OR REPLACE FUNCTION tidegate.cron_tasks_edited() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    NEW.version := OLD.version + 1;
    IF (NEW.cron_expression, NEW.time_zone, NEW.enabled, NEW.starts_at, NEW.ends_at)
        IS DISTINCT FROM (OLD.cron_expression, OLD.time_zone, OLD.enabled, OLD.starts_at, OLD.ends_at)
    THEN
        NEW.next_fire_at := NULL;
    ELSIF (NEW.name, NEW.task_type, NEW.payload, NEW.payload_version, NEW.exchange, NEW.routing_key, NEW.max_retries,
           NEW.timeout_ms, NEW.priority, NEW.misfire_policy, NEW.catch_up_limit, NEW.overlap_policy, NEW.jitter_ms)
        IS NOT DISTINCT FROM
          (OLD.name, OLD.task_type, OLD.payload, OLD.payload_version, OLD.exchange, OLD.routing_key, OLD.max_retries,
           OLD.timeout_ms, OLD.priority, OLD.misfire_policy, OLD.catch_up_limit, OLD.overlap_policy, OLD.jitter_ms)
    THEN
        RETURN NEW; -- Bookkeeping by hand, such as another next_fire_at.
    END IF;
    NEW.last_error := NULL;
    NEW.exhausted := false;
    NEW.updated_at := now();
    RETURN NEW;
END $$;

-- Not for the scheduler's own updates, which count the version up and leave the definition alone: the condition
-- costs less than the call.
DROP TRIGGER cron_tasks_edited ON tidegate.cron_tasks;
CREATE TRIGGER cron_tasks_edited BEFORE UPDATE ON tidegate.cron_tasks FOR EACH ROW
    WHEN (NEW.version = OLD.version OR
          (NEW.cron_expression, NEW.time_zone, NEW.enabled, NEW.starts_at, NEW.ends_at, NEW.name, NEW.task_type,
           NEW.payload, NEW.payload_version, NEW.exchange, NEW.routing_key, NEW.max_retries, NEW.timeout_ms,
           NEW.priority, NEW.misfire_policy, NEW.catch_up_limit, NEW.overlap_policy, NEW.jitter_ms)
        IS DISTINCT FROM
          (OLD.cron_expression, OLD.time_zone, OLD.enabled, OLD.starts_at, OLD.ends_at, OLD.name, OLD.task_type,
           OLD.payload, OLD.payload_version, OLD.exchange, OLD.routing_key, OLD.max_retries, OLD.timeout_ms,
           OLD.priority, OLD.misfire_policy, OLD.catch_up_limit, OLD.overlap_policy, OLD.jitter_ms))
    EXECUTE FUNCTION tidegate.cron_tasks_edited();

-- ---------------------------------------------------------------------------------------------------- cron_fires

-- A row stands for one occurrence, or for a run of consecutive ones that were skipped: a month's outage of a schedule
-- of every five seconds is one row. MANUAL is no occurrence but a run that somebody asked for, at that instant.
ALTER TABLE tidegate.cron_fires
    ADD COLUMN last_at tidegate.instant,
    ADD COLUMN occurrences bigint NOT NULL DEFAULT 1 CHECK (occurrences >= 1),
    DROP CONSTRAINT cron_fires_outcome_check,
    DROP CONSTRAINT cron_fires_check,
    ADD CONSTRAINT cron_fires_outcome_check CHECK (outcome IN ('FIRED', 'CAUGHT_UP', 'SKIPPED_MISFIRE', 'SKIPPED_OVERLAP', 'MANUAL')),
    ADD CONSTRAINT cron_fires_task_check CHECK ((task_id IS NOT NULL) = (outcome IN ('FIRED', 'CAUGHT_UP', 'MANUAL'))),
    -- last_at is NULL where the row stands for one.
    ADD CONSTRAINT cron_fires_span_check CHECK ((last_at IS NULL) = (occurrences = 1) AND (last_at IS NULL OR (last_at > fire_at AND task_id IS NULL)));
-- A foreign key would look each occurrence's row up again, for 40 % of the time of a claim that has just written that
-- row. What it did is left: the history goes with its cron row.
ALTER TABLE tidegate.cron_fires DROP CONSTRAINT cron_fires_cron_task_id_fkey;

-- Whoever may delete a row need not have rights on its history.
CREATE FUNCTION tidegate.cron_tasks_deleted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    DELETE FROM tidegate.cron_fires f USING deleted d WHERE f.cron_task_id = d.id;
    RETURN NULL;
END $$;
CREATE TRIGGER cron_tasks_deleted AFTER DELETE ON tidegate.cron_tasks
    REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION tidegate.cron_tasks_deleted();

CREATE FUNCTION tidegate.cron_tasks_truncated() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    TRUNCATE tidegate.cron_fires;
    RETURN NULL;
END $$;
CREATE TRIGGER cron_tasks_truncated AFTER TRUNCATE ON tidegate.cron_tasks
    FOR EACH STATEMENT EXECUTE FUNCTION tidegate.cron_tasks_truncated();

-- Rows come and go fast, as in tasks.
ALTER TABLE tidegate.cron_fires
    SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
-- For its pruning by age.
CREATE INDEX cron_fires_recorded ON tidegate.cron_fires USING brin (recorded_at);

-- --------------------------------------------------------------------------------------------------------- tasks

ALTER TABLE tidegate.tasks
    -- When the relay may hand it over; NULL once it is out of the ledger's hands. The relay's index holds nothing
    -- else, and `state` is in no index: PUBLISHED -> RUNNING -> RETRYING are updates in place (HOT).
    ADD COLUMN ready_at timestamptz GENERATED ALWAYS AS
        (CASE WHEN state = 'PENDING' THEN coalesce(next_try_at::timestamptz, due_at::timestamptz) END) STORED,
    -- Unique per type as long as the row is kept. A cancelled task gives its key back (NULL).
    ADD COLUMN idempotency_key text CHECK (octet_length(idempotency_key) BETWEEN 1 AND 256),
    -- Somebody asked to cancel it when it could no longer be stopped with certainty.
    ADD COLUMN cancel_requested_at timestamptz,
    -- The queue whose worker claimed it first. A key may reach several queues; the life cycle follows this one.
    ADD COLUMN queue text CHECK (octet_length(queue) BETWEEN 1 AND 255);

DROP INDEX tidegate.tasks_pending;
CREATE INDEX tasks_pending ON tidegate.tasks (ready_at) WHERE ready_at IS NOT NULL;
CREATE UNIQUE INDEX tasks_idempotency ON tidegate.tasks (task_type, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- What pruning by age reads: rows that ended, by their end, and those handed over of whose end nobody told.
CREATE INDEX tasks_settled ON tidegate.tasks ((coalesce(finished_at, published_at))) WHERE ready_at IS NULL;

CREATE OR REPLACE FUNCTION tidegate.tasks_wake() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    earliest timestamptz;
BEGIN
    SELECT min(ready_at) INTO earliest FROM inserted;
    -- What is due later is found by the relay's regular scan: no need to wake anyone for it now.
    IF earliest < now() + interval '30 seconds' THEN
        PERFORM pg_notify('tidegate_tasks', (extract(epoch FROM earliest) * 1000000)::bigint::text);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION tidegate.task_moved() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    IF NEW.ready_at < now() + interval '30 seconds' THEN
        PERFORM pg_notify('tidegate_tasks', (extract(epoch FROM NEW.ready_at) * 1000000)::bigint::text);
    END IF;
    RETURN NULL;
END $$;

-- Whoever makes a task due earlier, by whatever client, wakes the relay. Not for the relay's own updates.
CREATE TRIGGER tasks_moved AFTER UPDATE OF due_at, next_try_at, state ON tidegate.tasks FOR EACH ROW
    WHEN (NEW.ready_at < OLD.ready_at OR (OLD.ready_at IS NULL AND NEW.ready_at IS NOT NULL))
    EXECUTE FUNCTION tidegate.task_moved();
