-- Dead letters: what failed for good, as it was sent, and what people do about it.
--
-- Two tables, a partition of each for each day (UTC) in which messages came into the archive; the archivist makes them, retention
-- drops them. What is counted is kept beside them, so that no count reads the tables.

CREATE TABLE tidegate.dead_letters (
    -- The day it was archived, by the database's clock: a message that waited in task.dead.queue for a month is kept as long
    -- as one that died today.
    day             date NOT NULL,
    -- Follows from the id that the message brought and from its content, so that a second delivery of the same message is no
    -- second row.
    id              uuid NOT NULL,
    archived_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- As whoever dead-lettered it says, never later than archived_at.
    died_at         timestamptz NOT NULL,
    first_failed_at timestamptz,
    -- What the body says, where it says it; headers otherwise.
    task_id         text COLLATE "C" CHECK (octet_length(task_id) <= 128),
    task_type       text COLLATE "C" CHECK (octet_length(task_type) <= 128),
    -- The queue that failed; of what no queue took, the one where that showed.
    queue           text COLLATE "C" NOT NULL CHECK (octet_length(queue) <= 255),
    -- As first published.
    routing_key     text COLLATE "C" CHECK (octet_length(routing_key) <= 255),
    reason          text COLLATE "C" NOT NULL CHECK (octet_length(reason) BETWEEN 1 AND 64),
    error_kind      text NOT NULL,
    error           text NOT NULL CHECK (octet_length(error) <= 16384),
    attempts        integer NOT NULL CHECK (attempts >= 0),
    fingerprint     bytea NOT NULL CHECK (octet_length(fingerprint) = 16),
    -- Its repair.
    state           text COLLATE "C" NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'REPLAYING', 'REPLAYED', 'DISCARDED')),
    -- The run that has claimed or sent it.
    replay_id       uuid CHECK ((replay_id IS NOT NULL) = (state IN ('REPLAYING', 'REPLAYED'))),
    replayed_at     timestamptz,
    -- The task id that its replay goes out with: set before it does, since it may die again before its confirm is here.
    sent_task_id    text COLLATE "C",
    -- The run whose edit did not fit it; that run doesn't try again.
    refused_by      uuid,
    -- The row of audit_log that says who discarded it, and why.
    discarded_in    bigint CHECK ((discarded_in IS NOT NULL) = (state = 'DISCARDED')),

    -- The dead letter whose replay died here, and the run that sent it.
    parent_id       uuid,
    sent_by         uuid,
    -- Which death of its task this is.
    deaths          integer NOT NULL DEFAULT 1 CHECK (deaths >= 1),

    -- In this order it also finds an id without its day.
    PRIMARY KEY (id, day)
) PARTITION BY RANGE (day);

-- What was sent. Apart from what is known of it, which every step of a repair writes anew; this is never written again: an edit
-- goes into what a replay sends.
CREATE TABLE tidegate.dead_letter_messages (
    day        date NOT NULL,
    id         uuid NOT NULL,
    body       bytea NOT NULL,
    -- All properties and headers, types kept: JSON text in ASCII, with NUL and bytes that are no text in base64. No jsonb, which
    -- refuses NUL and rewrites numbers.
    properties text NOT NULL,
    PRIMARY KEY (id, day)
) PARTITION BY RANGE (day);

-- The first pages of a list; the order of every walk.
CREATE INDEX dead_letters_archived ON tidegate.dead_letters (archived_at, id);
CREATE INDEX dead_letters_alike ON tidegate.dead_letters (fingerprint, archived_at, id);
CREATE INDEX dead_letters_of_type ON tidegate.dead_letters (task_type, archived_at, id);
CREATE INDEX dead_letters_of_task ON tidegate.dead_letters (task_id) WHERE task_id IS NOT NULL;
-- What a replay takes: all that is OPEN. No index has `state` itself, so that a run which writes down what became of its claims
-- changes nothing that is indexed, and Postgres needs no new entries for it (HOT).
CREATE INDEX dead_letters_open ON tidegate.dead_letters (archived_at, id) WHERE replay_id IS NULL AND discarded_in IS NULL;
-- What a run has claimed, and what it has sent.
CREATE INDEX dead_letters_of_run ON tidegate.dead_letters (replay_id, id) WHERE replay_id IS NOT NULL;
-- What a run's messages came to.
CREATE INDEX dead_letters_sent_by ON tidegate.dead_letters (sent_by) WHERE sent_by IS NOT NULL;

