DROP TABLE tidegate.digests;
DROP TABLE tidegate.audit_log;
DROP TABLE tidegate.replays;
-- Its default names the table.
DROP FUNCTION tidegate.dead_letters_days(regclass);
DROP TABLE tidegate.dead_letters, tidegate.dead_letter_messages;
DROP TABLE tidegate.dead_letter_counts;
DROP FUNCTION tidegate.dead_letters_drop_day(double precision), tidegate.dead_letters_make_day(date), tidegate.dead_letters_counted(), tidegate.dead_letters_recounted(), tidegate.dead_letters_uncounted();
