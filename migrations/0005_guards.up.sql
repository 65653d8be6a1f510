-- Guards: of cron's tasks against producers, of an edited schedule against an error that shows only when it is due, and
-- of a task that the broker has against being written down wrongly.

-- ------------------------------------------------------------------------------------------------ cron's tasks

-- The id of a cron task follows from its row's name and its instant, so anybody could take it in advance.
CREATE FUNCTION tidegate.task_id_reserved() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', COLUMN = 'task_id',
        MESSAGE = format('tidegate.enqueue: task_id %s begins with "cron:", as those of cron rows do', left(NEW.task_id, 200)),
        HINT = 'give another id, or leave it out to have one made';
END $$;
CREATE TRIGGER task_id_reserved BEFORE INSERT ON tidegate.tasks FOR EACH ROW
    WHEN (NEW.origin = 'sql' AND starts_with(NEW.task_id, 'cron:')) EXECUTE FUNCTION tidegate.task_id_reserved();

-- The task, locked for a change by the calling function, which sets lock_timeout. No row where there is none. Whoever may
-- only enqueue and cancel may not change cron's tasks, whose ids can be guessed.
CREATE OR REPLACE FUNCTION tidegate.locked_task(id text) RETURNS SETOF tidegate.tasks
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Who asks: the functions that call this run as their owner, which leaves these two as they were.
    asking name := coalesce(nullif(current_setting('role'), 'none')::name, session_user);
BEGIN
    IF NOT has_table_privilege(asking, 'tidegate.tasks', 'UPDATE')
        AND EXISTS (SELECT FROM tidegate.tasks AS t WHERE t.task_id = id AND t.origin = 'cron') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('task %s comes from a cron row; role %I may not change it', id, asking),
            HINT = 'pause the cron row, or ask somebody with the right to UPDATE tidegate.tasks';
    END IF;
    RETURN QUERY SELECT t.* FROM tidegate.tasks AS t WHERE t.task_id = id FOR UPDATE;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
        MESSAGE = format('task %s is being handed to the broker, or changed by somebody else', id),
        HINT = 'nothing was changed; try again';
END $$;

-- --------------------------------------------------------------------------------------------------- cron rows

ALTER TABLE tidegate.cron_tasks
    -- The time that an edited row had: it has it again once its new definition was checked. Kept by the edit and the
    -- scheduler.
    ADD COLUMN kept_fire_at timestamptz;

-- Every edit of a definition has the row looked at anew within one scan, so that an error shows then and not at the next
-- occurrence. One that changes when it fires computes its time from now; any other keeps it. A row that is overdue stays
-- so: it is looked at as it fires.
CREATE OR REPLACE FUNCTION tidegate.cron_tasks_edited() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    NEW.version := OLD.version + 1;
    IF (NEW.cron_expression, NEW.time_zone, NEW.enabled, NEW.starts_at, NEW.ends_at)
        IS DISTINCT FROM (OLD.cron_expression, OLD.time_zone, OLD.enabled, OLD.starts_at, OLD.ends_at)
    THEN
        NEW.next_fire_at := NULL;
        NEW.kept_fire_at := NULL;
    ELSIF (NEW.name, NEW.task_type, NEW.payload, NEW.payload_version, NEW.exchange, NEW.routing_key, NEW.max_retries,
           NEW.timeout_ms, NEW.priority, NEW.misfire_policy, NEW.catch_up_limit, NEW.overlap_policy, NEW.jitter_ms)
        IS NOT DISTINCT FROM
          (OLD.name, OLD.task_type, OLD.payload, OLD.payload_version, OLD.exchange, OLD.routing_key, OLD.max_retries,
           OLD.timeout_ms, OLD.priority, OLD.misfire_policy, OLD.catch_up_limit, OLD.overlap_policy, OLD.jitter_ms)
    THEN
        RETURN NEW; -- Bookkeeping by hand, such as another next_fire_at.
    ELSIF NEW.next_fire_at > clock_timestamp() THEN
        NEW.kept_fire_at := NEW.next_fire_at;
        NEW.next_fire_at := NULL;
    END IF;
    NEW.last_error := NULL;
    NEW.exhausted := false;
    NEW.updated_at := now();
    RETURN NEW;
END $$;

-- --------------------------------------------------------------------------------------------------- hand-overs

ALTER TABLE tidegate.handovers
    -- Those that came back because no queue takes them, while their rows could not be written.
    ADD COLUMN unroutable text[] NOT NULL DEFAULT '{}';

REVOKE ALL ON FUNCTION tidegate.task_id_reserved() FROM PUBLIC;