-- The next death of a task that was replayed.
CREATE INDEX dead_letters_of_parent ON tidegate.dead_letters (parent_id) WHERE parent_id IS NOT NULL;

-- How many of a kind from a queue on a day, and in which state: what groups, totals and digests read. Kept by triggers, in the
-- transaction of what is counted.
CREATE TABLE tidegate.dead_letter_counts (
    day           date NOT NULL,
    fingerprint   bytea NOT NULL,
    -- Two subscribers of a task may fail alike; whoever answers for one of them asks by its queue.
    queue         text COLLATE "C" NOT NULL,
    -- The same for all of one fingerprint.
    task_type     text COLLATE "C",
    reason        text COLLATE "C" NOT NULL,
    error_kind    text NOT NULL,
    open          bigint NOT NULL DEFAULT 0,
    replaying     bigint NOT NULL DEFAULT 0,
    replayed      bigint NOT NULL DEFAULT 0,
    discarded     bigint NOT NULL DEFAULT 0,
    first_died_at timestamptz NOT NULL,
    last_died_at  timestamptz NOT NULL,
    -- The latest one, as a sample.
    sample_id     uuid NOT NULL,
    PRIMARY KEY (day, fingerprint, queue)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Rows of one statement are counted in the order of the key, so that two statements wait for each other in one direction only.
CREATE FUNCTION tidegate.dead_letters_counted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO tidegate.dead_letter_counts AS c
        (day, fingerprint, queue, task_type, reason, error_kind, open, replaying, replayed, discarded, first_died_at, last_died_at, sample_id)
    SELECT day, fingerprint, queue, min(task_type), min(reason), min(error_kind),
        count(*) FILTER (WHERE state = 'OPEN'), count(*) FILTER (WHERE state = 'REPLAYING'),
        count(*) FILTER (WHERE state = 'REPLAYED'), count(*) FILTER (WHERE state = 'DISCARDED'),
        min(died_at), max(died_at), (array_agg(id ORDER BY died_at DESC))[1]
    FROM arrived GROUP BY day, fingerprint, queue ORDER BY day, fingerprint, queue
    ON CONFLICT (day, fingerprint, queue) DO UPDATE SET
        open = c.open + excluded.open, replaying = c.replaying + excluded.replaying,
        replayed = c.replayed + excluded.replayed, discarded = c.discarded + excluded.discarded,
        first_died_at = least(c.first_died_at, excluded.first_died_at),
        sample_id = CASE WHEN excluded.last_died_at >= c.last_died_at THEN excluded.sample_id ELSE c.sample_id END,
        last_died_at = greatest(c.last_died_at, excluded.last_died_at);
    RETURN NULL;
END $$;
CREATE TRIGGER dead_letters_counted AFTER INSERT ON tidegate.dead_letters
    REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION tidegate.dead_letters_counted();

CREATE FUNCTION tidegate.dead_letters_recounted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    PERFORM FROM tidegate.dead_letter_counts c
        WHERE (c.day, c.fingerprint, c.queue) IN (SELECT n.day, n.fingerprint, n.queue FROM changed n)
        ORDER BY c.day, c.fingerprint, c.queue FOR UPDATE;
    UPDATE tidegate.dead_letter_counts c SET
        open = c.open + d.open, replaying = c.replaying + d.replaying,
        replayed = c.replayed + d.replayed, discarded = c.discarded + d.discarded
    FROM (
        SELECT day, fingerprint, queue,
            sum(n) FILTER (WHERE state = 'OPEN') AS open, sum(n) FILTER (WHERE state = 'REPLAYING') AS replaying,
            sum(n) FILTER (WHERE state = 'REPLAYED') AS replayed, sum(n) FILTER (WHERE state = 'DISCARDED') AS discarded
        FROM (
            SELECT day, fingerprint, queue, state, 1 AS n FROM changed
            UNION ALL SELECT day, fingerprint, queue, state, -1 FROM unchanged
            UNION ALL SELECT DISTINCT c.day, c.fingerprint, c.queue, s.state, 0 FROM changed c,
                (VALUES ('OPEN'), ('REPLAYING'), ('REPLAYED'), ('DISCARDED')) AS s (state)
        ) AS each GROUP BY day, fingerprint, queue
    ) AS d WHERE c.day = d.day AND c.fingerprint = d.fingerprint AND c.queue = d.queue;
    RETURN NULL;
END $$;
CREATE TRIGGER dead_letters_recounted AFTER UPDATE ON tidegate.dead_letters
    REFERENCING OLD TABLE AS unchanged NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION tidegate.dead_letters_recounted();

-- What somebody deletes by hand is not counted any more, and its message goes too.
CREATE FUNCTION tidegate.dead_letters_uncounted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    UPDATE tidegate.dead_letter_counts c SET
        open = c.open - d.open, replaying = c.replaying - d.replaying,
        replayed = c.replayed - d.replayed, discarded = c.discarded - d.discarded
    FROM (
        SELECT day, fingerprint, queue,
            count(*) FILTER (WHERE state = 'OPEN') AS open, count(*) FILTER (WHERE state = 'REPLAYING') AS replaying,
            count(*) FILTER (WHERE state = 'REPLAYED') AS replayed, count(*) FILTER (WHERE state = 'DISCARDED') AS discarded
        FROM gone GROUP BY day, fingerprint, queue
    ) AS d WHERE c.day = d.day AND c.fingerprint = d.fingerprint AND c.queue = d.queue;
    DELETE FROM tidegate.dead_letter_messages m USING gone WHERE m.day = gone.day AND m.id = gone.id;
    RETURN NULL;
END $$;
CREATE TRIGGER dead_letters_uncounted AFTER DELETE ON tidegate.dead_letters
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION tidegate.dead_letters_uncounted();

-- ----------------------------------------------------------------------------------------------------- days

-- The partitions of dead_letters, or of another table like it: the days in each, from the first to the one after the last.
CREATE FUNCTION tidegate.dead_letters_days(of regclass DEFAULT 'tidegate.dead_letters')
RETURNS TABLE (partition regclass, since date, until date)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid::regclass, (b.bound)[1]::date, (b.bound)[2]::date
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
        LATERAL regexp_match(pg_get_expr(c.relpartbound, c.oid), $re$FROM \('([-0-9]+)'\) TO \('([-0-9]+)'\)$re$) AS b (bound)
    WHERE i.inhparent = of AND b.bound IS NOT NULL AND NOT i.inhdetachpending
$$;

-- Makes the partitions of a day unless they are there; whether one had to be made. Made apart and attached, they wait for nobody
-- who reads or writes, as CREATE TABLE … PARTITION OF would. Only days near today: who may call it may not fill the catalogue.
CREATE FUNCTION tidegate.dead_letters_make_day(of date) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    parents CONSTANT regclass[] := ARRAY['tidegate.dead_letters', 'tidegate.dead_letter_messages'];
    -- Half of a page of dead_letters stays free for what its rows become when a run settles them, which then costs no index
    -- entries. Messages are written once.
    fill CONSTANT integer[] := ARRAY[50, 100];
    name text;
    made boolean := false;
BEGIN
    IF (SELECT count(*) FROM unnest(parents) AS p, tidegate.dead_letters_days(p) d WHERE of >= d.since AND of < d.until) = 2 THEN
        RETURN false;
    END IF;
    IF abs(of - (clock_timestamp() AT TIME ZONE 'UTC')::date) > 7 THEN
        RAISE EXCEPTION 'no partition is made for %, more than a week from today', of USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(8388346167592843635);
    FOR n IN 1 .. 2 LOOP
        CONTINUE WHEN EXISTS (SELECT FROM tidegate.dead_letters_days(parents[n]) d WHERE of >= d.since AND of < d.until);
        name := (ARRAY['dead_letters_', 'dead_letter_messages_'])[n] || to_char(of, 'YYYYMMDD');
        EXECUTE format('CREATE TABLE tidegate.%I (LIKE %s INCLUDING ALL) WITH (fillfactor = %s)', name, parents[n], fill[n]);
        EXECUTE format('ALTER TABLE %s ATTACH PARTITION tidegate.%I FOR VALUES FROM (%L) TO (%L)', parents[n], name, of, of + 1);
        made := true;
    END LOOP;
    RETURN made;
END $$;

-- Drops the oldest partition that has nothing younger than so many seconds, with its counts; a row says what went, none that
-- there is nothing to drop. What a replay has claimed stays until that run is over. It waits for the table 0.2 s, since
-- everybody else waits behind it, and fails then with 55P03: to be tried again.
CREATE FUNCTION tidegate.dead_letters_drop_day(keep double precision)
RETURNS TABLE (since date, until date, letters bigint, open bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    day_kept date := ((clock_timestamp() - make_interval(secs => keep)) AT TIME ZONE 'UTC')::date;
    oldest regclass;
    messages regclass;
BEGIN
    -- One at a time, the others have nothing to do.
    IF NOT pg_try_advisory_xact_lock(8388346167593955184) THEN
        RETURN;
    END IF;
    SELECT d.partition, d.since, d.until INTO oldest, since, until FROM tidegate.dead_letters_days() d
    WHERE d.until <= day_kept AND NOT EXISTS (
        SELECT FROM tidegate.dead_letter_counts c WHERE c.day >= d.since AND c.day < d.until AND c.replaying > 0)
    ORDER BY d.since LIMIT 1;
    IF oldest IS NULL THEN
        RETURN;
    END IF;
    LOCK TABLE ONLY tidegate.dead_letters, ONLY tidegate.dead_letter_messages IN ACCESS EXCLUSIVE MODE;
    SELECT coalesce(sum(c.open + c.replaying + c.replayed + c.discarded), 0), coalesce(sum(c.open), 0) INTO letters, open
    FROM tidegate.dead_letter_counts c WHERE c.day >= dead_letters_drop_day.since AND c.day < dead_letters_drop_day.until;
    -- Claimed between the look and the lock.
    IF EXISTS (SELECT FROM tidegate.dead_letter_counts c WHERE c.day >= dead_letters_drop_day.since
        AND c.day < dead_letters_drop_day.until AND c.replaying > 0) THEN
        RETURN;
    END IF;
    DELETE FROM tidegate.dead_letter_counts c
    WHERE c.day >= dead_letters_drop_day.since AND c.day < dead_letters_drop_day.until;
    FOR messages IN SELECT d.partition FROM tidegate.dead_letters_days('tidegate.dead_letter_messages') d
        WHERE d.since >= dead_letters_drop_day.since AND d.until <= dead_letters_drop_day.until LOOP
        EXECUTE format('DROP TABLE %s', messages);
    END LOOP;
    EXECUTE format('DROP TABLE %s', oldest);
    RETURN NEXT;
END $$;

-- ----------------------------------------------------------------------------------------------------- replays

-- A run: what was asked for, how far it is, and which process is at it. What it has claimed stands in dead_letters.
CREATE TABLE tidegate.replays (
    id           uuid PRIMARY KEY,
    began_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    asked_by     text NOT NULL CHECK (octet_length(asked_by) BETWEEN 1 AND 255),
    why          text NOT NULL CHECK (octet_length(why) <= 4096),
    -- Filter as pairs, edit and options: JSON text.
    filter       text NOT NULL,
    edit         text NOT NULL,
    options      text NOT NULL,
    -- Most it will take; lessened when fewer are there.
    planned      bigint NOT NULL CHECK (planned >= 0),
    sent         bigint NOT NULL DEFAULT 0,
    refused      bigint NOT NULL DEFAULT 0,
    -- What it wanted and others had dealt with.
    lost         bigint NOT NULL DEFAULT 0,
    last_sent_at timestamptz,
    -- Where its walk is: everything before has been looked at.
    at_archived  timestamptz,
    at_id        uuid,
    state        text COLLATE "C" NOT NULL DEFAULT 'RUNNING' CHECK (state IN ('RUNNING', 'DONE', 'CANARY_FAILED', 'STOPPED', 'FAILED')),
    stop_asked   boolean NOT NULL DEFAULT false,
    ended_at     timestamptz CHECK ((ended_at IS NOT NULL) = (state <> 'RUNNING')),
    -- Why it ended, where that needs words.
    outcome      text,
    -- Whoever holds the lease goes on with it, and writes only under its number.
    owner        text NOT NULL CHECK (octet_length(owner) BETWEEN 1 AND 255),
    fence        bigint NOT NULL DEFAULT 1,
    lease_until  timestamptz NOT NULL
) WITH (fillfactor = 90);
CREATE INDEX replays_running ON tidegate.replays (lease_until) WHERE state = 'RUNNING';
CREATE INDEX replays_began ON tidegate.replays (began_at, id);

-- ----------------------------------------------------------------------------------------------------- audit

-- Who did what, when and why. Rows are written in the transaction of what they tell of, and never changed.
CREATE TABLE tidegate.audit_log (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    who       text NOT NULL CHECK (octet_length(who) BETWEEN 1 AND 255),
    -- E.g. dead_letter.replay, dead_letter.edit, dead_letter.discard, replay.stop.
    what      text COLLATE "C" NOT NULL CHECK (octet_length(what) BETWEEN 1 AND 64),
    -- What it was done to: an id, or a filter.
    subject   text COLLATE "C" NOT NULL CHECK (octet_length(subject) <= 65536),
    why       text NOT NULL CHECK (octet_length(why) <= 4096),
    replay_id uuid,
    -- Bytes before and after, where something was edited.
    before    bytea,
    after     bytea
);
CREATE INDEX audit_log_at ON tidegate.audit_log (at, id);
CREATE INDEX audit_log_subject ON tidegate.audit_log (subject text_pattern_ops, id) WHERE octet_length(subject) <= 64;
CREATE INDEX audit_log_replay ON tidegate.audit_log (replay_id, id) WHERE replay_id IS NOT NULL;

-- ----------------------------------------------------------------------------------------------------- digests

-- The one hour, or other span, that a digest tells of: whoever writes the row sends it.
CREATE TABLE tidegate.digests (
    target     text COLLATE "C" NOT NULL CHECK (octet_length(target) BETWEEN 1 AND 64),
    until      timestamptz NOT NULL,
    since      timestamptz NOT NULL,
    state      text COLLATE "C" NOT NULL DEFAULT 'SENDING' CHECK (state IN ('SENDING', 'SENT', 'QUIET', 'FAILED')),
    tries      integer NOT NULL DEFAULT 1,
    owner      text NOT NULL,
    lease_until timestamptz NOT NULL,
    last_error text,
    PRIMARY KEY (target, until),
    CHECK (since < until)
);

REVOKE ALL ON FUNCTION tidegate.dead_letters_counted(), tidegate.dead_letters_recounted(), tidegate.dead_letters_uncounted(),
    tidegate.dead_letters_days(regclass), tidegate.dead_letters_make_day(date), tidegate.dead_letters_drop_day(double precision) FROM PUBLIC;
