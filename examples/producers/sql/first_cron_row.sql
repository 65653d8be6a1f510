-- First schedule, in SQL: every weekday at nine in Shanghai, whatever that is in UTC.
INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, time_zone, payload)
VALUES ('recall-silent-members', 'marketing.recall.push', '0 9 * * mon-fri', 'Asia/Shanghai', '{"silentDays": 30}');
