DROP TRIGGER tasks_moved ON tidegate.tasks;
DROP FUNCTION tidegate.task_moved();
DROP INDEX tidegate.tasks_settled;
DROP INDEX tidegate.tasks_idempotency;
DROP INDEX tidegate.tasks_pending;
ALTER TABLE tidegate.tasks DROP COLUMN ready_at, DROP COLUMN idempotency_key, DROP COLUMN cancel_requested_at, DROP COLUMN queue;
CREATE INDEX tasks_pending ON tidegate.tasks ((coalesce(next_try_at, due_at))) WHERE state = 'PENDING';

CREATE OR REPLACE FUNCTION tidegate.tasks_wake() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    earliest timestamptz;
BEGIN
    SELECT min(coalesce(next_try_at, due_at)) INTO earliest FROM inserted WHERE state = 'PENDING';
    IF earliest < now() + interval '30 seconds' THEN
        PERFORM pg_notify('tidegate_tasks', (extract(epoch FROM earliest) * 1000000)::bigint::text);
    END IF;
    RETURN NULL;
END $$;

-- The older program knows neither runs by hand nor rows that stand for many occurrences.
DROP INDEX tidegate.cron_fires_recorded;
ALTER TABLE tidegate.cron_fires RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor);
DELETE FROM tidegate.cron_fires WHERE outcome = 'MANUAL';
DROP TRIGGER cron_tasks_truncated ON tidegate.cron_tasks;
DROP FUNCTION tidegate.cron_tasks_truncated();
DROP TRIGGER cron_tasks_deleted ON tidegate.cron_tasks;
DROP FUNCTION tidegate.cron_tasks_deleted();
DELETE FROM tidegate.cron_fires f WHERE NOT EXISTS (SELECT FROM tidegate.cron_tasks c WHERE c.id = f.cron_task_id);
ALTER TABLE tidegate.cron_fires
    ADD CONSTRAINT cron_fires_cron_task_id_fkey FOREIGN KEY (cron_task_id) REFERENCES tidegate.cron_tasks ON DELETE CASCADE;
ALTER TABLE tidegate.cron_fires
    DROP CONSTRAINT cron_fires_outcome_check, DROP CONSTRAINT cron_fires_task_check, DROP CONSTRAINT cron_fires_span_check,
    DROP COLUMN last_at, DROP COLUMN occurrences,
    ADD CONSTRAINT cron_fires_outcome_check CHECK (outcome IN ('FIRED', 'CAUGHT_UP', 'SKIPPED_MISFIRE', 'SKIPPED_OVERLAP')),
    ADD CONSTRAINT cron_fires_check CHECK ((task_id IS NOT NULL) = (outcome IN ('FIRED', 'CAUGHT_UP')));

CREATE OR REPLACE FUNCTION tidegate.cron_tasks_edited() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
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
        RETURN NEW;
    END IF;
    NEW.last_error := NULL;
    NEW.exhausted := false;
    NEW.version := OLD.version + 1;
    NEW.updated_at := now();
    RETURN NEW;
END $$;

DROP TRIGGER cron_tasks_edited ON tidegate.cron_tasks;
CREATE TRIGGER cron_tasks_edited BEFORE UPDATE ON tidegate.cron_tasks
    FOR EACH ROW EXECUTE FUNCTION tidegate.cron_tasks_edited();

DROP INDEX tidegate.cron_tasks_due;
DROP INDEX tidegate.cron_tasks_uninitialised;
DROP INDEX tidegate.cron_tasks_in_error;
ALTER TABLE tidegate.cron_tasks
    RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor),
    DROP COLUMN jitter_ms, DROP COLUMN accounted_until, DROP COLUMN last_task_id;
CREATE INDEX cron_tasks_due ON tidegate.cron_tasks (next_fire_at) WHERE enabled AND next_fire_at IS NOT NULL;
CREATE INDEX cron_tasks_uninitialised ON tidegate.cron_tasks (id)
    WHERE enabled AND next_fire_at IS NULL AND last_error IS NULL AND NOT exhausted;
CREATE INDEX cron_tasks_in_error ON tidegate.cron_tasks (id) WHERE last_error IS NOT NULL;
