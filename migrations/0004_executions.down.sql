DROP TABLE tidegate.executions;
