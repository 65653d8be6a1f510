-- Tasks by SQL: enqueue in the caller's own transaction, cancel, promote, reschedule; and what makes the answer of
-- cancel certain.
--
-- Errors: 22023 (invalid_parameter_value) for an argument that will never be accepted, with its name as COLUMN and
-- what to write as HINT; 23505 (unique_violation) for a key or an id that stands for another task; 40001 and 55P03
-- (serialization_failure, lock_not_available) for what may succeed when tried again.

-- What a relay has begun to hand over, written down before the first byte goes to the broker and deleted with the
-- commit that says what became of it. A row that stays tells of a relay that died in between: its tasks are PENDING,
-- yet the broker may have them.
CREATE TABLE tidegate.handovers (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_ids   text[] NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
-- One row comes and goes with each batch.
WITH (autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

ALTER TABLE tidegate.tasks
    -- A hand-over ended without an answer from the broker, which may have it or not. It is handed over again.
    ADD COLUMN maybe_sent boolean NOT NULL DEFAULT false;

-- ------------------------------------------------------------------------------------------------------- checks

-- A UUIDv7: ids of one moment lie together in the index.
CREATE FUNCTION tidegate.new_task_id() RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    -- gen_random_uuid() gives version 4; the two bits make it 7.
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
        52, 1), 53, 1), 'hex')::uuid::text
$$;

