-- The schema itself stays: the bookkeeping of migrations lives in it.
DROP TABLE tidegate.tasks;
DROP FUNCTION tidegate.tasks_wake();
DROP TABLE tidegate.cron_fires;
DROP TABLE tidegate.cron_tasks;
DROP FUNCTION tidegate.cron_tasks_wake();
DROP FUNCTION tidegate.cron_tasks_edited();
DROP DOMAIN tidegate.instant;
