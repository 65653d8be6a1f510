ALTER TABLE tidegate.handovers DROP COLUMN unroutable;

-- As the second migration has it.
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
-- Edited a moment ago: its time is computed from now instead.
ALTER TABLE tidegate.cron_tasks DROP COLUMN kept_fire_at;

-- As the third has it.
CREATE OR REPLACE FUNCTION tidegate.locked_task(id text) RETURNS SETOF tidegate.tasks
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT t.* FROM tidegate.tasks AS t WHERE t.task_id = id FOR UPDATE;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
        MESSAGE = format('task %s is being handed to the broker, or changed by somebody else', id),
        HINT = 'nothing was changed; try again';
END $$;

DROP TRIGGER task_id_reserved ON tidegate.tasks;
DROP FUNCTION tidegate.task_id_reserved();