-- Whether a double holds a JSON number as it is written: at most 2^53, at most 17 significant digits, not rounded to 0.
CREATE FUNCTION tidegate.fits_double(number text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    digits   text;
    exponent text;
BEGIN
    IF length(number) <= 15 AND number !~ '[eE]' THEN
        RETURN true;
    END IF;
    digits := trim(BOTH '0' FROM regexp_replace(split_part(lower(number), 'e', 1), '[^0-9]', '', 'g'));
    exponent := ltrim(split_part(lower(number), 'e', 2), '+-0');
    IF digits = '' THEN
        RETURN true;
    ELSIF length(digits) > 17 OR length(exponent) > 3 THEN
        RETURN false;
    END IF;
    RETURN abs(number::numeric) <= 9007199254740992 AND abs(number::numeric) > 2.4703282292062328e-324;
END $$;

-- Why a payload breaks the wire format, by JSON pointer; NULL if it doesn't. Raises what the JSON types of Postgres
-- refuse: NUL and lone surrogates among it.
CREATE FUNCTION tidegate.payload_problem(payload json) RETURNS text
-- The planner takes the walk for work that is worth compiling, which would cost a hundred times the walk.
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    problem text;
BEGIN
    IF json_typeof(payload) <> 'object' THEN
        RETURN format('must be a JSON object, not %s', json_typeof(payload));
    END IF;
    -- jsonb drops what stands twice. With as many keys as before, no escapes that could hide one, few brackets and only
    -- short numbers, nothing can be wrong: a fifth of the work of the walk, which finds the place.
    IF regexp_count(payload::text, '"\s*:') = regexp_count(payload::text::jsonb::text, '"\s*:')
        AND payload::text !~ '[0-9.]{16}|[0-9][eE]|\\u'
        AND length(translate(payload::text, '{[', '')) >= length(payload::text) - 5 THEN
        RETURN NULL;
    END IF;
    WITH RECURSIVE node AS (
        SELECT ''::text AS place, payload AS value, json_typeof(payload) AS kind, 1 AS level
        UNION ALL
        SELECT node.place || '/' || child.step, child.value, json_typeof(child.value), node.level + 1
        FROM node CROSS JOIN LATERAL (
            SELECT replace(replace(member.key, '~', '~0'), '/', '~1') AS step, member.value
            FROM json_each(CASE node.kind WHEN 'object' THEN node.value END) AS member
            UNION ALL
            SELECT (item.at - 1)::text, item.value
            FROM json_array_elements(CASE node.kind WHEN 'array' THEN node.value END) WITH ORDINALITY AS item (value, at)
        ) AS child
        WHERE node.level <= 5 AND node.kind IN ('object', 'array')
    )
    SELECT coalesce(
        (SELECT format('at %s: is nested deeper than 5 levels', left(place, 200))
         FROM node WHERE level > 5 AND kind IN ('object', 'array') LIMIT 1),
        (SELECT format('at %s: the key stands twice in its object', left(place, 200))
         FROM node GROUP BY place, level HAVING count(*) > 1 ORDER BY level LIMIT 1),
        (SELECT format('at %s: the number is one that a double rounds; send it as a string', left(place, 200))
         FROM node WHERE kind = 'number' AND NOT tidegate.fits_double(value #>> '{}') LIMIT 1)
    ) INTO problem;
    RETURN problem;
END $$;

-- ------------------------------------------------------------------------------------------------------ enqueue

-- Makes a task in the caller's transaction: it exists if and only if that commits, and is handed over as soon as it
-- is due after that. Returns its id. The payload's text reaches the worker byte for byte.
--
-- The same idempotency_key for the same task_type again gives the id of the task that is there; with another payload
-- it is an error. So is a task_id that stands for another task.
CREATE FUNCTION tidegate.enqueue(
    task_type       text,
    payload         text,
    due_at          timestamptz DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    routing_key     text DEFAULT NULL,
    exchange        text DEFAULT NULL,
    payload_version bigint DEFAULT NULL,
    max_retries     bigint DEFAULT NULL,
    timeout_ms      bigint DEFAULT NULL,
    priority        bigint DEFAULT NULL,
    producer        text DEFAULT NULL,
    trace_id        text DEFAULT NULL,
    task_id         text DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    -- Argument, what is wrong with it, what to write.
    problem  text[];
    why      text;
    id       text := coalesce(enqueue.task_id, tidegate.new_task_id());
    due      timestamptz := coalesce(enqueue.due_at, clock_timestamp());
    envelope text;
    there    tidegate.tasks;
BEGIN
    problem := CASE
        WHEN enqueue.task_type IS NULL OR octet_length(enqueue.task_type) > 128
            OR enqueue.task_type COLLATE "C" !~ '^[a-z][a-z0-9_-]*([.][a-z][a-z0-9_-]*){1,5}$' THEN
            ARRAY['task_type', 'is not a task type',
                  '2 to 6 words of a-z 0-9 _ -, each starting with a letter, joined by dots, at most 128 bytes: order.close.timeout']
        WHEN enqueue.payload IS NULL THEN
            ARRAY['payload', 'is NULL', 'give a JSON object, if only {}']
        WHEN octet_length(enqueue.payload) > 65536 THEN
            ARRAY['payload', format('has %s bytes; a whole task has at most 65536', octet_length(enqueue.payload)),
                  'store the data elsewhere and send a reference to it']
        WHEN id COLLATE "C" !~ '^[A-Za-z0-9._:-]{1,128}$' THEN
            ARRAY['task_id', 'is not a task id', '1 to 128 of A-Z a-z 0-9 . _ : -; leave it out to have one made']
        -- In hours: days have 23 or 25 of them where the session's time zone changes its clocks.
        WHEN due > clock_timestamp() + interval '2160 hours' THEN
            ARRAY['due_at', 'is more than 90 days ahead', 'give an earlier time, or make a row in tidegate.cron_tasks']
        WHEN due < '1970-01-01T00:00:00Z'::timestamptz THEN
            ARRAY['due_at', 'is before 1970', 'leave it out for now']
        WHEN octet_length(enqueue.idempotency_key) NOT BETWEEN 1 AND 256 THEN
            ARRAY['idempotency_key', 'is empty or over 256 bytes', '1 to 256 bytes; leave it out for no key']
        WHEN octet_length(enqueue.routing_key) NOT BETWEEN 1 AND 255 THEN
            ARRAY['routing_key', 'is empty or over 255 bytes', '1 to 255 bytes; leave it out for the task type']
        WHEN octet_length(enqueue.exchange) NOT BETWEEN 1 AND 255 THEN
            ARRAY['exchange', 'is empty or over 255 bytes', '1 to 255 bytes; leave it out for the platform''s']
        WHEN enqueue.payload_version NOT BETWEEN 1 AND 2147483647 THEN
            ARRAY['payload_version', 'is out of range', 'an integer from 1 to 2147483647; leave it out for 1']
        WHEN enqueue.max_retries NOT BETWEEN 0 AND 100 THEN
            ARRAY['max_retries', 'is out of range', 'an integer from 0 to 100; leave it out for the policy of the queue']
        WHEN enqueue.timeout_ms NOT BETWEEN 1 AND 86400000 THEN
            ARRAY['timeout_ms', 'is out of range', 'milliseconds from 1 to 86400000; leave it out for the worker''s default']
        WHEN enqueue.priority NOT BETWEEN 0 AND 255 THEN
            ARRAY['priority', 'is out of range', 'an integer from 0 to 255; leave it out for 100']
        WHEN octet_length(enqueue.producer) > 255 THEN
            ARRAY['producer', 'is over 255 bytes', 'the name of a service']
        WHEN octet_length(enqueue.trace_id) > 255 THEN
            ARRAY['trace_id', 'is over 255 bytes', 'the id of a trace, or a traceparent']
    END;
    IF problem IS NULL THEN
        BEGIN
            why := tidegate.payload_problem(enqueue.payload::json);
        EXCEPTION WHEN data_exception OR statement_too_complex THEN
            GET STACKED DIAGNOSTICS why = PG_EXCEPTION_DETAIL;
            why := 'is not JSON that can be carried: ' || coalesce(nullif(why, ''), SQLERRM);
        END;
        IF why IS NOT NULL THEN
            problem := ARRAY['payload', why, 'give one JSON object: at most 5 levels, no key twice, numbers that a double holds'];
        END IF;
    END IF;
    IF problem IS NULL THEN
        -- concat() leaves out what is NULL. The payload comes last, where it is found again as text.
        envelope := concat(
            '{"taskId":', to_json(id), ',"taskType":', to_json(enqueue.task_type),
            ',"payloadVersion":' || enqueue.payload_version,
            ',"scheduleTime":' || to_json(to_char(enqueue.due_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
            ',"timeoutMs":' || enqueue.timeout_ms,
            ',"maxRetries":' || enqueue.max_retries,
            ',"priority":' || enqueue.priority,
            ',"idempotencyKey":' || to_json(enqueue.idempotency_key),
            ',"producer":' || to_json(enqueue.producer),
            ',"traceId":' || to_json(enqueue.trace_id),
            ',"payload":', enqueue.payload, '}');
        IF octet_length(envelope) > 65536 THEN
            problem := ARRAY['payload', format('makes a task of %s bytes; it has at most 65536', octet_length(envelope)),
                             'store the data elsewhere and send a reference to it'];
        END IF;
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', COLUMN = problem[1],
            MESSAGE = format('tidegate.enqueue: %s %s', problem[1], problem[2]), HINT = problem[3];
    END IF;

    FOR try IN 1..5 LOOP
        -- Waits for a transaction that is about to insert the same key or id: if it is rolled back, ours is the task.
        INSERT INTO tidegate.tasks (task_id, task_type, exchange, routing_key, envelope, priority, producer, trace_id,
                                    origin, due_at, idempotency_key)
        VALUES (id, enqueue.task_type, enqueue.exchange, enqueue.routing_key, envelope, coalesce(enqueue.priority, 100),
                enqueue.producer, enqueue.trace_id, 'sql', due, enqueue.idempotency_key)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN id;
        END IF;
        SELECT t.* INTO there FROM tidegate.tasks AS t
            WHERE t.task_type = enqueue.task_type AND t.idempotency_key = enqueue.idempotency_key;
        IF NOT FOUND THEN
            SELECT t.* INTO there FROM tidegate.tasks AS t WHERE t.task_id = id;
        END IF;
        -- Neither: it was cancelled or pruned a moment ago, and the key is free.
        CONTINUE WHEN NOT FOUND;
        IF there.state = 'CANCELED' THEN
            RAISE EXCEPTION USING ERRCODE = 'unique_violation', COLUMN = 'task_id',
                MESSAGE = format('tidegate.enqueue: task %s was canceled and will not run', there.task_id),
                HINT = 'leave task_id out, or give another one';
        -- As text, as nearly always; else as JSON, since maps of some languages have no order.
        ELSIF there.task_type <> enqueue.task_type
            OR (right(there.envelope, length(enqueue.payload) + 12) <> concat(',"payload":', enqueue.payload, '}')
                AND (there.envelope::json -> 'payload')::text::jsonb IS DISTINCT FROM enqueue.payload::jsonb) THEN
            RAISE EXCEPTION USING ERRCODE = 'unique_violation',
                COLUMN = CASE WHEN there.idempotency_key = enqueue.idempotency_key THEN 'idempotency_key' ELSE 'task_id' END,
                MESSAGE = format('tidegate.enqueue: this key or id stands for task %s, which has another type or payload', there.task_id),
                HINT = 'give each thing that is to be done a key or an id of its own';
        END IF;
        RETURN there.task_id;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
        MESSAGE = 'tidegate.enqueue: others take and free this key at the same time', HINT = 'try again';
END $$;

CREATE FUNCTION tidegate.enqueue(
    task_type text, payload json, due_at timestamptz DEFAULT NULL, idempotency_key text DEFAULT NULL,
    routing_key text DEFAULT NULL, exchange text DEFAULT NULL, payload_version bigint DEFAULT NULL,
    max_retries bigint DEFAULT NULL, timeout_ms bigint DEFAULT NULL, priority bigint DEFAULT NULL,
    producer text DEFAULT NULL, trace_id text DEFAULT NULL, task_id text DEFAULT NULL
) RETURNS text LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT tidegate.enqueue(task_type, payload::text, due_at, idempotency_key, routing_key, exchange, payload_version,
                            max_retries, timeout_ms, priority, producer, trace_id, task_id)
$$;

-- jsonb rewrites what it is given (key order, white space, notation of numbers): what it makes of it is the payload.
CREATE FUNCTION tidegate.enqueue(
    task_type text, payload jsonb, due_at timestamptz DEFAULT NULL, idempotency_key text DEFAULT NULL,
    routing_key text DEFAULT NULL, exchange text DEFAULT NULL, payload_version bigint DEFAULT NULL,
    max_retries bigint DEFAULT NULL, timeout_ms bigint DEFAULT NULL, priority bigint DEFAULT NULL,
    producer text DEFAULT NULL, trace_id text DEFAULT NULL, task_id text DEFAULT NULL
) RETURNS text LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT tidegate.enqueue(task_type, payload::text, due_at, idempotency_key, routing_key, exchange, payload_version,
                            max_retries, timeout_ms, priority, producer, trace_id, task_id)
$$;

-- ------------------------------------------------------------------------------- cancel, promote, reschedule

-- The task, locked for a change by the calling function, which sets lock_timeout. No row where there is none.
CREATE FUNCTION tidegate.locked_task(id text) RETURNS SETOF tidegate.tasks
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT t.* FROM tidegate.tasks AS t WHERE t.task_id = id FOR UPDATE;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
        MESSAGE = format('task %s is being handed to the broker, or changed by somebody else', id),
        HINT = 'nothing was changed; try again';
END $$;

-- Whether the broker may have a PENDING task that is locked by the caller.
CREATE FUNCTION tidegate.may_be_sent(task tidegate.tasks) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN task.maybe_sent
        -- A new look, after the lock: what the relay wrote down before it sent is seen by now...
        OR EXISTS (SELECT FROM tidegate.handovers AS h WHERE task.task_id = ANY (h.task_ids))
        -- ... unless this transaction sees the tables as they were at its beginning.
        OR (current_setting('transaction_isolation') <> 'read committed' AND task.ready_at <= clock_timestamp());
END $$;

-- Cancels a task; the answer says what that means:
--   canceled            it had not been handed over: it will never run, anywhere
--   canceled_in_flight  the broker has it, or may have it: a worker with the ledger will not start it, others may
--   cancel_requested    it runs: its handler is told, and decides
--   already_canceled, already_ended, not_found   nothing was changed
CREATE FUNCTION tidegate.cancel(task_id text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    task   tidegate.tasks;
    answer text;
BEGIN
    SELECT * INTO task FROM tidegate.locked_task(cancel.task_id);
    IF NOT FOUND THEN
        RETURN 'not_found';
    END IF;
    answer := CASE task.state
        WHEN 'PENDING' THEN CASE WHEN tidegate.may_be_sent(task) THEN 'canceled_in_flight' ELSE 'canceled' END
        WHEN 'PUBLISHED' THEN 'canceled_in_flight'
        WHEN 'RETRYING' THEN 'canceled_in_flight'
        WHEN 'RUNNING' THEN 'cancel_requested'
        WHEN 'CANCELED' THEN 'already_canceled'
        ELSE 'already_ended'
    END;
    IF answer IN ('canceled', 'canceled_in_flight') THEN
        UPDATE tidegate.tasks AS t SET state = 'CANCELED', finished_at = clock_timestamp(), next_try_at = NULL,
                cancel_requested_at = coalesce(t.cancel_requested_at, clock_timestamp()), idempotency_key = NULL
            WHERE t.task_id = cancel.task_id;
    ELSIF answer = 'cancel_requested' THEN
        UPDATE tidegate.tasks AS t SET cancel_requested_at = clock_timestamp()
            WHERE t.task_id = cancel.task_id AND t.cancel_requested_at IS NULL;
    END IF;
    RETURN answer;
END $$;

-- Makes a PENDING task due now, whatever it waits for, and takes back one that was set aside (FAILED before it was
-- ever sent). Answers promoted; or already_published, already_canceled, already_ended, not_found: nothing was changed.
CREATE FUNCTION tidegate.promote(task_id text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    task tidegate.tasks;
BEGIN
    SELECT * INTO task FROM tidegate.locked_task(promote.task_id);
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF task.state = 'PENDING' OR (task.state = 'FAILED' AND task.published_at IS NULL AND task.attempts = 0) THEN
        UPDATE tidegate.tasks AS t SET state = 'PENDING', due_at = least(t.due_at, clock_timestamp()), next_try_at = NULL,
                finished_at = NULL, publish_attempts = 0
            WHERE t.task_id = promote.task_id;
        RETURN 'promoted';
    END IF;
    RETURN CASE task.state WHEN 'CANCELED' THEN 'already_canceled' WHEN 'SUCCESS' THEN 'already_ended'
        WHEN 'FAILED' THEN 'already_ended' ELSE 'already_published' END;
END $$;

-- Moves a PENDING task to another time. Answers rescheduled; or as promote: already_published also for one of which the
-- broker may have a copy.
CREATE FUNCTION tidegate.reschedule(task_id text, due_at timestamptz) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    task tidegate.tasks;
BEGIN
    IF reschedule.due_at IS NULL OR reschedule.due_at < '1970-01-01T00:00:00Z'::timestamptz
        OR reschedule.due_at > clock_timestamp() + interval '2160 hours' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', COLUMN = 'due_at',
            MESSAGE = 'tidegate.reschedule: due_at is NULL, before 1970 or more than 90 days ahead',
            HINT = 'give a time within the next 90 days; a time that has passed is now';
    END IF;
    SELECT * INTO task FROM tidegate.locked_task(reschedule.task_id);
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF task.state = 'PENDING' AND NOT tidegate.may_be_sent(task) THEN
        UPDATE tidegate.tasks AS t SET due_at = reschedule.due_at, next_try_at = NULL WHERE t.task_id = reschedule.task_id;
        RETURN 'rescheduled';
    END IF;
    RETURN CASE task.state WHEN 'CANCELED' THEN 'already_canceled' WHEN 'SUCCESS' THEN 'already_ended'
        WHEN 'FAILED' THEN 'already_ended' ELSE 'already_published' END;
END $$;

-- ------------------------------------------------------------------------------------------------------- rights

-- Lets a role enqueue and cancel, and nothing else: no table is opened to it.
CREATE FUNCTION tidegate.allow_producer(role name) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    callable regprocedure;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA tidegate TO %I', role);
    FOR callable IN SELECT p.oid FROM pg_proc AS p
        WHERE p.pronamespace = 'tidegate'::regnamespace AND p.proname IN ('enqueue', 'cancel')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', callable, role);
    END LOOP;
END $$;

-- Postgres lets everybody execute a new function.
DO $$
DECLARE
    callable regprocedure;
BEGIN
    FOR callable IN SELECT p.oid FROM pg_proc AS p WHERE p.pronamespace = 'tidegate'::regnamespace
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', callable);
    END LOOP;
END $$;
